# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of one group of windows, each with its bounds: what the rules of findings look at.

A metric is the median over rounds, or over blocks of windows, of a ratio of sums. Its bounds are
the interval of that median, or the range of few units: a cause that occurs in half of them is not
certain.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.classify.wait_causes import OTHER, WaitTimes, scaled
from tlstax.analysis.findings import signature_series, socket_series, throughout, work_series
from tlstax.analysis.findings.flow_commands import Windows
from tlstax.analysis.rows import ledger, window_units
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import medians, shares
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.statistics.units import LEAST_RANGE, Floats, Units, unit_weights
from tlstax.collectors.capture.schema import Window
from tlstax.collectors.capture.vocabulary import (
    CONNECTION_ROLES,
    HANDSHAKE_PHASES,
    LEDGER_LEVELS,
)

RECORD_PHASES: Final = ("record_read", "record_write")
CONNECTING_PHASES: Final = (*HANDSHAKE_PHASES, "connect", "disconnect")
CHECKING_PHASES: Final = ("verify", "certificate")
"""What is done in a handshake for a client that has a certificate."""
SAVED_PHASES: Final = ("sign", "verify", "certificate")
"""What a resumed handshake does not do. TLS 1.3 still makes and combines ephemeral keys."""
RECORD_CRYPTO: Final = ("cipher", "digest", "record_crypto")
LEAST_BUSY: Final = 0.1
"""Least number of CPUs that shares of a server's CPU time refer to: lower values are noise."""


@dataclass(frozen=True)
class Metric:
    """A number with its interval, or a text."""

    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    unit_count: int | None = None
    """Units behind the bounds; None if they are not by units."""
    at_least: bool = False
    """It contains what was not over: a lower bound."""

    @property
    def is_bounded(self) -> bool:
        """Whether there are bounds that a rule may rest on."""
        few = self.unit_count is not None and self.unit_count < LEAST_RANGE
        return self.low is not None and self.high is not None and not few


def exact(value: float) -> Metric:
    """A number without an interval of its own: a count, or a sum over many operations."""
    return Metric(float(value), float(value), float(value))


Metrics = dict[str, Metric]
Series = dict[str, Floats]
"""Sums by name and unit."""


def seen_windows(part: Group, windows: Iterable[Window]) -> list[Window]:
    """The windows of a group in which the ledger was kept, in order."""
    mine = (w for w in windows if w.window_id in part.window_ids and w.level in LEDGER_LEVELS)
    return sorted(mine, key=lambda window: window.start_ns)


class Blocks:
    """Sums by unit, and ratios of them with bounds."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.count = units.count
        self._series: dict[str, list[float]] = {}  # adding to one element of an array is slow
        self._weights = unit_weights(units.count)
        self._sums: Series = {}
        self.longest_ns: dict[str, int] = {}
        """What the longest command that was not over lasted at least, by its state."""

    def add(self, name: str, block: int, value: float) -> None:
        """Add to a sum."""
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = [0.0] * self.count
        series[block] += value

    def sums(self, *names: str) -> Floats:
        """The sum of these series: of all units, then of each."""
        total = np.zeros(len(self._weights))
        for name in names:
            if name in self._series:
                if name not in self._sums:
                    self._sums[name] = self._weights @ np.array(self._series[name])
                total = total + self._sums[name]
        return total

    def matching(self, wanted: Callable[[str, str], bool]) -> tuple[str, ...]:
        """The names of the ledger's series whose (phase, state) is wanted."""
        return tuple(
            name
            for name in self._series
            if name.startswith("time:") and wanted(*name.removeprefix("time:").split("/"))
        )

    def metric(self, values: Floats) -> Metric:
        """The median of the units with its bounds."""
        if not np.isfinite(values[0]):
            return Metric(None)
        return _metric(medians.estimate(values, self.units))

    def share(self, hits: str, *others: str) -> Metric:
        """The share of one series among several, which are counts of single things."""
        mine = np.array(self._series.get(hits, [0.0] * self.count))
        rest = [np.array(self._series[name]) for name in others if name in self._series]
        return counted(mine, np.sum([mine, *rest], axis=0), self.units)


