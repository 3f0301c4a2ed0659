# SPDX-License-Identifier: GPL-2.0-only
"""What a stream tells of functions (`--functions`): costs of their probes, running totals."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tlstax.collectors.capture.vocabulary import PHASES
from tlstax.collectors.placement.model import MAX_FUNCTIONS, FunctionPlan
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.stream.frames import record, records

SIZE_CLASSES: Final = 33
LOSS_NAMES: Final = (  # enum function_loss of functions.h
    "function_map_full",
    "function_stack_overflow",
    "function_healed",
    "function_unmatched_exit",
    "function_storage_failed",
    "function_recursion_missed",
)


class PairCost(NamedTuple):
    """Nanoseconds for each call of a function with its probes."""

    inside_ns: float  # added to the function's own time; 0 where it is not timed
    pair_ns: float  # added to its caller's


class Calls(NamedTuple):
    """Running totals of one function in one phase and size class; see struct function_sum."""

    call_count: int
    size_bytes: int
    timed_count: int
    timed_bytes: int
    time_ns: int
    nested_ns: int
    traps_ns: int
    direct_traps_ns: int


SumKey = tuple[int, int, int]  # function, phase, size class
TimeKey = tuple[int, int, int]  # function, size class, bucket


class FunctionTotals:
    """All of it up to the last window."""

    def __init__(self) -> None:
        self.costs: dict[int, PairCost] = {}
        self.sums: dict[SumKey, Calls] = {}
        self.times: dict[TimeKey, int] = {}
        self.losses = dict.fromkeys(LOSS_NAMES, 0)
        self._count = MAX_FUNCTIONS - 1

    def limit(self, plan: FunctionPlan | None) -> None:
        """What the plan does not list cannot come. Raises ValueError for what did."""
        self._count = len(plan.functions) if plan else 0
        for function in (*self.costs, *(key[0] for key in (*self.sums, *self.times))):
            self._require(function)

    def takers(self) -> tuple[tuple[str, Callable[[bytes], None]], ...]:
        """What takes each kind of frame. They raise ValueError."""
        return (
            ("FUNCTION", self._take_costs),
            ("FUNCTION_SUM", self._take_sums),
            ("FUNCTION_TIME", self._take_times),
            ("FUNCTION_LOSS", self._take_losses),
        )

    def _take_costs(self, content: bytes) -> None:
        for entry in records("function", content):
            self._require(entry.function)
            self.costs[entry.function] = PairCost(float(entry.inside_ns), float(entry.pair_ns))

    def _take_sums(self, content: bytes) -> None:
        for entry in records("function_sum", content):
            self._require(entry.function, entry.size_class)
            if entry.phase >= len(PHASES):
                raise ValueError(f"phase {entry.phase} of a function")
            key = (entry.function, entry.phase, entry.size_class)
            self.sums[key] = Calls(*(getattr(entry.sum, name) for name in Calls._fields))

    def _take_times(self, content: bytes) -> None:
        for entry in records("function_time", content):
            self._require(entry.function, entry.size_class)
            if entry.bucket >= layout.LATENCY_BUCKETS:
                raise ValueError(f"bucket {entry.bucket} of a function")
            self.times[entry.function, entry.size_class, entry.bucket] = entry.count

    def _take_losses(self, content: bytes) -> None:
        told = record("function_loss", content).losses
        self.losses = dict(zip(LOSS_NAMES, told, strict=False))

    def _require(self, function: int, size_class: int = 0) -> None:
        if function >= self._count or size_class >= SIZE_CLASSES:
            raise ValueError(f"function {function}, size class {size_class}")


def size_bounds(size_class: int) -> tuple[int, int]:
    """[low, high] bytes of a size class, both inclusive; class 0 is no bytes at all."""
    return (0, 0) if size_class == 0 else (1 << size_class - 1, (1 << size_class) - 1)
