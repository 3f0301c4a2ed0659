# SPDX-License-Identifier: GPL-2.0-only
"""How much can be probed within a share of the server's CPU time: costs, choice, account.

A budget of 1 % is one hundredth of the CPU time that the server itself uses. The overhead is
counted, not estimated: hits of each probe times their cost on this host, the run time of the
programs at scheduler events and samples, and the CPU time of the collector. A short trial at the
full level measures the rates; from them `choose` takes the most detailed recording that fits:

- everything, all the time;
- else *dense* windows, in which everything is on, with *light* time between them, in which only
  rare probes and the sampler are on, or the sampler alone;
- else a lower level all the time; and when not even samples fit, an error.

During the recording, an `Account` is credited with the budget's share of the CPU time that the
server used and debited with the overhead. A dense window starts when the balance covers its
expected overhead, and ends early when it costs more. So the budget holds for any load, whatever the
trial measured: the overhead never exceeds the credit, the trial and the excess of one window.

Rates are kept per nanosecond of the server's CPU time, so that they hold when the load changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.probes.model import Level

NS_PER_S: Final = 1_000_000_000
FLOOR_CPUS: Final = 0.1
"""A server that uses less CPU is counted as using this much: a share of 0 would be 0."""
MARGIN: Final = 0.85
"""Plans use this much of the budget; the rest is for a load that rises between two checks."""
SPARE: Final = 0.7
"""Recording everything must cost this much less before a recording stops alternating."""
DENSE_NS: Final = (100_000_000, 50_000_000, 20_000_000)
"""Lengths of a dense window, best first."""
EASY_CYCLE_NS: Final = 10 * NS_PER_S
"""Dense windows become shorter rather than less frequent than one in this time."""
LONGEST_CYCLE_NS: Final = 30 * NS_PER_S
"""With a longer period than this, dense windows are not used."""
LONGEST_WINDOW_NS: Final = 10 * NS_PER_S
"""Windows may become this long, because storing one costs CPU time."""
LIGHT_SHARE: Final = 0.5
"""Light time may use this much of the budget; the rest is for dense windows."""
MOST_SAVED_NS: Final = 10 * NS_PER_S
"""The account holds at most the credit of this time: no long burst after a quiet night."""


@dataclass(frozen=True)
class Overhead:
    """Overhead of measuring: CPU time in ns, by cause."""

    probes_ns: float = 0.0
    scheduler_ns: float = 0.0
    samples_ns: float = 0.0
    collector_ns: float = 0.0

    @property
    def total_ns(self) -> float:
        """All of it."""
        return self.probes_ns + self.scheduler_ns + self.samples_ns + self.collector_ns

    def __add__(self, other: "Overhead") -> "Overhead":
        return Overhead(
            self.probes_ns + other.probes_ns,
            self.scheduler_ns + other.scheduler_ns,
            self.samples_ns + other.samples_ns,
            self.collector_ns + other.collector_ns,
        )

    def times(self, factor: float) -> "Overhead":
        """The same rate for another length of time."""
        return Overhead(
            self.probes_ns * factor,
            self.scheduler_ns * factor,
            self.samples_ns * factor,
            self.collector_ns * factor,
        )


@dataclass(frozen=True)
class Load:
    """The server's load and the overhead of measuring: from the trial, then from every window."""

    cpus: float
    """CPU time of the server per time."""
    probes: tuple[float, ...]
    """Cost of the probes of each level, by `Level`, in ns per ns of the server's CPU time."""
    scheduler: float
    """Cost of the programs at scheduler events, in ns per ns of the server's CPU time."""
    samples: float
    """Cost of the sampler, in ns per ns of wall time: it does not depend on the server's load."""
    cut_ns: float
    """CPU time of the collector to end a window and store it."""
    turn_ns: float
    """CPU time of the collector to attach and detach the probes that only dense windows have."""
    tail_ns: float = 0.0
    """How much longer than its window a dense window's probes stay on: detaching takes time."""
    watch: float = 0.0
    """CPU time of the collector between two windows, in ns per ns of time."""

    @property
    def base(self) -> float:
        """CPUs that the budget is a share of."""
        return max(self.cpus, FLOOR_CPUS)

    def running(self, level: Level | None) -> Overhead:
        """Overhead of a second, in ns, with everything up to a level on; None: nothing is on."""
        if level is None:
            return Overhead(collector_ns=self.watch * NS_PER_S)
        used_ns = self.cpus * NS_PER_S
        return Overhead(
            sum(self.probes[: level + 1]) * used_ns,
            self.scheduler * used_ns if has_ledger(level) else 0.0,
            self.samples * NS_PER_S,
            self.watch * NS_PER_S,
        )


