# SPDX-License-Identifier: GPL-2.0-only
"""A second set of cases, drawn from a seed: nobody has seen it while rules were written.

Each case varies a case of causes.py in what its cause does not depend on (clients, queries, the
server, its key, the size of results), and in its strength. A seed always gives the same set. Draw
it after the rules are frozen, and run it once.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tlstax.tests.truth.causes.bench import Injection
from tlstax.tests.truth.causes.causes import CASES, PORTABLE, SOME_QUERIES
from tlstax.tests.truth.causes.loads import Case

PER_CAUSE: Final = 3
CONTROLS_COUNT: Final = 200
"""Healthy loads, from nearly idle to busy."""
STRENGTH: Final = (0.7, 1.6)
"""Factors of the strengths of causes.py, between which a drawn one lies."""
STRENGTHS: Final = (
    "rtt_ms", "name_server_ms", "quota_cpus", "revoked", "directory_ms",
)  # fmt: skip
"""Parameters that say how strong a cause is."""
SERVERS: Final = (
    "mariadb", "mysql56", "mysql57", "mysql80", "mysql97", "mariadb102", "mariadb1011",
    "mariadb118",
)  # fmt: skip
HEALTHY: Final = ("oltp_point_select", "oltp_read_only")


def cases(seed: int) -> dict[str, Case]:
    """Drawn cases by the names of their causes."""
    chance = random.Random(seed)
    return {
        name: replace(
            case,
            parameters=tuple(
                _elsewhere(chance, name, _varied(chance, chance.choice(case.parameters)))
                for _ in range(PER_CAUSE)
            ),
        )
        for name, case in CASES.items()
    }


def _varied(chance: random.Random, injection: Injection) -> Injection:
    """The same cause in another load."""
    changes: dict[str, object] = {}
    for name in STRENGTHS:
        value = getattr(injection, name)
        if value:
            drawn = value * chance.uniform(*STRENGTH)
            changes[name] = round(drawn) if isinstance(value, int) else round(drawn, 3)
    if not injection.busy_loops and not injection.quota_cpus and injection.locked is None:
        changes["threads"] = max(1, injection.threads + chance.choice((-1, 0, 1)))
    if injection.server_key.startswith("rsa:") and int(injection.server_key[4:]) > 2048:
        changes["server_key"] = f"rsa:{chance.choice((3072, 3840, 4096))}"
    queries = [text for text in injection.sysbench if text.startswith("--queries=")]
    if injection.script == "storm" and queries:
        count = int(queries[0].partition("=")[2])
        low, high = (1, SOME_QUERIES - 1) if count < SOME_QUERIES else (8, 15)
        rest = tuple(text for text in injection.sysbench if text not in queries)
        changes["sysbench"] = (*rest, f"--queries={chance.randint(low, high)}")
    return replace(injection, **changes)  # type: ignore[arg-type]


def _elsewhere(chance: random.Random, name: str, injection: Injection) -> Injection:
    """The same on another server, where that is the same case; the key is that of each server."""
    if name not in PORTABLE:
        return injection
    return replace(injection, kind=chance.choice(SERVERS), server_key="rsa:2048")


def controls(seed: int) -> Mapping[str, Injection]:
    """Healthy loads: at most as many clients as CPUs, at rates from a few queries a second on."""
    chance = random.Random(f"controls {seed}")
    found = {}
    for number in range(CONTROLS_COUNT):
        rate = chance.choice((0, 5, 50, 500, 2000))
        found[f"healthy-{number}"] = Injection(
            script=chance.choice(HEALTHY),
            kind=chance.choice(SERVERS),
            threads=chance.choice((1, 2)),
            tls=chance.random() < 0.8,
            server_key=chance.choice(("ec:p256", "rsa:2048")),
            sysbench=(f"--rate={rate}",) if rate else (),
            rows=chance.choice((100, 1000, 5000)),
        )
    return found
