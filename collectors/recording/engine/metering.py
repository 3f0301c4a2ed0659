# SPDX-License-Identifier: GPL-2.0-only
"""Overhead during a recording: hits, run times and clocks, converted to CPU time.

A probe hit costs its trap, calibrated on this host, and its program, timed by the kernel in the
measured server. A calibration runs in a loop whose caches are warm; in a server a trap costs more,
which `prices.in_server_ns` allows for. The cost of scheduler events and samples is the run time of
their programs. The kernel counts run time only while its statistics are on, which also costs CPU
time: they are on until the first busy window and again after thirty. In between the last rates, per
CPU time of the server, remain in use. (The recorder in C does the same: metering.c.)
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.prices import in_server_ns
from tlstax.collectors.placement.model import Site
from tlstax.collectors.recording.engine.expected_cost import FLOOR_CPUS
from tlstax.collectors.recording.engine.loaded import enable_statistics
from tlstax.collectors.recording.engine.native import DENSE_TRACEPOINTS, Engine
from tlstax.collectors.recording.engine.sampler import SAMPLER
from tlstax.probes.model import Level

_PROBES: Final = ("on_enter", "on_leave")


@dataclass(frozen=True)
class Reading:
    """The counters at an instant."""

    time_ns: int
    target_cpu_ns: int
    hits: tuple[int, ...]
    programs: dict[str, tuple[int, int]]
    is_timed: bool
    """Whether the kernel is timing the programs."""


@dataclass(frozen=True)
class Overhead:
    """Overhead of a span of time: CPU time by cause."""

    span_ns: int
    target_cpu_ns: int
    probes_ns: float
    scheduler_ns: float
    samples_ns: float


class Meter:
    """Reads an engine's counters and multiplies their differences by costs."""

    def __init__(self, engine: Engine, sites: Sequence[Site]) -> None:
        self._engine = engine
        self._sites = sites
        self._cpus = os.cpu_count() or 1
        self._clock = (~engine.pid << 3) | 2  # CPUCLOCK_SCHED of a process (clock_getcpuclockid(3))
        self._statistics: int | None = None
        self._programs: dict[str, tuple[int, int]] = {}
        self._body_ns = dict.fromkeys(_PROBES, 0.0)
        self._scheduler = 0.0  # ns per ns of the target's CPU time
        self._is_of_load = False  # that rate was measured while the target was not idle
        self.saw_load = False
        """Whether the kernel timed the programs while the target was not idle."""
        self._tick_ns: float | None = None  # of one tick: those of idle CPUs run no program
        self.prices_are_known = engine.plan.host_costs.measured  # else measured on another machine

    def statistics(self, on: bool) -> None:
        """Make the kernel time the programs, or stop it; no effect where the kernel cannot."""
        if on and self._statistics is None:
            try:
                self._statistics = enable_statistics()
            except OSError:
                return
        elif not on and self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None
            self._programs = self._engine.program_times()

    def close(self) -> None:
        """Statistics off."""
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None

    def read(self) -> Reading:
        """The counters now."""
        if self._statistics is not None or not self._programs:
            self._programs = self._engine.program_times()  # they do not change otherwise
        return Reading(
            monotonic_ns(),
            self._target_cpu_ns(),
            tuple(self._engine.site_hits()),
            self._programs,
            self._statistics is not None,
        )

    def _target_cpu_ns(self) -> int:
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError:  # the target has ended
            return 0

    def overhead(self, before: Reading, after: Reading, level: Level, samples: int) -> Overhead:
        """Overhead between two readings; `samples` is the rate of the sampler, in Hz."""
        span_ns = after.time_ns - before.time_ns
        cpu_ns = max(0, after.target_cpu_ns - before.target_cpu_ns)
        timed = {
            name: (after.programs[name][0] - ns, after.programs[name][1] - runs)
            for name, (ns, runs) in before.programs.items()
        }
        ticks = samples * self._cpus * span_ns / 1e9
        self._learn(timed, cpu_ns, FLOOR_CPUS * span_ns, after.is_timed)
        run_ns, runs = timed[SAMPLER]
        if runs and ticks:
            self._tick_ns = run_ns / ticks
        hits = (now - earlier for earlier, now in zip(before.hits, after.hits, strict=True))
        probes_ns = sum(count * self._price(number) for number, count in enumerate(hits) if count)
        scheduler_ns = float(sum(timed[name][0] for name in self._engine.tracepoints))
        if not after.is_timed and level >= Level.FLOW:
            scheduler_ns = self._scheduler * cpu_ns
        samples_ns = ticks * (self._tick_ns or 0.0)
        return Overhead(span_ns, cpu_ns, probes_ns, scheduler_ns, samples_ns)

    def _price(self, number: int) -> float:
        program = _PROBES[0 if self._sites[number].event == "enter" else 1]
        return in_server_ns(self._sites[number].cost_ns, self._body_ns[program])

    def _learn(
        self, timed: dict[str, tuple[int, int]], cpu_ns: int, floor_ns: float, is_timed: bool
    ) -> None:
        """Keep the rates of a span in which the kernel timed the programs.

        The programs also run at events of other processes. Their cost while the target is almost
        idle does not predict that of its busy time, so a rate needs some CPU time of the target.
        """
        for name in _PROBES:
            run_ns, runs = timed[name]
            if runs:
                self._body_ns[name] = run_ns / runs
        switches = sum(timed[name][1] for name in DENSE_TRACEPOINTS)
        if switches and is_timed and (cpu_ns >= floor_ns or not self._is_of_load):
            programs = self._engine.tracepoints
            self._scheduler = sum(timed[name][0] for name in programs) / max(cpu_ns, floor_ns)
            self.saw_load = self._is_of_load = cpu_ns >= floor_ns
