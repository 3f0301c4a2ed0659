# SPDX-License-Identifier: GPL-2.0-only
"""Builds a capture from a known model, so that what the analysis should find is known.

    python tests/golden/capture/synthetic.py FILE [--rounds N] [--attach] [--seed N]

The model is in COSTS: time per operation by phase and state, for each driver and arm, with a few
per cent of noise per round. Nothing here was measured.
"""

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from tlstax.collectors.capture.schema import (
    Frame,
    Handshake,
    Latency,
    Ledger,
    Loss,
    Meta,
    OffcpuStack,
    PhaseCount,
    Probe,
    Row,
    Run,
    SampleStack,
    Stack,
    Status,
    System,
    Target,
    Thread,
    ThreadClock,
    Window,
)
from tlstax.collectors.capture.writer import CaptureWriter

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


class Model:
    """Rows of a synthetic recording, in order of time."""

    def __init__(self, seed: int, rounds: int, attach: bool, scale: float) -> None:
        self.random = random.Random(seed)
        self.rounds = rounds
        self.attach = attach
        self.scale = scale
        self.now_ns = START
        self.ids: dict[str, Iterator[int]] = {}

    def rows(self) -> Iterator[list[Row]]:
        """Rows, one list for each commit."""
        yield list(self.head())
        if self.attach:
            yield from self.run(ARMS[3], None, 0)
            return
        for number in range(self.rounds):
            pairs = (ARMS[0:2], ARMS[2:4])
            for pair in pairs:
                for arm in pair if number % 2 == 0 else reversed(pair):
                    yield from self.run(arm, next(self.counter("run")), number)

    def counter(self, name: str) -> Iterator[int]:
        return self.ids.setdefault(name, itertools.count(1))

    def head(self) -> Iterator[Row]:
        """What does not belong to a window."""
        facts = {
            "tlstax_version": "0.1.0",
            "created_wall_ns": str(WALL),
            "monotonic_anchor_ns": str(START),
            "hostname": "synthetic",
            "kernel": "6.18.0",
            "cpu_count": "2",
            "cpu_model": "none: this capture was computed, not recorded",
            "sample_hz": str(SAMPLE_HZ),
            "engine": "synthetic",
            "command_level": "records",
        }
        yield from (Meta(key, value) for key, value in facts.items())
        yield Target(
            1, 4242, _SERVER, "ab" * 20, "mariadb", "10.11.19", "openssl", "3.0.19", "shared"
        )
        for number, (function, hits, cost) in enumerate(
            (
                ("do_command", 900_000, 690.0),
                ("net_real_write", 900_000, 690.0),
                ("sslaccept", 9_000, None),
            ),
            1,
        ):
            yield Probe(
                number,
                function,
                "enter",
                function,
                _SERVER,
                "ab" * 20,
                0x1000 * number,
                "push %rbp",
                "uprobe_multi",
                0,
                hits,
                cost,
            )
        for number, (symbol, file, code) in enumerate(FRAMES, 1):
            source = "kallsyms" if file == "kernel" else "none" if symbol[0] == "[" else "dynsym"
            yield Frame(number, file, "", 0x100 * number, symbol, 4, source, code)
        for number, frames in enumerate(STACKS, 1):
            yield Stack(number, " ".join(map(str, frames)))
        yield Thread(1, 4243, "ib_pg_flush", "background", START, None)

    def run(self, arm: Arm, run_id: int | None, number: int) -> Iterator[list[Row]]:
        """One run of a driver: its windows, then its result."""
        start_ns = self.now_ns
        noise = self.random.gauss(1.0, 0.02)
        threads = [next(self.counter("thread")) + 1 for _ in range(arm.threads)]
        busy_ns = sum(arm.costs.values())
        operations = 0
        for _ in range(arm.seconds):
            window_id = next(self.counter("window"))
            count = int(arm.threads * SECOND * self.scale / (arm.latency_ns * noise))
            operations += count
            yield list(self.window(arm, window_id, run_id, threads, count, noise, busy_ns))
            self.now_ns += SECOND
        rows: list[Row] = [
            Thread(t, 5000 + t, "mariadbd", "connection", start_ns, self.now_ns) for t in threads
        ]
        if run_id is not None:
            connects = operations if arm.driver == "storm" else arm.threads
            proof = {"ssl_accepts": connects if arm.arm == "tls" else 0, "connections": connects}
            mean_ns = int(arm.latency_ns * noise)
            rows.append(
                Run(
                    run_id,
                    arm.driver,
                    arm.scenario,
                    arm.arm,
                    number,
                    start_ns,
                    self.now_ns,
                    arm.threads,
                    connects,
                    operations,
                    mean_ns,
                    mean_ns * 2,
                    mean_ns * 9,
                    int(arm.client_cpu_ns * noise * operations),
                    json.dumps(proof),
                )
            )
            rows.append(Status(start_ns, run_id, "Ssl_finished_accepts", str(proof["ssl_accepts"])))
        yield rows

    def window(
        self,
        arm: Arm,
        window_id: int,
        run_id: int | None,
        threads: list[int],
        count: int,
        noise: float,
        busy_ns: int,
    ) -> Iterator[Row]:
        """One second of an arm."""
        yield Window(window_id, run_id, self.now_ns, self.now_ns + SECOND)
        share = count / len(threads)
        for thread_id in threads:
            spent = {key: int(ns * noise * share) for key, ns in arm.costs.items()}
            idle_ns = max(0, SECOND - sum(spent.values()))
            cpu_ns = sum(ns for (_, state), ns in spent.items() if state == "on_cpu")
            for (phase, state), time_ns in spent.items():
                yield Ledger(window_id, thread_id, phase, state, time_ns)
            yield Ledger(window_id, thread_id, "idle", "blocked_network", idle_ns)
            total_ns = sum(spent.values()) + idle_ns
            yield ThreadClock(
                window_id,
                thread_id,
                total_ns + self.random.randint(0, 900_000),
                int(cpu_ns * 0.995),
                int(busy_ns * share * 0.02),
                15_000,
                1,
            )
        yield Ledger(window_id, 1, "background", "blocked_other", SECOND - 2_000_000)
        yield Ledger(window_id, 1, "background", "on_cpu", 2_000_000)
        yield ThreadClock(window_id, 1, SECOND, 2_000_000, 0, 0, 0)
        for phase in {phase for phase, _ in arm.costs}:
            yield PhaseCount(window_id, phase, count)
            yield from self.latency(arm, window_id, phase, count)
        yield from self.samples(arm, window_id, count)
        if arm.driver == "storm" and arm.arm == "tls":
            yield from self.handshakes(arm, window_id, count)
        elif arm.arm == "tls" and self.now_ns % (arm.seconds * SECOND) == 0:
            yield PhaseCount(window_id, "handshake", arm.threads)
        yield System(
            window_id,
            SECOND,
            SECOND // 2,
            SECOND // 20,
            SECOND // 100,
            SECOND // 4,
            4_000_000,
            31 << 20,
        )
        yield Loss(window_id, "healed", len(threads))

    def latency(self, arm: Arm, window_id: int, phase: str, count: int) -> Iterator[Row]:
        """A log-normal-looking histogram of a phase."""
        mean_ns = sum(ns for (name, _), ns in arm.costs.items() if name == phase)
        left = count
        for step, share in ((-2, 0.1), (-1, 0.3), (0, 0.3), (1, 0.15), (4, 0.1), (20, 0.05)):
            bucket = int(mean_ns * 1.04**step)
            part = min(left, round(count * share))
            left -= part
            if part:
                yield Latency(window_id, phase, bucket, int(bucket * 1.04) + 1, part)

    def samples(self, arm: Arm, window_id: int, count: int) -> Iterator[Row]:
        """Samples and waits in proportion to the time."""
        for (phase, state), cost_ns in arm.costs.items():
            total_ns = cost_ns * count
            if state == "on_cpu":
                samples = total_ns * SAMPLE_HZ // SECOND
                record = TLS_RECORD_SAMPLES if arm.arm == "tls" else SAMPLES
                kinds = record.get(phase, SAMPLES[phase])
                weights = [kind[3] for kind in kinds]
                picks = self.random.choices(range(len(kinds)), weights, k=samples)
                for index, (syscall, user, kernel, _) in enumerate(kinds):
                    if picks.count(index):
                        yield SampleStack(
                            window_id, phase, syscall, user, kernel, picks.count(index)
                        )
            elif (phase, state) in WAITS:
                syscall, user, kernel = WAITS[phase, state]
                estimate_ns = int(total_ns * self.random.gauss(1, 0.05))
                yield OffcpuStack(
                    window_id, phase, state, syscall, user, kernel, count, estimate_ns
                )

    def handshakes(self, arm: Arm, window_id: int, count: int) -> Iterator[Row]:
        """One record for each connection."""
        cost = arm.costs
        for index in range(count):
            stretch = self.random.lognormvariate(0, 0.15)
            cpu_ns, wait_ns, net_ns = (
                int(stretch * sum(ns for (p, s), ns in cost.items() if s == state and p in _HS))
                for state in ("on_cpu", "runnable", "blocked_network")
            )
            lock_ns = cost["handshake", "blocked_lock"]
            failed = self.random.random() < 0.002
            start_ns = self.now_ns + index * (SECOND // (count + 1))
            yield Handshake(
                next(self.counter("handshake")), window_id, 5002, start_ns,
                start_ns + cpu_ns + wait_ns + net_ns + lock_ns, cpu_ns, wait_ns, net_ns, lock_ns,
                int(800 * US * stretch), int(45 * US * stretch), int(62 * US * stretch), 0, 0, 3, 2,
                "failure" if failed else "success", "TLSv1.3", "TLS_AES_256_GCM_SHA384",
                "X25519", 0,
            )  # fmt: skip


_HS = ("handshake", "sign", "keygen", "derive")


def build(
    path: str, seed: int = 1, rounds: int = 6, attach: bool = False, scale: float = 1.0
) -> None:
    """Write the capture; `scale` multiplies the operations (and so rows and samples)."""
    with CaptureWriter.create(path, overwrite=True) as writer:
        for rows in Model(seed, rounds, attach, scale).rows():
            writer.add(rows)
            writer.commit()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--attach", action="store_true", help="no runs, one storm of connections")
    options = parser.parse_args()
    build(options.file, options.seed, options.rounds, options.attach)


if __name__ == "__main__":
    main()