@dataclass(frozen=True)
class Choice:
    """How to record."""

    dense: Level
    """What is on in a dense window, or all the time."""
    light: Level | None
    """What is on between dense windows; None: nothing."""
    dense_ns: int
    """Length of a dense window, or of a window where everything is on all the time."""
    cycle_ns: int
    """From one dense window to the next; `dense_ns` where everything is on all the time."""
    predicted: Overhead
    """Expected overhead of a second."""
    base: float
    """CPUs that the budget is a share of."""

    @property
    def is_continuous(self) -> bool:
        """Whether there is no light time between windows."""
        return self.cycle_ns <= self.dense_ns

    @property
    def share(self) -> float:
        """The expected cost as a share of the server's CPU time."""
        return self.predicted.total_ns / (self.base * NS_PER_S)


def has_ledger(level: Level) -> bool:
    """Whether a level keeps the ledger, which needs the scheduler's events.

    Below `flow`, a command cannot be distinguished from waiting for one, and time would be
    misfiled.
    """
    return level >= Level.FLOW


def choose(
    load: Load, share: float, most: Level, window_ns: int, alternates: bool = False
) -> Choice:
    """The most detailed recording for `share` of the server's CPU time, at most at level `most`.

    `window_ns` is the length of a window when recording does not alternate. A recording that
    `alternates` continues to until everything fits with a margin. Raises TlstaxError (BUDGET) when
    not even CPU samples fit.
    """
    limit_ns = share * MARGIN * load.base * NS_PER_S
    for length_ns in (window_ns, max(window_ns, LONGEST_WINDOW_NS)):
        choice = _continuous(load, most, length_ns)
        if choice.predicted.total_ns <= limit_ns * (SPARE if alternates else 1.0):
            return choice
    for light in _lights(load, most, limit_ns):
        if (found := _alternating(load, most, light, limit_ns)) is not None:
            return found
    # The programs of a plan tell commands either by sockets or by probes.
    lower = (level for level in Level if level < most and level != Level.FLOW)
    for level in sorted(lower, reverse=True):
        choice = _continuous(load, level, max(window_ns, LONGEST_WINDOW_NS))
        if choice.predicted.total_ns <= limit_ns:
            return choice
    raise refusal(load, share)


def _continuous(load: Load, level: Level, window_ns: int) -> Choice:
    spent = load.running(level) + Overhead(collector_ns=load.cut_ns * NS_PER_S / window_ns)
    return Choice(level, None, window_ns, window_ns, spent, load.base)


def _lights(load: Load, most: Level, limit_ns: float) -> Sequence[Level | None]:
    """What can be on in light time, the most detailed first."""
    levels = [level for level in (Level.HANDSHAKE, Level.SAMPLE) if level < most]
    fitting = [level for level in levels if load.running(level).total_ns <= LIGHT_SHARE * limit_ns]
    return [*fitting, None]


def _alternating(load: Load, dense: Level, light: Level | None, limit_ns: float) -> Choice | None:
    """Dense windows with light time; None when they would be too far apart."""
    left_ns = limit_ns - load.running(light).total_ns
    for dense_ns in DENSE_NS:
        one = window_cost(load, dense, light, dense_ns)
        if left_ns <= 0:
            return None
        cycle_ns = max(dense_ns, int(one.total_ns / left_ns * NS_PER_S) + 1)
        rarest_ns = EASY_CYCLE_NS
        if dense_ns == DENSE_NS[-1] and light is not None:
            rarest_ns = LONGEST_CYCLE_NS
        if cycle_ns <= rarest_ns:
            predicted = load.running(light) + one.times(NS_PER_S / cycle_ns)
            return Choice(dense, light, dense_ns, cycle_ns, predicted, load.base)
    return None


