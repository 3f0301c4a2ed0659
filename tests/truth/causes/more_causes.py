# SPDX-License-Identifier: GPL-2.0-only
"""Injected causes beside keys, ciphers and round trips: certificates, passwords, threads, locks.

The bounds of their rules were written before any of these cases was recorded, and not changed.
"""

from dataclasses import replace

from tlstax.tests.truth.causes.bench import Injection
from tlstax.tests.truth.causes.loads import TLS12, Case, queries, rows, storm
from tlstax.workloads.servers.storage import Storage

_SHA2 = "IDENTIFIED WITH caching_sha2_password BY 'kept'"
_UNCACHED = ("thread_cache_size = 0",)
_ONLY_13 = ("tls_version = TLSv1.3",)
_LOAD_PAM = ("plugin_load_add = auth_pam",)
"""Its helper program must be for the server's user, as its package leaves it."""
_LOAD_PAM_INSIDE = ("plugin_load_add = auth_pam_v1",)
"""The older plug-in, which calls PAM in the server."""
WITHOUT_AES = (("OPENSSL_ia32cap", "~0x200000200000000:~0x60000000000"),)
"""AES-NI and PCLMULQDQ, then VAES and VPCLMULQDQ: OpenSSL takes them for absent."""
PAM = "IDENTIFIED VIA pam USING 'other'"
"""A service that every host has; a refusal takes it a second or more."""

LDAP = "IDENTIFIED VIA directory_login"


def _expired(**more: object) -> Injection:
    """The load has no TLS: sysbench does not connect to a server whose certificate has expired."""
    return Injection(stranger="trusting", expired=True, tls=False, **more)  # type: ignore[arg-type]


def _pam(**more: object) -> Injection:
    """Recorded for longer: a refusal takes seconds, and the first ones began before."""
    return Injection(guesses=PAM, seconds=10.0, **more)  # type: ignore[arg-type]


def _guessed(rounds: int, **more: object) -> Injection:
    """Wrong passwords, each dear to check, beside a load that leaves them CPU time.

    The 5,000 rounds that are the default take 1 ms on a CPU with SHA instructions: no cause.
    """
    options = (f"caching_sha2_password_digest_rounds = {rounds}",)
    rate = (*rows(400, 0), "--rate=20")
    made = Injection(
        kind="mysql97", guesses=_SHA2, script="result", threads=1, sysbench=rate, options=options
    )
    return replace(made, **more)  # type: ignore[arg-type]


def _arena(rest_us: int, **more: object) -> Injection:
    """Connections that allocate and free, all from the one arena that another thread locks."""
    environment = (("LONG_ARENA_US", str(rest_us)), ("MALLOC_ARENA_MAX", "1"))
    return storm(tls=False, environment=environment, **more)


def _small_pool(**more: object) -> Injection:
    """Many times as much data as the server keeps in memory, each page as likely as any other."""
    made = Injection(
        storage=Storage(buffer_pool_mb=16), rows=200_000, sysbench=("--rand-type=uniform",)
    )
    return replace(made, **more)  # type: ignore[arg-type]


