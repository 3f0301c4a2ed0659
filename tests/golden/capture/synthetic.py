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

from tlstax.collectors.capture.schema import (
    CpuClock,
    Frame,
    Handshake,
    Latency,
    Ledger,
    Loss,
    Meta,
    OffcpuStack,
    PhaseCount,
    Probe,
    ProcessClock,
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
from tlstax.tests.golden.capture.workload import (
    _SERVER,
    ARMS,
    FRAMES,
    SAMPLE_HZ,
    SAMPLES,
    SECOND,
    STACKS,
    START,
    TLS_RECORD_SAMPLES,
    US,
    WAITS,
    WALL,
    Arm,
)


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
        on_cpu_ns, runnable_ns = 2_000_000, 0
        for thread_id in threads:
            spent = {key: int(ns * noise * share) for key, ns in arm.costs.items()}
            idle_ns = max(0, SECOND - sum(spent.values()))
            cpu_ns = sum(ns for (_, state), ns in spent.items() if state == "on_cpu")
            on_cpu_ns += cpu_ns
            runnable_ns += sum(ns for (_, state), ns in spent.items() if state == "runnable")
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
        yield ProcessClock(
            window_id,
            int(on_cpu_ns * 0.995),
            int(on_cpu_ns * 0.995),
            int(runnable_ns * 1.01),
            2 * count,
            2 * count,
            0,
            len(threads) + 1,
            len(threads) + 1,
        )
        yield CpuClock(window_id, 0, on_cpu_ns, int(on_cpu_ns * SAMPLE_HZ / SECOND * 0.98))
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
    path: str, seed: int = 1, rounds: int = 8, attach: bool = False, scale: float = 1.0
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
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--attach", action="store_true", help="no runs, one storm of connections")
    options = parser.parse_args()
    build(options.file, options.seed, options.rounds, options.attach)


if __name__ == "__main__":
    main()
