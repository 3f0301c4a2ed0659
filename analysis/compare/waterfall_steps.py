# SPDX-License-Identifier: GPL-2.0-only
"""The steps of the waterfall: which (phase, state) or (phase, category) belongs to which."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.collectors.capture.vocabulary import ASYMMETRIC_PHASES, HANDSHAKE_PHASES


class StepKind(NamedTuple):
    """A step of the waterfall."""

    name: str
    label: str
    group: str
    basis: str
    description: str


KINDS: Final = (
    StepKind(
        "handshake_sign",
        "handshake: signature",
        "handshake",
        "exact",
        "the server's private-key operation",
    ),
    StepKind(
        "handshake_keygen",
        "handshake: key generation",
        "handshake",
        "exact",
        "the server's ephemeral key",
    ),
    StepKind(
        "handshake_derive", "handshake: shared secret", "handshake", "exact", "ECDH or DH agreement"
    ),
    StepKind(
        "handshake_verify",
        "handshake: verification",
        "handshake",
        "exact",
        "checking the client's signatures",
    ),
    StepKind(
        "handshake_certificate",
        "handshake: certificates",
        "handshake",
        "sampled",
        "chain checks (exact), X.509 and ASN.1 (sampled)",
    ),
    StepKind(
        "handshake_asymmetric",
        "handshake: other public-key work",
        "handshake",
        "sampled",
        "public-key arithmetic outside of the timed operations",
    ),
    StepKind(
        "handshake_symmetric",
        "handshake: symmetric crypto",
        "handshake",
        "sampled",
        "ciphers, hashes, key derivation and random numbers",
    ),
    StepKind(
        "handshake_fetch",
        "handshake: method fetch",
        "handshake",
        "sampled",
        "OpenSSL 3 fetching methods and parameters",
    ),
    StepKind(
        "handshake_protocol",
        "handshake: TLS protocol",
        "handshake",
        "sampled",
        "state machine, messages, BIO, error queue",
    ),
    StepKind(
        "handshake_memory",
        "handshake: memory",
        "handshake",
        "sampled",
        "allocating, copying, clearing",
    ),
    StepKind(
        "handshake_kernel",
        "handshake: system calls",
        "handshake",
        "sampled",
        "the kernel on behalf of the handshake",
    ),
    StepKind(
        "handshake_other",
        "handshake: anything else",
        "handshake",
        "sampled",
        "server code, lock operations, and samples that match no rule of the taxonomy",
    ),
    StepKind("record_cipher", "records: cipher", "record", "sampled", "bulk encryption"),
    StepKind("record_digest", "records: digest", "record", "sampled", "hashes and MACs"),
    StepKind(
        "record_stitched",
        "records: cipher and digest in one",
        "record",
        "sampled",
        "stitched kernels such as AES-GCM",
    ),
    StepKind(
        "record_protocol",
        "records: TLS protocol",
        "record",
        "sampled",
        "framing, BIO, method fetch and other library work",
    ),
    StepKind(
        "record_copies",
        "records: copies and system calls",
        "record",
        "sampled",
        "memory and kernel; also in the plaintext arm",
    ),
    StepKind(
        "record_other",
        "records: anything else",
        "record",
        "sampled",
        "server code, lock operations, and samples that match no rule of the taxonomy",
    ),
    StepKind("connect", "connect: CPU", "server", "exact", "accept to authenticated"),
    StepKind("command", "command: CPU", "server", "exact", "parse to result"),
    StepKind("tde", "encryption at rest: CPU", "server", "exact", "pages and logs"),
    StepKind(
        "handshake_wait",
        "handshake: waiting for the client",
        "waiting",
        "exact",
        "the network and the client's own handshake work",
    ),
    StepKind(
        "network_wait",
        "other waiting for the client",
        "waiting",
        "exact",
        "authentication round trips, full socket buffers",
    ),
    StepKind("locks", "locks and futexes", "waiting", "exact", "waits for locks, known or not"),
    StepKind("disk", "disk", "waiting", "exact", "waits for block devices and files"),
    StepKind("other_waits", "other waits", "waiting", "exact", "waits for anything else"),
    StepKind(
        "scheduling",
        "waiting for a CPU",
        "waiting",
        "exact",
        "runnable server threads without a CPU",
    ),
    StepKind(
        "probe",
        "measurement",
        "measurement",
        "sampled",
        "probes in handshake and record phases, by samples",
    ),
    StepKind(
        "client",
        "client: CPU",
        "client",
        "client",
        "added CPU time of the driver, beyond the added waits of the server for it or for a CPU",
    ),
)
UNEXPLAINED: Final = StepKind(
    "unexplained",
    "unexplained",
    "unexplained",
    "client",
    "client latency less all steps above: network outside of the server's phases, wake-ups, and "
    "the client waiting for a CPU; negative if client and server worked at the same time",
)
BESIDE: Final = (
    StepKind(
        "disconnect",
        "disconnect",
        "server",
        "exact",
        "end of the connection; the client does not wait for it",
    ),
    StepKind(
        "client_cpu",
        "client: all CPU",
        "client",
        "client",
        "CPU time of the driver; most of its handshake lies in the server's waits",
    ),
)
CLIENT_WAITS: Final = ("handshake_wait", "network_wait", "scheduling")
"""Steps in which the server waits while the client may compute: its CPU time can be part of them.

