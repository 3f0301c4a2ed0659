# SPDX-License-Identifier: GPL-2.0-only
"""The names of the metrics that findings are judged by: label, unit and section of the report."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Label(NamedTuple):
    """How a metric is called, in which unit, and where the report breaks it down."""

    text: str
    unit: str
    section: str


_LEDGER: Final = (
    ("connecting", "connecting, handshakes and disconnecting", "ledger"),
    ("handshake", "handshakes", "handshake"),
    ("sign", "signing", "handshake"),
    ("checking", "checking the clients' certificates", "handshake"),
    ("unchecked", "computing in handshakes without checking certificates", "handshake"),
    ("resumable", "public-key work that resumption avoids", "handshake"),
    ("connecting_network", "waiting for the network while connecting", "ledger"),
    ("handshake_network", "waiting for the client in handshakes", "handshake"),
    ("runnable", "waiting for a CPU", "ledger"),
    ("on_cpu", "running on a CPU", "ledger"),
    ("sending", "sending results", "ledger"),
    ("tde", "encryption at rest", "ledger"),
    ("disk", "waiting for the disk", "ledger"),
    ("tls", "TLS: handshakes, and encrypting records", "ledger"),
    ("commit", "waiting for a commit to be written", "flames"),
    ("table_lock", "waiting for table and metadata locks", "flames"),
    ("row_lock", "waiting for row locks", "flames"),
    ("adaptive_hash", "waiting for the adaptive hash index", "flames"),
    ("latch", "waiting for InnoDB's latches", "flames"),
    ("other_servers", "waiting for other servers in commits", "flames"),
    ("disk_read", "waiting for pages from disk", "flames"),
    ("fetch", "OpenSSL 3 fetching methods", "composition"),
    ("record_crypto", "encrypting and hashing records", "composition"),
    ("name_lookup", "waiting for name servers", "flames"),
    ("library_wait", "waiting for a socket in the C library while connecting", "flames"),
    ("authentication", "waiting for an authentication service", "flames"),
    ("library_lock", "waiting for locks of the TLS library", "flames"),
    ("allocator", "waiting for the memory allocator", "flames"),
    ("password", "hashing passwords", "composition"),
    ("threads", "creating and ending threads", "composition"),
    ("timer", "waits of the length of a TCP timer", "handshake"),
)
"""Metrics with a share of the served time (`_share`) and a time (`_ns`)."""
COMPUTED: Final = (
    "sign",
    "checking",
    "unchecked",
    "resumable",
    "fetch",
    "record_crypto",
    "sending",
    "password",
    "threads",
)
"""Metrics of CPU time alone, whose shares have their part of the waiting for a CPU."""
PER_HANDSHAKE: Final = (
    "handshake", "sign", "checking", "unchecked", "resumable", "handshake_network",
)  # fmt: skip
PER_CONNECTION: Final = ("connecting", "connecting_network", "password", "threads")

LABELS: Final[Mapping[str, Label]] = {
    **{
        f"{name}_share": Label(f"{text}, share of the time", "share", at)
        for name, text, at in _LEDGER
    },
    **{
        f"{name}_ns": Label(
            f"{text}, per "
            + (
                "handshake"
                if name in PER_HANDSHAKE
                else "connection"
                if name in PER_CONNECTION
                else "operation"
            ),
            "ns",
            at,
        )
        for name, text, at in _LEDGER
    },
    "sign_ns": Label("signing, per handshake in which the server signs", "ns", "handshake"),
    "sign_handshake_ns": Label("signing, per handshake, resumed ones included", "ns", "handshake"),
    "signatures_count": Label("handshakes in which the server signed", "count", "handshake"),
    "client_rtt_ns": Label(
        "the least round trip to clients that connect, by TCP, mean", "ns", "ledger"
    ),
    "round_trips_count": Label(
        "waits for the client while it connects, as a multiple of that round trip",
        "count",
        "ledger",
    ),
    "commands_per_connection": Label(
        "commands on each connection, without the one that ends it", "count", "ledger"
    ),
    "handshakes_count": Label("handshakes", "count", "handshake"),
    "listen_drop_count": Label(
        "connections that a full queue of new ones refused, in the time with a ledger",
        "count",
        "ledger",
    ),
    "listen_drop_share": Label(
        "share of connections that a full queue of new ones refused", "share", "ledger"
    ),
    "replica_busy_share": Label(
        "the thread that fetches the binary log computing or waiting for a CPU, share of its time",
        "share",
        "ledger",
    ),
    "replica_samples_count": Label("CPU samples of that thread", "count", "composition"),
    "replica_tls_cpu_share": Label("TLS, share of that thread's CPU time", "share", "composition"),
    "replica_tls_share": Label(
        "decrypting the binary log, share of the time for connections, that to the source too",
        "share",
        "composition",
    ),
    "births_per_connection": Label("new threads, per connection", "count", "ledger"),
    "all_samples_count": Label("CPU samples of the whole recording", "count", "composition"),
    "threads_cpu_share": Label(
        "creating and ending threads, share of the server's CPU time", "share", "composition"
    ),
    "unshaken_share": Label("share of connections without a TLS handshake", "share", "ledger"),
    "full_share": Label("share of full handshakes", "share", "handshake"),
    "failed_count": Label("handshakes that failed", "count", "handshake"),
    "abandoned_count": Label("handshakes that were given up", "count", "handshake"),
    "failed_share": Label("share of handshakes that failed", "share", "handshake"),
    "abandoned_share": Label("share of handshakes that were given up", "share", "handshake"),
    "failed_client_share": Label(
        "share of handshakes failing after the signature in which the server checked the client's "
        "certificate, at least",
        "share",
        "handshake",
    ),
    "failed_server_share": Label(
        "share of handshakes failing after the signature in which the server saw no certificate of "
        "the client, at least",
        "share",
        "handshake",
    ),
    "failed_hello_share": Label(
        "share of failed handshakes in which the server had not signed", "share", "handshake"
    ),
    "failed_signed_share": Label(
        "share of failed handshakes in which the server had signed", "share", "handshake"
    ),
    "always_signs": Label("the server signs in all handshakes", "text", "handshake"),
    "certificate_chain": Label("certificates in the server's file", "count", "method"),
    "certificate_chain_bytes": Label("their size", "bytes", "method"),
    "certificate_validity": Label("validity of the server's certificate", "text", "method"),
    "certificate_ends": Label("last day of the server's certificate (UTC)", "text", "method"),
    "failed_time_share": Label("handshakes that failed, share of the time", "share", "handshake"),
    "abandoned_time_share": Label(
        "handshakes that were given up, share of the time", "share", "handshake"
    ),
    "lost_connecting_share": Label(
        "handshakes that failed or were given up, share of connecting", "share", "handshake"
    ),
    "old_version_share": Label("share of handshakes older than TLS 1.2", "share", "handshake"),
    "session_cache": Label("resumption, by the server's status", "text", "method"),
    "cipher": Label("cipher suites", "text", "handshake"),
    "certificate_key": Label("key of the server's certificate", "text", "method"),
    "rsa_bits": Label("length of its RSA key, in bits", "count", "method"),
    "speaks_tls13": Label("the server's library has TLS 1.3", "text", "method"),
    "tls12_share": Label("share of handshakes with TLS 1.2", "share", "handshake"),
    "cbc_share": Label("share of handshakes with an AES-CBC cipher", "share", "handshake"),
    "stolen_share": Label(
        "CPU time of the server that the hypervisor took, share of the time", "share", "trust"
    ),
    "tls_library": Label("the server's TLS library", "text", "method"),
    "early_openssl3": Label("the server's library is OpenSSL 3.0 or 3.1", "text", "method"),
    "software_crypto": Label("ciphers without crypto instructions", "text", "method"),
    "has_aes": Label("the CPU has instructions for AES-GCM", "text", "method"),
    "soft_cipher_share": Label(
        "share of the ciphers' CPU samples in functions without such instructions",
        "share",
        "composition",
    ),
    "tls_bytes": Label("results are encrypted", "text", "composition"),
    "client_recorded": Label("a client was recorded, too", "text", "method"),
    "samples_count": Label("CPU samples", "count", "composition"),
    "connecting_wait_ns": Label("waiting for the network, per connection", "ns", "ledger"),
    "connect_wait_ns": Label(
        "waiting for the client outside of the handshake, per connection", "ns", "ledger"
    ),
    "handshake_wait_ns": Label("waiting for the client, per handshake", "ns", "handshake"),
    "handshake_wait_ratio": Label(
        "waiting for the client, as a multiple of the server's CPU time in a handshake",
        "count",
        "handshake",
    ),
    "connect_wait_ratio": Label(
        "waiting for the client outside of the handshake, divided by the wait in it",
        "ratio",
        "ledger",
    ),
    "client_connecting_ns": Label("the client's CPU time, per connection", "ns", "both-sides"),
    "client_connecting_ratio": Label(
        "the client's CPU time, divided by the server's wait for it", "ratio", "both-sides"
    ),
    "client_sign_ns": Label("the client's signature, per connection", "ns", "both-sides"),
    "client_work_ns": Label(
        "the client's CPU time without its signature, per connection", "ns", "both-sides"
    ),
    "client_handshake_ns": Label(
        "the client's CPU time in the handshake without its signature", "ns", "both-sides"
    ),
    "client_runnable_ns": Label(
        "the client waiting for a CPU while connecting, per connection", "ns", "both-sides"
    ),
    "client_setup_ns": Label(
        "the client's CPU time outside of the handshake, per connection", "ns", "both-sides"
    ),
    "client_setup_share": Label(
        "share of the client's CPU time for connecting outside of the handshake",
        "share",
        "both-sides",
    ),
    "client_certificate_share": Label(
        "share of the client's CPU time for connecting in parsing certificates",
        "share",
        "both-sides",
    ),
    "client_setup_wait_share": Label(
        "the server waiting for the client's set-up, share of the time", "share", "both-sides"
    ),
    "client_sign_wait_share": Label(
        "the server waiting for the client's signature, share of the time", "share", "both-sides"
    ),
    "client_tls_ns": Label(
        "CPU time that TLS adds to the client, per connection, by both arms", "ns", "both-sides"
    ),
    "client_tls_ratio": Label(
        "CPU time that TLS adds to the client, over the server's wait for it", "ratio", "both-sides"
    ),
    "client_tls_wait_share": Label(
        "waiting for the client's TLS work, at most, share of the time",
        "share",
        "both-sides",
    ),
    "client_samples_count": Label("CPU samples of clients", "count", "both-sides"),
    "writes_per_command": Label("writes to the client, per command", "count", "ledger"),
    "bytes_per_write": Label("bytes of each write, by the server's counter", "bytes", "ledger"),
    "feeding_share": Label(
        "sending the binary log to replicas, share of the CPU time of sending", "share", "ledger"
    ),
    "unfinished_ns": Label(
        "the longest such wait that began before the recording or ended after it", "ns", "ledger"
    ),
    "row_lock_waits": Label("waits for row locks, by the server's counter", "count", "ledger"),
    "flushes_count": Label("flushes of the log, by the server's counter", "count", "ledger"),
    "timer_count": Label("handshakes with such a wait", "count", "handshake"),
    "timer_acks": Label("delayed acknowledgements for each such wait", "count", "handshake"),
    "timer_in_parts": Label(
        "share of these in which messages of the client came in parts", "share", "handshake"
    ),
    "timer_purity": Label("share of handshakes with such a wait", "share", "handshake"),
    "host_idle_share": Label("idle share of the host's CPUs", "share", "trust"),
    "host_steal_share": Label("share of the host's CPUs taken by the hypervisor", "share", "trust"),
    "server_cpus": Label("CPUs that the server used", "count", "trust"),
    "other_cpus": Label("CPUs that everything else on the host used", "count", "trust"),
    "waiting_reply_count": Label(
        "answers on connections with acknowledgements of their own", "count", "ledger"
    ),
    "ack_parts_ratio": Label("segments of clients for each of these answers", "count", "ledger"),
    "ack_delayed_ratio": Label(
        "acknowledgements that the kernel delayed, for each of these answers", "count", "ledger"
    ),
    "quiet_timer_share": Label(
        "share of readings at which such a connection was quiet for 20 to 53 ms", "share", "ledger"
    ),
    "quiet_longer_share": Label("share of those with a longer quiet", "share", "ledger"),
    "holding_share": Label(
        "share of readings at which a client on this host held back what it had written",
        "share",
        "ledger",
    ),
    "ack_wait_share": Label(
        "waiting for delayed acknowledgements, share of the time of connections with it",
        "share",
        "ledger",
    ),
    "ack_wait_ns": Label(
        "waiting for delayed acknowledgements, at least, per command", "ns", "ledger"
    ),
    "throttled_share": Label(
        "share of the periods of its CPU quota in which the server used it up", "share", "trust"
    ),
    "fetch_handshake_ns": Label(
        "OpenSSL 3 fetching methods in handshakes, CPU time per handshake", "ns", "composition"
    ),
    "fetch_excess_ns": Label(
        "fetching methods less the signature, round by round", "ns", "composition"
    ),
    "handshake_own_ns": Label("the server's CPU time, per handshake", "ns", "handshake"),
    "fetch_cpu_share": Label(
        "OpenSSL 3 fetching methods, share of the CPU time of connections", "share", "composition"
    ),
    "sign_cpu_share": Label("signing, share of the CPU time of connections", "share", "handshake"),
    "tls_cpu_share": Label("TLS, share of the CPU time of connections", "share", "ledger"),
    "observer_share": Label(
        "overhead inside of the server, share of its CPU time", "share", "trust"
    ),
    "probe_share": Label("cost of the probes, share of the server's CPU time", "share", "trust"),
    "plaintext_handshakes_count": Label("handshakes in the plaintext arm", "count", "handshake"),
    "plaintext_handshake_share": Label(
        "handshakes in the plaintext arm, share of the time", "share", "ledger"
    ),
}
