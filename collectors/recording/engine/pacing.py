# SPDX-License-Identifier: GPL-2.0-only
"""Decides when to record densely: a budget, used window by window.

Pure decisions: the recorder passes the length and overhead of each window and asks for the next
step. A dense window starts when the account covers it. The length of the light time before it
varies by a fifth, so that dense windows do not synchronise with periodic work in the server. A
window that costs more than allowed is ended early (`overspends`), whatever was expected.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.recording.engine.budget import (
    FLOOR_CPUS,
    NS_PER_S,
    Account,
    Choice,
    Load,
    choose,
    percent,
    window_cost,
    with_rates,
)
from tlstax.collectors.recording.engine.metering import SpanOverhead
from tlstax.probes.model import Level

TRIAL_NS: Final = 200_000_000
_WATCH_NS: Final = 2 * NS_PER_S
"""How often light time is checked: on a busy host, with cold caches, a check takes 1 ms."""
_WATCHES: Final = 2
"""How often a dense window is checked."""
_LONGEST_LIGHT_NS: Final = 10 * NS_PER_S
_SHORTEST_LIGHT_NS: Final = NS_PER_S // 2
_JITTER: Final = 0.2
_SURPRISE: Final = 1.5
"""A dense window ends when it costs this many times what was expected."""
_SLACK_NS: Final = NS_PER_S // 2
"""A recording that does not alternate may be in debt by the credit of this time."""
_NEW: Final = 0.3
"""The weight of a window's rates against those of the windows before it."""
_FALLING: Final = 0.3
"""How much of a window's collector time goes into the running mean."""


@dataclass(frozen=True)
class Step:
    """What the recorder does next."""

    level: Level | None
    """What is on; None: nothing."""
    length_ns: int
    watch_ns: int
    """How often to check whether it overspends."""