def window_cost(load: Load, dense: Level, light: Level | None, dense_ns: int) -> Overhead:
    """Overhead that a dense window adds to light time: its events, two cuts, attach, detach."""
    more = load.running(dense) + load.running(light).times(-1)
    on_ns = dense_ns + load.tail_ns
    return more.times(on_ns / NS_PER_S) + Overhead(collector_ns=2 * load.cut_ns + load.turn_ns)


def refusal(load: Load, share: float) -> TlstaxError:
    """Why nothing can be recorded within this budget, and the budget that suffices."""
    least = _continuous(load, Level.SAMPLE, LONGEST_WINDOW_NS).predicted
    base_ns = load.base * NS_PER_S
    needed = least.total_ns / (base_ns * MARGIN)
    used = f"{load.cpus:.2f} CPUs"
    if load.cpus < FLOOR_CPUS:
        used += f" (counted as {FLOOR_CPUS})"
    return TlstaxError(
        f"nothing can be recorded for {percent(share)} of the server's CPU time",
        f"the server uses {used}, so the budget is {share * base_ns / 1e6:.2f} ms a second, and "
        f"CPU samples alone would cost {least.samples_ns / 1e6:.2f} ms and the collector "
        f"{least.collector_ns / 1e6:.2f} ms",
        f"Allow --budget {percent(needed, up=True)}, or take fewer samples (--sample-hz)",
        ExitCode.BUDGET,
    )


def percent(share: float, up: bool = False) -> str:
    """A share as `--budget` takes it, such as 0.5%; rounded up on demand."""
    tenths = share * 1000
    whole = int(tenths) + (1 if up and tenths > int(tenths) else 0) if up else round(tenths)
    return f"{whole / 10:g}%"


class Account:
    """Credit (the budget's share of CPU time used so far) and overhead."""

    def __init__(self, share: float) -> None:
        """Empty; `share` of the server's CPU time becomes credit."""
        self.share = share
        self.balance_ns = 0.0
        self.spent = Overhead()
        self.earned_ns = 0.0
        self.server_cpu_ns = 0

    def settle(self, span_ns: int, server_cpu_ns: int, spent: Overhead) -> None:
        """Credit the account for a span of time, and debit its overhead."""
        income_ns = self.share * max(server_cpu_ns, FLOOR_CPUS * span_ns)
        self.earned_ns += income_ns
        self.server_cpu_ns += server_cpu_ns
        self.spent += spent
        most_ns = income_ns / span_ns * MOST_SAVED_NS if span_ns > 0 else self.balance_ns
        self.balance_ns = min(self.balance_ns + income_ns - spent.total_ns, max(0.0, most_ns))

    @property
    def spent_share(self) -> float | None:
        """Overhead as a share of the server's CPU time; None before it used any."""
        return self.spent.total_ns / self.server_cpu_ns if self.server_cpu_ns else None


def with_rates(
    load: Load, level: Level, cpu_ns: int, span_ns: int, seen: Sequence[float], weight: float = 1.0
) -> Load:
    """The load updated by one window; `seen`: cost of each level's probes and of the scheduler's.

    What was not on, or a window in which the server was idle, keeps the older rates. The others
    are averaged with this weight for the new rate, because a short window is a small sample.
    """
    if span_ns <= 0:
        return load
    updated = replace(load, cpus=cpu_ns / span_ns)
    if cpu_ns <= 0:
        return updated

    def blend(old: float, cost_ns: float) -> float:
        return old + weight * (cost_ns / cpu_ns - old)

    probes = [
        blend(load.probes[each], seen[each]) if each <= level else load.probes[each]
        for each in Level
    ]
    scheduler = load.scheduler
    if has_ledger(level):
        scheduler = blend(scheduler, seen[len(Level)])
    return replace(updated, probes=tuple(probes), scheduler=scheduler)