def _encrypted(kind: str, **more: object) -> Injection:
    """Pages that are decrypted as they are read, ten for each query."""
    made = Injection(
        script="select_random_points", kind=kind, rows=200_000,
        storage=Storage(encrypted=True, buffer_pool_mb=16),
        sysbench=("--rand-type=uniform",),
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def _not_offered(count: int, **more: object) -> Injection:
    """A server that makes no sessions to resume."""
    made = storm(kind="mysql97", options=("ssl_session_cache_mode = OFF",), sysbench=queries(count))
    return replace(made, **more)  # type: ignore[arg-type]


def _replica(cipher: str) -> Injection:
    """Fetches over TLS 1.2 with a cipher that is dearer than AES-GCM."""
    return Injection(replicated=cipher, seconds=4.0, window_s=0.25)


MORE = {
    "expired": Case(
        ("expired_certificate",),
        (
            _expired(),
            _expired(server_key="rsa:2048", threads=1),
            _expired(script="oltp_read_only"),
        ),
    ),
    "unknown_clients": Case(
        ("refused_by_server", "certificate_refused"),
        (
            Injection(stranger="unknown"),
            Injection(stranger="unknown", script="oltp_read_only", server_key="rsa:2048"),
            Injection(stranger="unknown", threads=1, server_key="rsa:3072"),
        ),
        ("long_key",),
    ),
    "chain": Case(
        ("long_chain",),
        (
            storm(chain=18, rtt_ms=20, threads=4),
            storm(chain=14, rtt_ms=10, threads=2),
            storm(chain=16, rtt_ms=40, threads=6, server_key="rsa:2048"),
        ),
        ("connections_not_reused", "round_trips"),
    ),
    "outdated": Case(
        ("nothing_in_common",),
        (
            Injection(stranger="outdated"),
            Injection(stranger="outdated", threads=1, script="oltp_read_only"),
            Injection(stranger="outdated", server_key="rsa:2048", options=_ONLY_13),
        ),
    ),
    "disk_reads": Case(
        ("disk_reads",),
        (
            _small_pool(),
            _small_pool(threads=4, script="oltp_read_only"),
            _small_pool(threads=1, tls=False, rows=400_000),
        ),
    ),
    "encrypted_reads": Case(
        ("tde_reads",),
        (
            _encrypted("mariadb102"),
            _encrypted("mariadb102", threads=1),
            _encrypted("mariadb102", threads=4, tls=False),
        ),
        ("disk_reads", "cipher_without_hardware", "run_queue"),
    ),
    "unread_key": Case(
        ("rsa_key_size",),
        (
            storm(server_key="rsa:4096", reads_status=False, sysbench=queries(5)),
            storm(server_key="rsa:4096", reads_status=False, threads=1),
            storm(server_key="rsa:3840", reads_status=False, sysbench=queries(12)),
        ),
        ("connections_not_reused",),
    ),
    "not_offered": Case(
        ("resumption_not_offered",),
        (
            _not_offered(12),
            _not_offered(20, threads=1),
            _not_offered(8, threads=3),
        ),
    ),
    "threads": Case(
        ("thread_creation",),
        (
            storm(tls=False, options=_UNCACHED),
            storm(tls=False, options=_UNCACHED, threads=1),
            storm(tls=False, options=_UNCACHED, sysbench=queries(2)),
        ),
        ("connections_not_reused",),
    ),
    "pam": Case(
        ("external_authentication",),
        (
            _pam(guessers=16, options=_LOAD_PAM),
            _pam(guessers=24, threads=1, options=_LOAD_PAM_INSIDE),
            Injection(
                guesses=PAM,
                guessers=4,
                options=_LOAD_PAM_INSIDE,
                environment=(("LONG_PAM_US", "20000"),),
            ),
        ),
    ),
    "ldap": Case(
        ("external_authentication",),
        (
            Injection(guesses=LDAP, directory_ms=40),
            Injection(guesses=LDAP, directory_ms=15, guessers=4, script="oltp_read_only"),
            Injection(guesses=LDAP, directory_ms=150, guessers=8, threads=1),
        ),
    ),
    "split_commands": Case(
        ("delayed_acknowledgements",),
        (
            Injection(split_bytes=6, threads=4, seconds=15.0),
            Injection(split_bytes=30, threads=2, seconds=20.0, script="oltp_read_only"),
            Injection(split_bytes=10, threads=8, seconds=12.0, tls=False),
        ),
    ),
    "thinking": Case(
        (),
        (
            Injection(late_ms=42, threads=4, seconds=15.0),
            Injection(halting_ms=42, threads=4, seconds=15.0),
            Injection(late_ms=42, threads=8, seconds=12.0, tls=False, script="oltp_read_only"),
        ),
    ),
    "wrong_passwords": Case(
        ("password_hashing",),
        (
            _guessed(30_000),
            _guessed(20_000, guessers=4),
            _guessed(60_000, guessers=1),
        ),
        ("connections_not_reused", "no_resumption"),
    ),
    "software_path": Case(
        ("cipher_in_software",),
        (
            Injection(script="result", environment=WITHOUT_AES, sysbench=rows(262_144, 0)),
            Injection(
                script="result", environment=WITHOUT_AES, sysbench=rows(100_000, 0), threads=1
            ),
            Injection(
                kind="mysql80", script="result", environment=WITHOUT_AES, sysbench=rows(400_000, 0)
            ),
        ),
    ),
    "late_clients": Case(
        ("late_clients",),
        (
            storm(late_ms=7.0, threads=3),
            storm(late_ms=15.0, threads=2, server_key="rsa:2048"),
            storm(late_ms=30.0, threads=4, choice=TLS12),
        ),
        also=("version_downgrade",),
    ),
    "acknowledged": Case(
        ("other_servers",),
        (
            Injection(script="oltp_update_index", acknowledged=True),
            Injection(script="oltp_insert", acknowledged=True, threads=4),
            Injection(
                script="oltp_insert",
                acknowledged=True,
                threads=12,
                options=("rpl_semi_sync_master_wait_point = AFTER_SYNC",),
            ),
        ),
    ),
    "replica": Case(
        ("replica_fetch",),
        (
            _replica("ECDHE-ECDSA-ARIA256-GCM-SHA384"),
            _replica("ECDHE-ECDSA-AES256-CCM"),
            _replica("ECDHE-ECDSA-ARIA128-GCM-SHA256"),
        ),
        ("run_queue",),
    ),
    "library_lock": Case(
        ("library_lock",),
        (
            storm(choice=TLS12, threads=8, environment=(("LONG_LOCK_US", "100"),)),
            storm(choice=TLS12, threads=4, environment=(("LONG_LOCK_US", "300"),)),
            storm(choice=TLS12, threads=6, environment=(("LONG_LOCK_US", "200"),)),
        ),
        ("connections_not_reused", "version_downgrade", "run_queue"),
    ),
    "allocator": Case(
        ("allocator_lock",),
        (
            _arena(10_000, threads=2),
            _arena(20_000, threads=4),
            _arena(5_000, threads=1),
        ),
        ("connections_not_reused", "run_queue"),
    ),
}  # fmt: skip
