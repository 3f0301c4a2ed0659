# SPDX-License-Identifier: GPL-2.0-only
"""The counters of a watch as measures, before any protocol: names, units, labels, values.

A name ends with its unit (`_seconds`, `_bytes`) as Prometheus wants it. Times are in seconds, but
the buckets of histograms are those of the data set, which are in ns.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.rollup.intervals import WALL, coarse_role
from tlstax.analysis.quantities import library
from tlstax.collectors.capture.vocabulary import STATES

PREFIX: Final = "tlstax_"
_STEPS: Final = 4
"""Buckets of the data set in one power of two."""
_INFO: Final = ("product", "version", "tls_library", "build_id", "level")
_KIND: Final = ("outcome", "tls_version", "cipher", "group", "resumption")


class Measure(NamedTuple):
    """A metric with its points."""

    name: str
    kind: Literal["counter", "gauge", "info"]
    text: str
    labels: tuple[str, ...] = ()
    points: tuple[tuple[tuple[str, ...], float], ...] = ()


class Distribution(NamedTuple):
    """A histogram: buckets of the data set by index, and the sum of what they hold."""

    name: str
    text: str
    counts: Mapping[int, int]
    sum_ns: float


def measures(counters: Counters) -> Iterator[Measure]:
    """All but the histograms; call it while the counters are held."""
    yield _one("server_up", "gauge", "1: the server is recorded now.", counters.is_attached)
    yield Measure("server", "info", "The server recorded last.", _INFO, tuple(_servers(counters)))
    yield _one(
        *("last_window_timestamp_seconds", "gauge", "End of the last window."),
        counters.window_wall_s,
    )
    yield _one(
        *("last_rollup_timestamp_seconds", "gauge", "When a rollup was last written."),
        counters.rollup_wall_s,
    )
    yield _one(
        *("resident_memory_bytes", "gauge", "Memory of tlstax with its recorder."),
        counters.resident_bytes,
    )
    yield _one(
        *("server_attachments", "counter"),
        *("Servers attached to: 1, and 1 for each restart followed.", counters.attached_count),
    )
    yield _one(
        *("rollup_failures", "counter"),
        *("Rollups that could not be written at the first attempt.", counters.failed_count),
    )
    yield _one(
        *("rollups_lost", "counter", "Rollups of an hour that were given up."),
        counters.lost_count,
    )
    yield _one(
        *("findings_lost", "counter", "Hours whose findings or stacks were lost."),
        counters.unexplained_count,
    )
    yield from _totals(counters)


def distributions(counters: Counters) -> Iterator[Distribution]:
    """The histograms."""
    sums = counters.sums
    handshakes = _counts(sums.phase_latency.get((0, WALL), {}))
    wall_ns = sum(numbers["wall_ns"] for numbers in sums.handshake.values())
    yield Distribution(
        *("handshake_duration_seconds", "Wall time of successful handshakes.", handshakes),
        wall_ns,
    )
    commands = _counts(sums.phase_latency.get((0, "command"), {}))
    command_ns = sum(count * 2 ** ((index + 0.5) / _STEPS) for index, count in commands.items())
    text = "Wall time of commands; the sum is that of the middles of finer buckets."
    yield Distribution("command_duration_seconds", text, commands, command_ns)


def below(counts: Mapping[int, int], power: int) -> int:
    """The count up to 2^power ns, inclusive: a bucket ends at 2^((index + 1) / 4) ns."""
    return sum(count for index, count in counts.items() if index < power * _STEPS)


def _one(name: str, kind: Literal["counter", "gauge"], text: str, value: float) -> Measure:
    return Measure(name, kind, text, (), (((), value),))


def _servers(counters: Counters) -> Iterator[tuple[tuple[str, ...], float]]:
    for server in counters.facts.targets:
        tls = library(server.tls_library, server.tls_version)
        values = (server.server, server.server_version, tls, server.build_id, counters.level)
        yield values, 1


def _totals(counters: Counters) -> Iterator[Measure]:
    sums = counters.sums
    whole: Mapping[str, int] = next(iter(sums.interval.values()), {})
    for name, text, column in (
        ("recorded_seconds", "Time recorded.", "recorded_ns"),
        ("ledger_observed_seconds", "Part of it in which the ledger was kept.",
         "ledger_observed_ns"),
        ("handshake_observed_seconds", "Part of it in which handshakes were recorded.",
         "handshake_observed_ns"),
        ("handshake_partial_seconds", "Part of that in which only their signatures were timed.",
         "partial_ns"),
        ("server_cpu_seconds", "CPU time of the server by its own clock.", "process_cpu_ns"),
        ("own_cpu_seconds", "CPU time of tlstax.", "engine_cpu_ns"),
        ("probe_overhead_seconds", "CPU time of the probes in the server, as calibrated.",
         "overhead_ns"),
    ):  # fmt: skip
        yield _one(name, "counter", text, whole.get(column, 0) / SECOND_NS)
    for name, text, column in (
        ("connections", "Connections that were set up.", "connection_count"),
        ("commands", "Commands that ended.", "command_count"),
    ):
        yield _one(name, "counter", text, whole.get(column, 0))
    yield _ledger(counters)
    handshakes = tuple(
        (tuple(map(str, kind)), float(numbers["handshake_count"]))
        for (_, *kind), numbers in sorted(sums.handshake.items())
    )
    yield Measure("handshakes", "counter", "Handshakes that ended.", _KIND, handshakes)
    losses = tuple(
        ((str(kind),), float(numbers["lost_count"]))
        for (_, kind), numbers in sorted(sums.loss.items())
    )
    yield Measure("losses", "counter", "Data lost or repaired.", ("kind",), losses)
    fired = tuple(
        ((kind.removeprefix("trigger-"),), float(count))
        for kind, count in sorted(counters.triggers.items())
    )
    text = "Changes that the watch noticed by itself."
    yield Measure("triggers", "counter", text, ("kind",), fired)


def _ledger(counters: Counters) -> Measure:
    times: dict[tuple[str, ...], int] = {}
    for (_, role, phase), numbers in counters.sums.ledger.items():
        for state in STATES:
            key = coarse_role(str(role)), str(phase), state
            times[key] = times.get(key, 0) + numbers.get(f"{state}_ns", 0)
    points = tuple((key, spent_ns / SECOND_NS) for key, spent_ns in sorted(times.items()))
    text = "Time of the server's threads by role, phase and state."
    return Measure("ledger_seconds", "counter", text, ("role", "phase", "state"), points)


def _counts(numbers: Mapping[str, int]) -> dict[int, int]:
    """Buckets of the data set: index and count."""
    return {int(name): count for name, count in numbers.items() if name != "ended_count"}