class Pace:
    """The windows of a recording under a budget."""

    def __init__(self, share: float, most: Level, window_ns: int, seed: int = 0) -> None:
        """At most level `most`, for `share` of the server's CPU time."""
        self.most = most
        self.window_ns = window_ns
        self.account = Account(share)
        self._jitter = random.Random(seed)
        self._load: Load | None = None
        self.choice: Choice | None = None
        self._step = Step(most, TRIAL_NS, TRIAL_NS)
        self._allowance_ns = float("inf")
        self._rests = 0  # light windows since the last dense one

    def begin(self, load: Load, trial: SpanOverhead) -> Choice:
        """Choose by the trial, whose overhead is the first debt; TlstaxError when nothing fits."""
        self._load = load
        self.choice = choose(load, self.account.share, self.most, self.window_ns)
        self._settle(trial)
        return self.choice

    @property
    def level(self) -> Level | None:
        """What is on."""
        return self._step.level

    def _settle(self, overhead: SpanOverhead) -> None:
        self.account.settle(overhead.span_ns, overhead.target_cpu_ns, overhead.spent)

    def ended(
        self, overhead: SpanOverhead, cut_ns: float, turn_ns: float | None, watch: float
    ) -> Step:
        """Account for a window that ended, update the rates, and return the next step."""
        load = self._require_load()
        self._settle(overhead)
        level = self._step.level
        if level is not None:
            seen = (*overhead.by_level_ns, overhead.spent.scheduler_ns)
            load = with_rates(load, level, overhead.target_cpu_ns, overhead.span_ns, seen, _NEW)
        else:
            load = replace(load, cpus=overhead.target_cpu_ns / max(1, overhead.span_ns))
        load = replace(load, cut_ns=_mean(load.cut_ns, cut_ns))
        if overhead.span_ns >= _WATCH_NS:  # shorter ones are checked more often
            load = replace(load, watch=_mean(load.watch, watch))
        if turn_ns is not None:
            load = replace(load, turn_ns=_mean(load.turn_ns, turn_ns))
        self._load = load
        alternates = self.choice is None or not self.choice.is_continuous
        try:
            self.choice = choose(load, self.account.share, self.most, self.window_ns, alternates)
        except TlstaxError:
            self.choice = None  # the load has changed: nothing is on until it fits again
        self._step = self._next(load, self.choice)
        return self._step

    def first(self) -> Step:
        """What follows the trial."""
        self._step = self._next(self._require_load(), self.choice, after_dense=True)
        return self._step

    def _next(self, load: Load, choice: Choice | None, after_dense: bool | None = None) -> Step:
        was_dense = self._step.level == self.most if after_dense is None else after_dense
        if choice is None:
            return self._rest(None, _LONGEST_LIGHT_NS)
        income = self.account.share * load.base  # ns per ns
        if choice.is_continuous:
            behind_ns = -self.account.balance_ns
            if behind_ns <= income * _SLACK_NS:
                return self._dense(choice, float("inf"))
            lower = _below(choice.dense)
            return self._rest(lower, int(self._wait_ns(load, lower, behind_ns)))
        one_ns = window_cost(load, choice.dense, choice.light, choice.dense_ns).total_ns
        lacking_ns = one_ns - self.account.balance_ns
        if lacking_ns <= 0 and not was_dense:
            return self._dense(choice, _SURPRISE * one_ns)
        wait_ns = self._wait_ns(load, choice.light, lacking_ns)
        if was_dense:
            wait_ns = max(wait_ns, choice.cycle_ns - choice.dense_ns)
            wait_ns *= 1 + self._jitter.uniform(-_JITTER, _JITTER)
        return self._rest(choice.light, int(wait_ns))

    def _wait_ns(self, load: Load, level: Level | None, lacking_ns: float) -> float:
        """How long until the account holds the missing credit, with `level` on."""
        earned = self.account.share * load.base - load.running(level).total_ns / NS_PER_S
        lacking_ns += load.cut_ns  # of the light window itself
        wait_ns = lacking_ns / earned if earned > 0 else float(_LONGEST_LIGHT_NS)
        # Each light window has overhead, too: the longer it takes, the fewer there should be.
        return max(wait_ns, _SHORTEST_LIGHT_NS * 2.0 ** min(self._rests, 6))

    def _dense(self, choice: Choice, allowance_ns: float) -> Step:
        self._allowance_ns = allowance_ns
        self._rests = 0
        watch_ns = _WATCH_NS if choice.is_continuous else choice.dense_ns // _WATCHES
        return Step(choice.dense, choice.dense_ns, watch_ns)

    def _rest(self, level: Level | None, length_ns: int) -> Step:
        self._allowance_ns = float("inf")
        self._rests += 1
        length_ns = min(max(length_ns, _SHORTEST_LIGHT_NS), _LONGEST_LIGHT_NS)
        return Step(level, length_ns, _WATCH_NS if level is not None else length_ns)

    def overspends(self, overhead: SpanOverhead) -> bool:
        """Whether the current window must end now, given its overhead so far."""
        load = self._require_load()
        spent_ns = overhead.spent.total_ns
        if self.level is None:
            return False  # there is nothing to drop
        if spent_ns > self._allowance_ns:
            return True
        if self._allowance_ns != float("inf"):
            return False
        base_ns = max(overhead.target_cpu_ns, FLOOR_CPUS * overhead.span_ns)
        earned_ns = self.account.share * base_ns
        if self.choice is not None and self.choice.is_continuous and self.level == self.most:
            slack_ns = self.account.share * load.base * _SLACK_NS
            return spent_ns - earned_ns > max(0.0, self.account.balance_ns) + slack_ns
        # Light time must leave something over for the next dense window.
        return spent_ns > max(earned_ns, self.account.share * FLOOR_CPUS * NS_PER_S)

    def _require_load(self) -> Load:
        assert self._load is not None, "begin() comes first"
        return self._load

    def summary(self) -> str:
        """How the budget is used, as a sentence."""
        choice = self.choice
        budget = f"Budget {percent(self.account.share)} of the server's CPU time"
        if choice is None:
            return f"{budget}: paused: the current load exceeds the budget."
        what = _WORDS[choice.dense]
        if choice.is_continuous:
            return f"{budget}: {what}, all the time; expected cost {choice.share:.2%}."
        per_second = choice.dense_ns / choice.cycle_ns * 1000
        return (
            f"{budget}: {what}, in windows of {choice.dense_ns // 1_000_000} ms, about "
            f"{per_second:.0f} of 1,000 ms; in between {_WORDS[choice.light]}; expected cost "
            f"{choice.share:.2%}."
        )


_WORDS: Final = {
    None: "nothing",
    Level.SAMPLE: "CPU samples only",
    Level.HANDSHAKE: "handshakes and CPU samples",
    Level.FLOW: "handshakes, waits and commands",
    Level.COMMAND: "handshakes and commands",
    Level.RECORD: "everything",
}


def _below(level: Level) -> Level | None:
    """What is on while a recording at this level pauses."""
    if level > Level.HANDSHAKE:
        return Level.HANDSHAKE
    return Level.SAMPLE if level == Level.HANDSHAKE else None


def _mean(old: float, new: float) -> float:
    return new if not old else old + _FALLING * (new - old)
