# SPDX-License-Identifier: GPL-2.0-only
"""The totals that a stream holds, window by window: each frame is added to what is known."""

import ctypes
from collections.abc import Callable
from typing import Any, Final

from tlstax.collectors.capture.syscalls_arm64 import number_of_x86
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.views import CpuReading
from tlstax.collectors.recording.stream.account_totals import AccountTotals, require_cell
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import (
    Frame,
    Reading,
    Source,
    counted,
    read_frames,
    record,
    records,
)
from tlstax.collectors.recording.stream.function_totals import FunctionTotals
from tlstax.collectors.recording.stream.plan_file import PlanFile, read_plan_file
from tlstax.collectors.recording.stream.prices import budget_of, require_levels, whole_price_of

_NUMBERS: Final = definition()
_KEPT: Final = ("HIT_PRICE", "ERROR", "END")  # the last of each
STACKS_MOST: Final = 1 << 17
"""More than the programs refer to: they send a stack again after at most 32768 others."""
CPUS_MOST: Final = 1 << 16
"""More than Linux supports."""
_HANDSHAKE_BYTES: Final = ctypes.sizeof(layout.HandshakeRecord)


class StreamError(Exception):
    """A stream without what every recording begins with, or with what no recorder writes."""


def _made_up(error: Exception) -> StreamError:
    return StreamError(f"it holds what no recorder writes ({error})")


