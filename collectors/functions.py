# SPDX-License-Identifier: GPL-2.0-only
"""The engine of `--functions`: load functions.bpf.o, calibrate, attach, read the running totals.

It runs beside the ledger's engine, whose maps tell the phase of a thread. As there, everything
hangs on file descriptors of this process.
"""

import ctypes
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors import bpf_syscall, function_calibration
from tlstax.collectors import function_layout as layout
from tlstax.collectors.function_calibration import Pair, PairCost
from tlstax.collectors.function_plan import MAX_FUNCTIONS, FunctionPlan
from tlstax.collectors.libbpf import BpfObject, LinkGroup
from tlstax.collectors.mappings import MappedObject, open_mapped
from tlstax.collectors.native import object_path

OBJECT_NAME: Final = "functions.bpf.o"
SWITCH: Final = "on_function_switch"
_PROGRAMS: Final = {"enter": "on_function_enter", "exit": "on_function_leave"}


class Attachment(NamedTuple):
    """A probe to attach."""

    event: str
    path: str
    offset_bytes: int
    cookie: int
    is_return: bool


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
        if self.multi:
            for program in _PROGRAMS.values():
                bpf.set_attach_type(program, bpf_syscall.BPF_TRACE_UPROBE_MULTI)
        for name, descriptor in ledger_maps.items():
            bpf.share(name, descriptor)
        if not ledger_maps:
            bpf.resize("slots", 1)
        bpf.load()
        for name, expected in (
            ("function_sums", ctypes.sizeof(layout.FunctionSum)),
            ("calls_of_task", ctypes.sizeof(layout.ThreadCalls)),
        ):
            if bpf.value_bytes(name) != expected:
                raise TlstaxError(
                    f"{OBJECT_NAME} does not fit this tlstax",
                    f"map {name} has values of {bpf.value_bytes(name)} bytes, not {expected}",
                    "rebuild it with `make bpf`",
                    ExitCode.HOST,
                )

    # ---- calibration ----

    def _calibrate(self) -> dict[Pair, PairCost]:
        """Measure each kind of pair that the plan has, and tell the programs."""
        kinds = {function_calibration.kind_of(probed) for probed in self.plan.functions}
        costs = {kind: self._measure(kind) for kind in sorted(kinds)}
        table = (layout.FunctionCost * MAX_FUNCTIONS)()
        for number, probed in enumerate(self.plan.functions):
            cost = costs[function_calibration.kind_of(probed)]
            table[number] = layout.FunctionCost(round(cost.pair_ns), round(cost.inside_ns))
        descriptor = self._object.map_fd_ending(".data.costs")
        bpf_syscall.map_update(descriptor, bytes(4), bytes(table))
        return costs

    def _measure(self, kind: Pair) -> PairCost:
        with function_calibration.own_function(kind) as (path, call, places):
            probes = [
                Attachment(
                    place.event,
                    path,
                    place.offset_bytes,
                    layout.calibration_cookie(bool(kind.exit_kind), place.stack_bytes),
                    place.is_return,
                )
                for place in places
            ]

            def attach() -> Callable[[], None]:
                self._attach_switch()
                self._attach(probes, function_calibration.own_pid())
                return self._links.close

            return function_calibration.measure(call, attach, self._reported)

    def _reported(self) -> tuple[int, int]:
        own = [calls for key, calls in self._raw_sums() if key[0] == layout.CALIBRATION]
        return sum(calls.timed_count for calls in own), sum(calls.time_ns for calls in own)

    # ---- attaching ----

    def attach(self) -> None:
        """Attach the scheduler's tracepoint, then the exits, then the entries."""
        files = {probed.object: self._open(probed.object) for probed in self.plan.functions}
        self._attach_switch()
        self._attach(
            [
                Attachment(
                    site.event,
                    files[probed.object],
                    site.file_offset,
                    layout.cookie(number, probed, site),
                    site.kind == "uretprobe",
                )
                for number, probed in enumerate(self.plan.functions)
                for site in probed.sites
            ],
            self.plan.pid,
        )

    def _open(self, mapped: MappedObject) -> str:
        """A path that leads to the mapped file for good: it is verified once and stays open."""
        descriptor = open_mapped(mapped)
        self._stack.callback(os.close, descriptor)
        return f"/proc/self/fd/{descriptor}"

    def _attach_switch(self) -> None:
        self._links.callback(self._object.attach(SWITCH).close)

    def _attach(self, probes: Iterable[Attachment], pid: int) -> None:
        groups: dict[tuple[str, bool, str], list[Attachment]] = defaultdict(list)
        for probe in probes:
            groups[probe.event, probe.is_return, probe.path].append(probe)
        # Exits first: an entry whose exit is not yet probed would look like a missed exit.
        for (event, is_return, path), group in sorted(
            groups.items(), key=lambda item: item[0][0] == "enter"
        ):
            try:
                self._attach_group(_PROGRAMS[event], path, group, pid, is_return)
            except OSError as error:
                raise TlstaxError(
                    f"cannot probe {path}",
                    error.strerror or str(error),
                    "run `tlstax doctor`, and check that the file is still the mapped one",
                    ExitCode.HOST,
                ) from error

    def _attach_group(
        self, program: str, path: str, group: list[Attachment], pid: int, is_return: bool
    ) -> None:
        if self.multi:
            offsets = [probe.offset_bytes for probe in group]
            cookies = [probe.cookie for probe in group]
            program_fd = self._object.program_fd(program)
            link = bpf_syscall.attach_uprobe_multi(
                program_fd, path, offsets, cookies, pid, is_return
            )
            self._links.callback(os.close, link)
            return
        for probe in group:
            attached = self._object.attach_uprobe(
                program, pid, path, probe.offset_bytes, probe.cookie, is_return
            )
            self._links.callback(attached.close)

    # ---- reading ----

    def _raw_sums(self) -> Iterable[tuple[SumKey, Calls]]:
        """Every sum of every shard."""
        for key, value in bpf_syscall.map_entries(
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
        for key, value in bpf_syscall.map_entries(
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
            raw = bpf_syscall.map_lookup(descriptor, index.to_bytes(4, "little"), 8)
            counts[kind] = int.from_bytes(raw or b"", "little")
        for program in _PROGRAMS.values():
            missed = bpf_syscall.program_recursion_misses(self._object.program_fd(program))
            counts["function_recursion_missed"] += missed
        return counts

    def close(self) -> None:
        """Detach and unload everything."""
        self._links.close()
        self._stack.close()
