# SPDX-License-Identifier: GPL-2.0-only
"""The workload of the synthetic experiment: arms, frames, stacks, samples and waits."""

from typing import NamedTuple

US = 1_000
SECOND = 1_000_000_000
START = 5_000 * SECOND
WALL = 1_780_000_000 * SECOND
SAMPLE_HZ = 499


class Arm(NamedTuple):
    """A driver's arm: what one operation costs the server, and what the client sees."""

    driver: str
    scenario: str
    arm: str
    threads: int
    latency_ns: int
    client_cpu_ns: int
    seconds: int
    costs: dict[tuple[str, str], int]
    """Server time per operation in ns, by phase and state."""


_QUERY = {
    ("record_read", "on_cpu"): 9 * US,
    ("command", "on_cpu"): 38 * US,
    ("command", "blocked_futex"): 1 * US,
    ("command", "runnable"): 6 * US,
    ("record_write", "on_cpu"): 12 * US,
}
_QUERY_TLS = {
    ("record_read", "on_cpu"): 15 * US,
    ("command", "on_cpu"): 38 * US,
    ("command", "blocked_futex"): 1 * US,
    ("command", "runnable"): 7 * US,
    ("record_write", "on_cpu"): 19 * US,
}
_CONNECT = {
    ("connect", "on_cpu"): 130 * US,
    ("connect", "runnable"): 20 * US,
    ("connect", "blocked_network"): 60 * US,
    ("disconnect", "on_cpu"): 25 * US,
    **_QUERY,
}
_CONNECT_TLS = {
    ("connect", "on_cpu"): 140 * US,
    ("connect", "runnable"): 30 * US,
    ("connect", "blocked_network"): 70 * US,
    ("handshake", "on_cpu"): 420 * US,
    ("handshake", "runnable"): 110 * US,
    ("handshake", "blocked_network"): 1450 * US,
    ("handshake", "blocked_lock"): 4 * US,
    ("sign", "on_cpu"): 760 * US,
    ("sign", "runnable"): 40 * US,
    ("keygen", "on_cpu"): 45 * US,
    ("derive", "on_cpu"): 62 * US,
    ("disconnect", "on_cpu"): 40 * US,
    **_QUERY_TLS,
}
ARMS = (
    Arm("pooled", "oltp_point_select", "plaintext", 4, 92 * US, 14 * US, 4, _QUERY),
    Arm("pooled", "oltp_point_select", "tls", 4, 117 * US, 24 * US, 4, _QUERY_TLS),
    Arm("storm", "connect_query", "plaintext", 4, 430 * US, 110 * US, 4, _CONNECT),
    Arm("storm", "connect_query", "tls", 4, 3450 * US, 1290 * US, 4, _CONNECT_TLS),
)
_CRYPTO = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"
_SSL = "/usr/lib/x86_64-linux-gnu/libssl.so.3"
_LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
_SERVER = "/usr/sbin/mariadbd"
FRAMES = (
    ("start_thread", _LIBC, ""),  # 1
    ("handle_one_connection", _SERVER, ""),  # 2
    ("do_command(THD*, bool)", _SERVER, ""),  # 3
    ("dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)", _SERVER, ""),  # 4
    ("JOIN::exec()", _SERVER, ""),  # 5
    ("net_real_write", _SERVER, ""),  # 6
    ("vio_ssl_write", _SERVER, ""),  # 7
    ("SSL_write", _SSL, ""),  # 8
    ("EVP_EncryptUpdate", _CRYPTO, ""),  # 9
    ("[libcrypto.so.3+0x6c1a0]", _CRYPTO, "aes+ghash"),  # 10
    ("sslaccept", _SERVER, ""),  # 11
    ("SSL_do_handshake", _SSL, ""),  # 12
    ("[libcrypto.so.3+0xb1f40]", _CRYPTO, "bignum"),  # 13
    ("EVP_MD_fetch", _CRYPTO, ""),  # 14
    ("X509_verify_cert", _CRYPTO, ""),  # 15
    ("[libcrypto.so.3+0x6f1c0]", _CRYPTO, "sha"),  # 16
    ("malloc", _LIBC, ""),  # 17
    ("pthread_mutex_lock", _LIBC, ""),  # 18
    ("entry_SYSCALL_64_after_hwframe", "kernel", ""),  # 19
    ("tcp_sendmsg", "kernel", ""),  # 20
    ("tcp_recvmsg", "kernel", ""),  # 21
    ("asm_exc_int3", "kernel", ""),  # 22
    ("uprobe_notify_resume", "kernel", ""),  # 23
    ("do_sys_poll", "kernel", ""),  # 24
    ("schedule", "kernel", ""),  # 25
    ("<script>alert(1)</script>", _SERVER, ""),  # 26
    ("futex_wait", "kernel", ""),  # 27
)
# Leaf first, as in the schema.
STACKS = (
    (5, 4, 3, 2, 1),  # 1 command
    (10, 9, 8, 7, 6, 4, 3, 2, 1),  # 2 record write, cipher
    (8, 7, 6, 4, 3, 2, 1),  # 3 record write, protocol
    (6, 4, 3, 2, 1),  # 4 record write, server
    (13,),  # 5 bignum, broken stack
    (14, 12, 11, 2, 1),  # 6 fetch
    (15, 12, 11, 2, 1),  # 7 X.509
    (16,),  # 8 digest, broken stack
    (17, 12, 11, 2, 1),  # 9 malloc
    (18, 5, 4, 3, 2, 1),  # 10 mutex
    (20, 19),  # 11 kernel send
    (21, 19),  # 12 kernel receive
    (23, 22),  # 13 kernel probe
    (25, 24, 19),  # 14 kernel poll wait
    (26, 5, 4, 3, 2, 1),  # 15 hostile name
    (12, 11, 2, 1),  # 16 handshake protocol
    (25, 27, 19),  # 17 kernel futex wait
    (3, 2, 1),  # 18 read
)
# phase: (syscall, user stack, kernel stack, weight); sendto 44, recvfrom 45, poll 7, futex 202
SAMPLES: dict[str, tuple[tuple[int, int | None, int | None, int], ...]] = {
    "command": ((-1, 1, None, 80), (-1, 10, None, 8), (-1, 15, None, 4), (-1, 9, None, 8)),
    "record_read": ((45, 18, 12, 60), (-1, 18, None, 25), (-1, 18, 13, 15)),
    "record_write": ((44, 4, 11, 70), (-1, 4, None, 20), (-1, 4, 13, 10)),
    "connect": ((-1, 1, None, 70), (45, 1, 12, 30)),
    "disconnect": ((-1, 18, None, 100),),
    "handshake": (
        (-1, 6, None, 25),
        (-1, 7, None, 12),
        (-1, 8, None, 18),
        (-1, 9, None, 15),
        (-1, 16, None, 20),
        (44, 16, 11, 8),
        (-1, None, None, 2),
    ),
    "sign": ((-1, 5, None, 100),),
    "keygen": ((-1, 5, None, 100),),
    "derive": ((-1, 5, None, 100),),
}
TLS_RECORD_SAMPLES: dict[str, tuple[tuple[int, int | None, int | None, int], ...]] = {
    "record_read": ((45, 18, 12, 40), (-1, 2, None, 30), (-1, 3, None, 20), (-1, 18, 13, 10)),
    "record_write": ((44, 3, 11, 45), (-1, 2, None, 30), (-1, 3, None, 18), (-1, 3, 13, 7)),
}
WAITS: dict[tuple[str, str], tuple[int, int | None, int | None]] = {
    ("connect", "blocked_network"): (7, 1, 14),
    ("handshake", "blocked_network"): (7, 16, 14),
    ("handshake", "blocked_lock"): (202, 16, 17),
    ("command", "blocked_futex"): (202, 10, 17),
}
