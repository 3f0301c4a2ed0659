# SPDX-License-Identifier: GPL-2.0-only
"""The pairs of set-ups that `make check-whatif` predicts and measures.

CASES are the kinds of changes that the model's constants were found with. HELD_OUT has key sizes,
numbers of client threads and sizes of results that no constant was found with; it was written
before it was first run.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tlstax.analysis.whatif.summary import Scenario as WhatIfScenario
from tlstax.collectors.capture.ciphers import SUITES
from tlstax.workloads.drivers.model import DriveResult, Latencies
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Scenario, Sysbench
from tlstax.workloads.servers.configuration import USER_TLS
from tlstax.workloads.servers.mariadb import PrivateServer

HERE = Path(__file__).parent
POOLED = {
    "pool": Scenario("pool", "storm", str(HERE / "pool.lua")),
    "warm": Scenario("warm", "pooled", str(HERE / "warm.lua")),
    **{
        f"result-{size}": Scenario(f"result-{size}", "pooled", str(HERE / f"result_{size}.lua"))
        for size in (16, 64, 256)
    },
}
QUERIES = 20
SHARE = 0.9
Wait = Callable[[float], None]


@dataclass(frozen=True)
class Setup:
    """A server's key and cipher, and what its clients do."""

    name: str
    key: str
    scenario: str  # connect, pool, warm, full, resumed or result-KB
    suite: str = ""  # '': what both agree on
    version: str = "TLSv1.3"
    threads: int = 1

    @property
    def server(self) -> str:
        """Set-ups with the same name have the same server, and are in the same capture."""
        return f"{self.key}-{self.suite}".rstrip("-").replace(":", "-")

    @property
    def load(self) -> str:
        """What its runs are called in the capture."""
        return self.scenario if self.threads == 1 else f"{self.scenario}-{self.threads}x"

    def drive(self, server: PrivateServer, seconds: int, wait: Wait) -> DriveResult:
        """One run."""
        if self.scenario in ("full", "resumed"):
            return _resuming(server, seconds, SHARE if self.scenario == "resumed" else 0.0, wait)
        scenario = POOLED.get(self.scenario, SCENARIOS["connect"])
        driver = Sysbench.of_server(server, table_rows=1)
        return driver.run(Load(scenario, self.threads, seconds), "tls", wait)


@dataclass(frozen=True)
class Case:
    """From what to what."""

    name: str
    before: Setup
    after: Setup
    scenario: WhatIfScenario


def _result(cipher: str, version: str, size: int = 64, threads: int = 1) -> Setup:
    """Results of so many KB on connections that stay open."""
    suite, scenario = SUITES[cipher][version], f"result-{size}"
    return Setup(f"{scenario} {cipher} {threads}", "rsa:2048", scenario, suite, version, threads)


def _connect(key: str, threads: int = 1) -> Setup:
    return Setup(f"connect {key} {threads}", key, "connect", threads=threads)


def _other_key(before: str, after: str, threads: int = 1) -> Case:
    name = f"{before} to {after}, {threads} thread{'s' * (threads > 1)}"
    scenario = WhatIfScenario(key=after)
    return Case(name, _connect(before, threads), _connect(after, threads), scenario)


def _other_cipher(before: str, after: str, version: str, size: int, threads: int = 1) -> Case:
    name = f"{before} to {after}, {size} KB, {threads} thread{'s' * (threads > 1)}"
    now, then = (_result(one, version, size, threads) for one in (before, after))
    return Case(name, now, then, WhatIfScenario(cipher=after))


WARM = Setup("warm", "rsa:2048", "warm")
STORMS = {key: Setup(f"connect {key}", key, "connect") for key in ("rsa:2048", "rsa:4096")}
CASES = (
    Case("RSA-2048 to ECDSA P-256", STORMS["rsa:2048"],
         Setup("connect ec:p256", "ec:p256", "connect"), WhatIfScenario(key="ec:p256")),
    Case("RSA-4096 to RSA-2048", STORMS["rsa:4096"], STORMS["rsa:2048"],
         WhatIfScenario(key="rsa:2048")),
    Case("no resumption to 90 %", Setup("full", "rsa:2048", "full"),
         Setup("resumed", "rsa:2048", "resumed"), WhatIfScenario(resume=SHARE)),
    Case("a query each to twenty", STORMS["rsa:2048"],
         Setup("pool", "rsa:2048", "pool"), WhatIfScenario(pool=QUERIES)),
    Case("AES256-CBC-SHA1 to AES128-GCM", _result("AES256-CBC-SHA1", "TLSv1.2"),
         _result("AES128-GCM", "TLSv1.2"), WhatIfScenario(cipher="AES128-GCM")),
    Case("AES256-GCM to CHACHA20-POLY1305", _result("AES256-GCM", "TLSv1.3"),
         _result("CHACHA20-POLY1305", "TLSv1.3"), WhatIfScenario(cipher="CHACHA20-POLY1305")),
)  # fmt: skip
HELD_OUT = (
    _other_key("rsa:3072", "ec:p256"),
    _other_key("rsa:3072", "rsa:2048"),
    _other_key("rsa:2048", "ec:p256", 2),
    _other_key("rsa:4096", "rsa:3072", 2),
    _other_cipher("AES256-GCM", "CHACHA20-POLY1305", "TLSv1.3", 16),
    _other_cipher("AES256-GCM", "CHACHA20-POLY1305", "TLSv1.3", 256),
    _other_cipher("AES256-CBC-SHA1", "AES128-GCM", "TLSv1.2", 256, 2),
)


def _resuming(server: PrivateServer, seconds: int, resumed: float, wait: Wait) -> DriveResult:
    """The client of resuming_client.py."""
    command = [
        sys.executable, str(HERE / "resuming_client.py"), str(server.port),
        str(server.option_file(USER_TLS)), str(server.client_directory), str(seconds), str(resumed),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write(b"\n")
        process.stdin.flush()
        while process.poll() is None:
            wait(0.05)
        made = json.loads(process.stdout.read())
    count = made["operations"]
    if abs(made["reused"] - resumed * count) > 0.01 * count + 2:
        raise SystemExit(f"{made['reused']} of {count} sessions were resumed, not {resumed:.0%}")
    latencies = Latencies(made["mean_ns"], made["p95_ns"], made["max_ns"])
    return DriveResult(count, 0, latencies, count, made["cpu_ns"], (process.pid,))
