# SPDX-License-Identifier: GPL-2.0-only
"""Compare `tlstax canary` with the lab's paired arms on a MariaDB under load (make check-canary).

Each round runs the lab's plaintext arm, its TLS arm (sysbench connects, asks, disconnects) and the
canary one after the other, in random order, while another client loads the server. All have the
same account, key and certificates, and open as many connections a second. The difference that the
canary saw, less that of the lab's arms, must have an interval that contains 0 and is not wider
than --most of the lab's difference. Then the canary runs alone at two connections a second, and
the server's CPU time for it is printed, without what the server at rest uses.

    check.py [--rounds 8] [--seconds 8] [--load-rate 300]
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import rounds
from tlstax.collectors.capture.order_statistics import LEAST_UNITS
from tlstax.tests.background_load import in_background
from tlstax.workloads.canary import Access, Run, measure
from tlstax.workloads.drivers.sysbench import SCENARIOS, Caller, Load, Sysbench
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.configuration import DATABASE, sysbench_options
from tlstax.workloads.servers.mariadb import PrivateServer

RATE = 5.0
"""Connections a second of each: the canary's most."""
ALONE_RATE, ALONE_S = 2.0, 20.0
PASSWORD = "canary-of-the-check"  # of a server that nobody else can reach
CPU_CLOCK_OF_PROCESS = 2  # linux/posix-timers.h: CPUCLOCK_SCHED


@dataclass(frozen=True)
class Round:
    """What TLS added to a connection, in ns."""

    lab_ns: float
    canary_ns: float


@dataclass(frozen=True)
class Verdict:
    """Medians of rounds with their intervals, in ns."""

    lab: Estimate
    canary: Estimate
    apart: Estimate
    most: float

    @property
    def half_width(self) -> float:
        """Half of the interval of what they are apart, as a share of the lab's difference."""
        assert self.apart.low is not None
        assert self.apart.high is not None
        half_ns = (self.apart.high - self.apart.low) / 2
        return half_ns / self.lab.value if self.lab.value > 0 else float("inf")

    @property
    def agrees(self) -> bool:
        """Whether both say the same, as far as so many rounds can tell."""
        assert self.apart.low is not None
        assert self.apart.high is not None
        return self.apart.low <= 0 <= self.apart.high and self.half_width <= self.most

    @property
    def text(self) -> str:
        """The verdict in a word, and why."""
        width = f"half of the interval is {self.half_width:.0%} of the lab's difference"
        if self.agrees:
            return f"ok ({width})"
        if self.half_width > self.most:
            return f"UNDECIDED ({width}): take more rounds, or a quiet host"
        return f"WRONG ({width}, and it does not contain 0)"


def judge(found: Sequence[Round], most: float) -> Verdict:
    """The rounds are pairs: what disturbs one of both in a round mostly disturbs the other."""
    units = rounds(len(found))
    lab = [one.lab_ns for one in found]
    canary = [one.canary_ns for one in found]
    apart = [one.canary_ns - one.lab_ns for one in found]
    of_lab, of_canary, of_apart = (
        medians.of_values(values, units) for values in (lab, canary, apart)
    )
    return Verdict(of_lab, of_canary, of_apart, most)


def account(server: PrivateServer, folder: Path) -> Access:
    """An account for all, that is let in with and without TLS, with the lab's certificates."""
    with server.open_administrator() as session:
        for host in ("%", "localhost"):  # an anonymous account of localhost would be preferred
            session.query(f"CREATE OR REPLACE USER canary@'{host}' IDENTIFIED BY '{PASSWORD}'")
            session.query(f"GRANT SELECT ON {DATABASE}.* TO canary@'{host}'")
    files = server.account()
    file = folder / "canary.cnf"
    file.touch(0o600)
    file.write_text(
        f"[client]\nuser = canary\npassword = {PASSWORD}\nssl-ca = {files.ca}\n"
        f"ssl-cert = {files.certificate}\nssl-key = {files.key}\n"
    )
    return Access(option_file=file, host="127.0.0.1", port=server.port)