def _metric(found: Estimate) -> Metric:
    return Metric(found.value, found.low, found.high, unit_count=found.unit_count)


def ratio(above: Floats, below: Floats) -> Floats:
    """A ratio, NaN where there is nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def handshakes_of(blocks: Blocks) -> Floats:
    """Handshakes whose time is in the ledger: those that ended, and those that were given up."""
    return blocks.sums("ended:handshake", "dense:abandoned")


def connections_of(blocks: Blocks) -> Floats:
    """Connections that began, with and without a handshake."""
    return np.maximum(blocks.sums("ended:connect"), handshakes_of(blocks))


def fill(
    part: Group,
    tables: Tables,
    windows: Windows,
    waits: Mapping[int, WaitTimes],
) -> Blocks:
    """All sums of a group by block."""
    of = window_units.of_group(part, seen_windows(part, tables.windows))
    block_of = of.unit_of
    blocks = Blocks(of.units)
    background = background_tde(tables)
    for window_id, block in block_of.items():
        totals = dict(windows.sums.get(window_id, {}))
        for key, time_ns in background.get(window_id, {}).items():
            totals[key] -= time_ns
        for (phase, state), time_ns in ledger.served(totals).items():
            blocks.add(f"time:{phase}/{state}", block, time_ns)
        mine = waits.get(window_id, {})
        for (state, kind), wait_ns in scaled(mine, ledger.served(totals)).items():
            blocks.add(f"wait:{kind}", block, wait_ns)
            if state == "blocked_lock" and kind != OTHER:
                blocks.add("locked:named", block, wait_ns)
        for phase in ("connect", "handshake"):
            network = {key: ns for key, ns in mine.items() if key[:2] == (phase, "blocked_network")}
            for (_, kind), wait_ns in scaled(network, ledger.served(totals)).items():
                blocks.add(f"{phase}:{kind}", block, wait_ns)
        mine_counts = windows.counts.get(window_id, {})
        _add_samples(blocks, block, mine_counts, totals)
        done = windows.works.get(window_id, {})
        work_series.add_work(blocks.add, block, done, mine_counts, totals)
    for row in tables.phase_counts:
        if row.window_id in block_of:
            blocks.add(f"ended:{row.phase}", block_of[row.window_id], row.ended_count)
    work_series.add_births(blocks.add, block_of, tables)
    work_series.add_replica(blocks.add, block_of, tables)
    work_series.add_feeding(blocks.add, block_of, tables)
    _add_functions(blocks, block_of, tables)
    _add_handshakes(blocks, block_of, tables)
    everywhere = throughout.blocks_of(part, tables.windows, block_of)
    signature_series.add_exact_handshakes(blocks.add, everywhere, block_of, tables)
    throughout.add_timers(blocks.add, everywhere, tables)
    throughout.add_outcomes(blocks.add, everywhere, tables)
    throughout.add_host(blocks.add, everywhere, tables)
    throughout.add_stolen(blocks.add, block_of, tables)
    work_series.add_all_samples(blocks.add, everywhere, windows.counts, windows.works)
    socket_series.add_sockets(blocks.add, everywhere, block_of, tables)
    throughout.add_counters(blocks.add, block_of, part, tables)
    throughout.add_row_locks(blocks.add, block_of, part, tables)
    _add_cost(blocks, block_of, tables)
    for wait in tables.unfinished:
        if (at := block_of.get(wait.window_id)) is None:
            continue
        blocks.add("unfinished", at, 0 if wait.is_same else 1)
        blocks.add(f"unfinished:{wait.state}", at, wait.least_ns)
        blocks.longest_ns[wait.state] = max(wait.least_ns, blocks.longest_ns.get(wait.state, 0))
    return blocks


def background_tde(tables: Tables) -> dict[int, Totals]:
    """Time by window in which threads other than those of connections en- or decrypted pages.

    A page cleaner encrypts what it writes: no query waits for that.
    """
    serving = {row.thread_id for row in tables.threads if row.role in CONNECTION_ROLES}
    named = {row.thread_id for row in tables.threads}
    found: dict[int, Totals] = defaultdict(lambda: defaultdict(int))
    for row in tables.ledger:
        if row.phase == "tde" and row.thread_id in named - serving:
            found[row.window_id][row.phase, row.state] += row.time_ns
    return found


def _add_samples(blocks: Blocks, block: int, counts: Counts, totals: Totals) -> None:
    """Samples, by category and by whether they were taken in a record phase or a handshake."""
    per_phase: dict[str, int] = defaultdict(int)
    for (phase, _), count in counts.items():
        per_phase[phase] += count
    on_cpu = ledger.on_cpu(ledger.served(totals))
    for (phase, category), count in counts.items():
        if not on_cpu.get(phase):
            continue
        place = "record" if phase in RECORD_PHASES else "elsewhere"
        time_ns = on_cpu[phase] * count / per_phase[phase]
        blocks.add(f"cpu:{place}/{category}", block, time_ns)
        if phase in HANDSHAKE_PHASES:
            blocks.add(f"cpu:handshake/{category}", block, time_ns)
        blocks.add("samples", block, count)


def _add_handshakes(blocks: Blocks, block_of: Mapping[int, int], tables: Tables) -> None:
    for row in tables.handshakes:
        block = block_of.get(row.window_id)
        if block is None:
            continue
        if row.outcome != "success":
            blocks.add(f"dense:{row.outcome}", block, 1)
            continue
        blocks.add({0: "full", 1: "resumed"}.get(row.resumed or 0, "unknown"), block, 1)
        if row.resumed is None:
            blocks.add("unknown", block, 1)
            blocks.add("full", block, -1)


def _add_cost(blocks: Blocks, block_of: Mapping[int, int], tables: Tables) -> None:
    """The overhead."""
    for effect in tables.effects:
        block = block_of.get(effect.window_id)
        if block is not None and effect.target_cpu_ns:
            blocks.add("cost:target", block, effect.target_cpu_ns)
            for name in ("probe_ns", "scheduler_ns", "sample_ns"):
                blocks.add(f"cost:{name}", block, getattr(effect, name) or 0)


def _add_functions(blocks: Blocks, block_of: Mapping[int, int], tables: Tables) -> None:
    """The cost of the probes of --functions: calls times their calibrated cost."""
    prices = {row.primitive_id: row.pair_ns for row in tables.primitives}
    for row in tables.primitive_calls:
        if row.window_id in block_of:
            cost_ns = row.call_count * prices.get(row.primitive_id, 0.0)
            blocks.add("cost:function_ns", block_of[row.window_id], cost_ns)
    for window in tables.windows:
        if window.window_id in block_of:
            floor_ns = LEAST_BUSY * (window.end_ns - window.start_ns)
            blocks.add("cost:floor", block_of[window.window_id], floor_ns)


def last_text(rows: Tables, name: str) -> str:
    """The last value of a status variable, or ''."""
    values = [row.value for row in rows.status if row.name == name]
    return values[-1] if values else ""


def counted(hits: Floats, totals: Floats, units: Units) -> Metric:
    """A share of counted things, by unit."""
    return _metric(shares.share(hits, totals, units)) if totals.sum() > 0 else Metric(None)


def names_of(values: Iterable[str], unknown: str = "unknown") -> str:
    """Distinct names in order of frequency, without the unknown one."""
    counts: dict[str, int] = defaultdict(int)
    for value in values:
        if value != unknown:
            counts[value] += 1
    return ", ".join(sorted(counts, key=lambda name: (-counts[name], name)))