class Totals:
    """The totals of one stream; `next_window` goes on to those of the next window."""

    def __init__(
        self, stream: Source, hear: Callable[[Frame], None] | None = None, target: int = 0
    ) -> None:
        """Read up to the first totals of a target. Raises StreamError.

        `hear` is given each frame as soon as it has arrived, long before its window is whole.
        """
        self.reading = Reading(target=target)
        self._frames = read_frames(stream, self.reading)
        self._hear = hear
        self.start: Any = None
        self.window: Any = None  # the last that ended
        self.error: Any = None
        self.end: Any = None
        self.budget: Any = None  # how it is used, by the trial; None without one
        self.hit_price: Any = None  # the last estimate, as of the whole; None: there was none
        self.whole_price: Any = None
        self.functions = FunctionTotals()
        self._mappings: dict[tuple[int, int], tuple[Any, bytes]] = {}
        self.kernel_names: dict[int, tuple[str, int]] = {}
        self._plan_parts: list[bytes] = []
        self.accounts = AccountTotals()
        self.cpus: dict[int, CpuReading] = {}
        self.latency: dict[int, list[int]] = {}
        self.hits: dict[int, tuple[int, int, int]] = {}
        self.programs: dict[str, tuple[int, int]] = {}
        self.stacks: dict[int, bytes] = {}
        """Addresses of each, packed: as integers of Python they took five times the memory."""
        self.stacks_most = STACKS_MOST
        """Stacks that are kept: those that were sent or referred to last."""
        self.quotas: dict[int, tuple[int, int]] = {}
        self.window_samples: list[tuple[layout.SampleKey, int]] = []
        self.window_waits: list[tuple[layout.OffcpuKey, layout.OffcpuValue]] = []
        self.window_records: list[layout.HandshakeRecord] = []
        self._takers: dict[int, Callable[[bytes], None]] = {
            _NUMBERS.number(name): taker
            for name, taker in (
                ("START", self._take_start),
                ("PLAN", self._plan_parts.append),
                ("MAPPING", self._take_mapping),
                ("CPU", self._take_cpus),
                ("LATENCY", self._take_latency),
                ("HITS", self._take_hits),
                ("PROGRAM", self._take_programs),
                ("STACK", self._take_stacks),
                ("SAMPLE", self._take_samples),
                ("WAIT", self._take_waits),
                ("HANDSHAKE", self._take_handshakes),
                ("QUOTA", self._take_quotas),
                ("KERNEL_NAME", self._take_kernel_names),
                ("BUDGET", self._take_budget),
                ("WHOLE_PRICE", self._take_whole_price),
                *((name, self._keeper(name.lower())) for name in _KEPT),
                *self.accounts.takers(),
                *self.functions.takers(),
            )
        }
        has_totals = self.next_window()
        if not (has_totals and self._plan_parts and self._has_start()):
            raise StreamError(self._why() or "it ends before the first window")
        text = b"".join(self._plan_parts).decode("utf-8", "surrogateescape")
        start: Any = self.start
        level = start.level.decode("ascii", "replace")
        self.plan_file: PlanFile = read_plan_file(text).as_recorded(level)
        try:
            self.functions.limit(self.plan_file.functions)
        except ValueError as error:
            raise _made_up(error) from None

    def _has_start(self) -> bool:
        return self.start is not None

    @property
    def mappings(self) -> list[tuple[Any, bytes]]:
        """Code that was mapped: each mapping as it was told last, and its path."""
        return list(self._mappings.values())

    def _why(self) -> str:
        if self.error is not None:
            return str(self.error.text.decode("utf-8", "replace"))
        return self.reading.why_ended

    def next_window(self) -> bool:
        """Read on to the end of the next window; False if no more windows follow.

        What stands behind the last window (names, the end) has then been read. A window that was
        cut has no end and is left out. Raises StreamError for what no recorder writes.
        """
        self.window_samples, self.window_waits, self.window_records = [], [], []
        for frame in self._frames:
            is_window = self._take(frame)
            if self._hear:
                self._hear(frame)
            if is_window:
                return True
        return False

    def read_budget(self) -> bool:
        """Read the frame behind a window that is known to be there; whether it is a budget.

        Raises StreamError for what no recorder writes.
        """
        for frame in self._frames:
            self._take(frame)
            return self.budget is not None
        return False

    def _take(self, frame: Frame) -> bool:
        """Take a frame; True if a window ends with it. Raises StreamError."""
        try:
            if frame.type == _NUMBERS.number("WINDOW"):
                self.window = record("window", frame.content)
                require_levels(self.window.level)
                return True
            taker = self._takers.get(frame.type)
            if taker is None:
                raise ValueError(f"frame of type {frame.type}")
            taker(frame.content)
        except (ValueError, IndexError, OverflowError) as error:
            raise _made_up(error) from None
        return False

    # ---- what frames hold ----

    def _take_start(self, content: bytes) -> None:
        if self.start is not None:
            raise ValueError("a second start")
        self.start = record("start", content)
        start = self.start
        if start.cpus_count > CPUS_MOST or start.network_bits > 32 or start.network6_bits > 128:
            raise ValueError(f"{start.cpus_count} CPUs, or addresses that are too long")

    def _keeper(self, name: str) -> Callable[[bytes], None]:
        """Keeps the last structure of a kind."""
        return lambda content: setattr(self, name, record(name, content))

    def _take_budget(self, content: bytes) -> None:
        self.budget = budget_of(content)

    def _take_whole_price(self, content: bytes) -> None:
        self.whole_price = whole_price_of(content)

    def _take_mapping(self, content: bytes) -> None:
        for entry, path in counted("mapping", content, "path_bytes", 1):
            self._mappings[entry.start, entry.inode] = entry, path

    def _take_cpus(self, content: bytes) -> None:
        for cpu in records("cpu", content):
            if self.start is None or cpu.number >= self.start.cpus_count:
                raise ValueError(f"CPU {cpu.number}")
            self.cpus[cpu.number] = CpuReading(cpu.target_cpu_ns, cpu.sample_count)

    def _take_latency(self, content: bytes) -> None:
        for entry in records("latency", content):
            require_cell(entry.phase)
            counts = self.latency.setdefault(entry.phase, [0] * layout.LATENCY_BUCKETS)
            counts[entry.bucket] = entry.count

    def _take_hits(self, content: bytes) -> None:
        for entry in records("hits", content):
            self.hits[entry.site] = (entry.count, entry.begun, entry.healed)

    def _take_programs(self, content: bytes) -> None:
        for entry in records("program", content):
            self.programs[entry.name.decode("ascii")] = (entry.run_ns, entry.run_count)

    def _take_stacks(self, content: bytes) -> None:
        for stack, raw in counted("stack", content, "depth", 8):
            self.stacks.pop(stack.id, None)  # the newest is the last
            self.stacks[stack.id] = raw
        while len(self.stacks) > self.stacks_most:
            del self.stacks[next(iter(self.stacks))]

    def _touch(self, *stacks: int) -> None:
        """Keep stacks that are referred to."""
        for stack in stacks:
            if (addresses := self.stacks.pop(stack, None)) is not None:
                self.stacks[stack] = addresses

    def _take_samples(self, content: bytes) -> None:
        for entry in records("sample", content):
            require_cell(entry.phase)
            key = layout.SampleKey(
                *(entry.phase, self._call(entry.syscall), entry.user_stack),
                *(entry.kernel_stack, entry.user_ip, entry.kernel_ip),
            )
            self.window_samples.append((key, entry.count))
            self._touch(entry.user_stack, entry.kernel_stack)

    def _call(self, number: int) -> int:
        """A system call by the number that captures have."""
        is_arm64 = self.start is not None and self.start.machine == b"aarch64"
        return number_of_x86(number) if is_arm64 else number

    def _take_waits(self, content: bytes) -> None:
        for entry in records("wait", content):
            require_cell(entry.phase, entry.state)
            key = layout.OffcpuKey(
                *(entry.phase, entry.state, self._call(entry.syscall), entry.user_stack),
                entry.kernel_stack,
            )
            self.window_waits.append((key, layout.OffcpuValue(entry.count, entry.time_ns)))
            self._touch(entry.user_stack, entry.kernel_stack)

    def _take_handshakes(self, content: bytes) -> None:
        if len(content) % _HANDSHAKE_BYTES:
            raise ValueError("a handshake record of another length")
        for start in range(0, len(content), _HANDSHAKE_BYTES):
            found = layout.HandshakeRecord.from_buffer_copy(content, start)
            if found.outcome >= len(layout.OUTCOMES):
                raise ValueError(f"outcome {found.outcome}")
            self.window_records.append(found)

    def _take_quotas(self, content: bytes) -> None:
        for entry in records("quota", content):
            self.quotas[entry.group] = (entry.period_count, entry.throttled_count)

    def _take_kernel_names(self, content: bytes) -> None:
        for entry in records("kernel_name", content):
            name = entry.name.decode("utf-8", "replace")
            self.kernel_names[entry.address] = (name, entry.offset_bytes)