def lab_of(server: PrivateServer, folder: Path) -> Sysbench:
    """The lab's driver with the same account; key and certificates are in its directory."""

    def caller(arm: Arm) -> Caller:
        text = sysbench_options(server.port, "canary", PASSWORD, tls=arm == "tls")
        path = folder / f"sysbench-{arm}.cnf"
        path.touch(0o600)
        path.write_text(text)
        return Caller(path, server.client_directory, server.client_environment)

    return Sysbench(caller, table_rows=1000)


def mean_ns(run: Run) -> float:
    """The mean difference of the pairs: the lab's drivers tell means."""
    if run.failure is not None:
        raise run.failure
    return sum(pair.difference_ns for pair in run.pairs) / len(run.pairs)


def one_round(lab: Sysbench, access: Access, seconds: int, draw: random.Random) -> Round:
    """All three, in random order."""
    load = Load(SCENARIOS["connect"], 1, seconds, rate_per_s=RATE)
    taken: dict[str, float] = {}
    arms: tuple[Arm, ...] = ("plaintext", "tls")
    for name in draw.sample((*arms, "canary"), 3):
        if name == "canary":
            taken[name] = mean_ns(measure(access, RATE, seconds))
        else:
            arm: Arm = "tls" if name == "tls" else "plaintext"
            taken[name] = lab.run(load, arm).latencies.mean_ns
    return Round(taken["tls"] - taken["plaintext"], taken["canary"])


def cpu_ns(pid: int) -> int:
    """CPU time of a process, exactly."""
    return time.clock_gettime_ns((~pid << 3) | CPU_CLOCK_OF_PROCESS)


def cost(server: PrivateServer, access: Access) -> float:
    """CPU time of the server for a canary at two connections a second, as a share of one CPU."""
    begun = cpu_ns(server.pid)
    time.sleep(ALONE_S)
    rest_ns = cpu_ns(server.pid) - begun
    begun, started = cpu_ns(server.pid), time.monotonic_ns()
    measure(access, ALONE_RATE, ALONE_S)
    elapsed_ns = time.monotonic_ns() - started
    spent_ns = cpu_ns(server.pid) - begun
    return spent_ns / elapsed_ns - rest_ns / (ALONE_S * 1e9)


def main() -> int:
    """All rounds; 0 if both agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=LEAST_UNITS)
    parser.add_argument("--seconds", type=int, default=8, help="of each part of a round")
    parser.add_argument("--load-rate", type=float, default=300.0, help="point selects a second")
    parser.add_argument("--most", type=float, default=0.5, help="widest half of the interval")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.rounds < LEAST_UNITS:
        parser.error(f"--rounds: {LEAST_UNITS} are needed for an interval")
    draw = random.Random(options.seed)
    found = []
    with PrivateServer() as server, tempfile.TemporaryDirectory() as name:
        access, lab = account(server, Path(name)), lab_of(server, Path(name))
        others = Sysbench.of_server(server, table_rows=1000)
        others.prepare()
        length = options.rounds * (3 * options.seconds + 30) + 60
        load = Load(SCENARIOS["point_select"], 1, length, rate_per_s=options.load_rate)
        with in_background(others, load):
            for number in range(options.rounds):
                found.append(one_round(lab, access, options.seconds, draw))
                lab_text, canary_text = (
                    time_text(ns) for ns in (found[-1].lab_ns, found[-1].canary_ns)
                )
                print(f"round {number}: lab {lab_text}, canary {canary_text}", flush=True)
        spent = cost(server, access)
    verdict = judge(found, options.most)
    for label, line in (
        ("lab's arms", verdict.lab), ("canary", verdict.canary), ("apart", verdict.apart)
    ):  # fmt: skip
        print(f"{label:10} {_text(line)}")
    print(f"two connections a second take {share_text(spent)} of one CPU from the server")
    print(verdict.text)
    return int(not verdict.agrees)


def _text(line: Estimate) -> str:
    low, high = (line.low or 0.0, line.high or 0.0)
    return f"{line.value / 1e6:.3f} ms [{low / 1e6:.3f}, {high / 1e6:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