Driver and server share a host, so a server thread without a CPU has often lost it to the driver.
"""

SAMPLED_PHASES: Final = ("handshake", "record_read", "record_write")
"""Phases whose on-CPU time is split by samples."""

_WAITS: Final[Mapping[str, str]] = {
    "runnable": "scheduling",
    "blocked_disk": "disk",
    "blocked_lock": "locks",
    "blocked_futex": "locks",
}
_HANDSHAKE_CATEGORIES: Final[Mapping[str, str]] = {
    "asymmetric": "handshake_asymmetric",
    "cipher": "handshake_symmetric",
    "digest": "handshake_symmetric",
    "record_crypto": "handshake_symmetric",
    "kdf_rng": "handshake_symmetric",
    "certificate": "handshake_certificate",
    "provider_fetch": "handshake_fetch",
    "tls_protocol": "handshake_protocol",
    "memory": "handshake_memory",
    "kernel_network": "handshake_kernel",
    "kernel_other": "handshake_kernel",
    "probe": "probe",
}
_RECORD_CATEGORIES: Final[Mapping[str, str]] = {
    "cipher": "record_cipher",
    "digest": "record_digest",
    "record_crypto": "record_stitched",
    "asymmetric": "record_protocol",
    "kdf_rng": "record_protocol",
    "certificate": "record_protocol",
    "provider_fetch": "record_protocol",
    "tls_protocol": "record_protocol",
    "memory": "record_copies",
    "kernel_network": "record_copies",
    "kernel_other": "record_copies",
    "probe": "probe",
}


def exact_step(phase: str, state: str) -> str | None:
    """The step of a ledger row; None for CPU time that samples split, and for unserved phases."""
    if phase not in SERVED_PHASES:
        return None
    if phase == "disconnect":
        return "disconnect"
    if state == "on_cpu":
        return _cpu_step(phase)
    if state == "blocked_network":
        return "handshake_wait" if phase in HANDSHAKE_PHASES else "network_wait"
    return _WAITS.get(state, "other_waits")


def _cpu_step(phase: str) -> str | None:
    if phase in SAMPLED_PHASES:
        return None
    if phase in ASYMMETRIC_PHASES or phase == "certificate":
        return f"handshake_{phase}"
    return phase


def sampled_step(phase: str, category: str) -> str:
    """The step of CPU time in a category."""
    if phase == "handshake":
        return _HANDSHAKE_CATEGORIES.get(category, "handshake_other")
    return _RECORD_CATEGORIES.get(category, "record_other")
