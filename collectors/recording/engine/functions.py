# SPDX-License-Identifier: GPL-2.0-only
"""The engine of `--functions`: load functions.bpf.o, calibrate, attach, read the running totals.

It runs together with the ledger's engine, whose maps hold the phase of each thread. As there, the
kernel detaches everything when this process closes its file descriptors.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

from tlstax.collectors.placement.model import MAX_FUNCTIONS, FunctionPlan
from tlstax.collectors.recording.engine import function_calibration, loaded
from tlstax.collectors.recording.engine import function_layout as layout
from tlstax.collectors.recording.engine.function_calibration import Pair, PairCost
from tlstax.collectors.recording.engine.libbpf import BpfObject, LinkGroup, object_path
from tlstax.collectors.recording.engine.uprobe_links import (
    Attachment,
    File,
    ProbedFiles,
    UprobeAttacher,
)

OBJECT_NAME: Final = "functions.bpf.o"
SWITCH: Final = "on_function_switch"
_PROGRAMS: Final = ("on_function_enter", "on_function_leave")


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


class FunctionEngine:
    """Loaded and attached programs that count the primitives of one target."""

    def __init__(self, plan: FunctionPlan, multi: bool, ledger_maps: Mapping[str, int]) -> None:
        """Load and calibrate. `multi`: one uprobe_multi link takes all probes of a file.

        Without the ledger's maps every call is in the phase "unknown".
        Raises TlstaxError HOST when the kernel refuses the programs.
        """
        self.plan = plan
        self.multi = multi
        self._stack = ExitStack()
        self._links = LinkGroup()
        self._object = self._stack.enter_context(BpfObject(object_path(OBJECT_NAME)))
        self._uprobes = UprobeAttacher(self._object, *_PROGRAMS, multi=multi)
        try:
            self._load(ledger_maps)
            self.costs = self._calibrate()
        except BaseException:
            self.close()
            raise

    def _load(self, ledger_maps: Mapping[str, int]) -> None:
        bpf = self._object
        config = layout.FunctionConfig(self.plan.pid, function_calibration.own_pid())
        bpf.set_constants(".rodata.config", bytes(config))
        self._uprobes.prepare()
        for name, descriptor in ledger_maps.items():
            bpf.share(name, descriptor)
        if not ledger_maps:
            bpf.resize("slots", 1)
        bpf.load()
        bpf.require_value_bytes(
            function_sums=ctypes.sizeof(layout.FunctionSum),
            calls_of_task=ctypes.sizeof(layout.ThreadCalls),
        )

    # ---- calibration ----

    def _calibrate(self) -> dict[Pair, PairCost]:
        """Measure each kind of pair that the plan has, and pass the costs to the programs."""
        kinds = {function_calibration.kind_of(probed) for probed in self.plan.functions}
        costs = {kind: self._measure(kind) for kind in sorted(kinds)}
        table = (layout.FunctionCost * MAX_FUNCTIONS)()
        for number, probed in enumerate(self.plan.functions):
            cost = costs[function_calibration.kind_of(probed)]
            table[number] = layout.FunctionCost(round(cost.pair_ns), round(cost.inside_ns))
        descriptor = self._object.map_fd_ending(".data.costs")
        loaded.map_update(descriptor, bytes(4), bytes(table))
        return costs

    def _measure(self, kind: Pair) -> PairCost:
        with function_calibration.own_function(kind) as (path, call, places):
            probes = [
                Attachment(
                    place.event,
                    File(path, path),
                    place.offset_bytes,
                    layout.calibration_cookie(bool(kind.exit_kind), place.stack_bytes),
                    place.is_return,
                )
                for place in places
            ]

            def attach() -> Callable[[], None]:
                self._attach_switch()
                self._uprobes.attach(probes, function_calibration.own_pid(), self._links)
                return self._links.close

            return function_calibration.measure(call, attach, self._reported)

    def _reported(self) -> tuple[int, int]:
        own = [calls for key, calls in self._raw_sums() if key[0] == layout.CALIBRATION]
        return sum(calls.timed_count for calls in own), sum(calls.time_ns for calls in own)

    # ---- attaching ----

    def attach(self) -> None:
        """Attach the scheduler's tracepoint, then the exits, then the entries."""
        files = ProbedFiles(self._stack)
        probes = [
            Attachment(
                site.event,
                File(probed.object.path, files.path(probed.object)),
                site.file_offset,
                layout.cookie(number, probed, site),
                site.kind == "uretprobe",
            )
            for number, probed in enumerate(self.plan.functions)
            for site in probed.sites
        ]
        self._attach_switch()
        self._uprobes.attach(probes, self.plan.pid, self._links)

    def _attach_switch(self) -> None:
        self._links.callback(self._object.attach(SWITCH).close)

    # ---- reading ----

    def _raw_sums(self) -> Iterable[tuple[SumKey, Calls]]:
        """Every sum of every shard."""
        for key, value in loaded.map_entries(
            self._object.map_fd("function_sums"),
            ctypes.sizeof(layout.FunctionKey),
            ctypes.sizeof(layout.FunctionSum),
        ):
            found = layout.FunctionKey.from_buffer_copy(key)
            numbers = memoryview(value).cast("Q").tolist()
            yield (found.function, found.phase, found.size_class), Calls(*numbers)

    def sums(self) -> dict[SumKey, Calls]:
        """Totals since the start by function, phase and size class."""
        totals: dict[SumKey, Calls] = {}
        for key, calls in self._raw_sums():
            if key[0] != layout.CALIBRATION:
                before = totals.get(key)
                totals[key] = Calls(*map(sum, zip(before, calls, strict=True))) if before else calls
        return totals

    def times(self) -> dict[TimeKey, int]:
        """Calls since the start by function, size class and bucket of their time."""
        totals: dict[TimeKey, int] = {}
        for key, value in loaded.map_entries(
            self._object.map_fd("function_times"), ctypes.sizeof(layout.FunctionBucket), 8
        ):
            found = layout.FunctionBucket.from_buffer_copy(key)
            if found.function != layout.CALIBRATION:
                place = (found.function, found.size_class, found.bucket)
                totals[place] = int.from_bytes(value, "little")
        return totals

    def loss_counts(self) -> dict[str, int]:
        """What was lost since the start, by kind."""
        descriptor = self._object.map_fd("function_losses")
        counts = {}
        for index, kind in enumerate(layout.LOSS_NAMES):
            raw = loaded.map_lookup(descriptor, index.to_bytes(4, "little"), 8)
            counts[kind] = int.from_bytes(raw or b"", "little")
        for program in _PROGRAMS:
            missed = loaded.program_recursion_misses(self._object.program_fd(program))
            counts["function_recursion_missed"] += missed
        return counts

    def close(self) -> None:
        """Detach and unload everything."""
        self._links.close()
        self._stack.close()
