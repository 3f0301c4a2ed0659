# SPDX-License-Identifier: GPL-2.0-only
"""The counts of bcc's tools as rows of a capture: one window of the engine `bcc`.

These tools know neither phases nor wait states. Phases are inferred from the boundary functions in
each stack, wait states from the kernel functions in which the thread left the CPU. Frames with an
address are named as the native engine names them; others keep the tool's name, which in a stripped
file can be that of another function.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture import schema
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.symbols import Place, Symbolizer, demangle
from tlstax.collectors.process.target import Target
from tlstax.collectors.sources.bcc.text import KERNEL_START, UNNAMED, BccFrame, BccStack, Bucket
from tlstax.collectors.sources.stacks.stack_phases import StackPhases
from tlstax.collectors.sources.stacks.stack_syscalls import syscall_of

FIRST_ID: Final = 1 << 42
"""Ids of windows, threads, frames and stacks of bcc begin here, above all others."""
EACH_TOOL: Final = 1 << 36
"""The range of frame and stack ids of one tool."""
WINDOW_ID: Final = FIRST_ID
MAP_ENTRIES_MAX: Final = 10_240
"""Distinct stacks and threads that the maps of these tools hold, in both projects."""

# Frames of the tool and of the scheduler on top of a wait.
_SCHEDULER: Final = re.compile(
    r"bpf_\w+|bpf:.*|__bpf_\w+|__traceiter_\w+|trace_event_raw\w*|finish_task_switch.*|__schedule"
)
_PREEMPTED: Final = re.compile(
    r"exit_to_user_mode\w*|irqentry_exit\w*|syscall_exit_to_user_mode\w*|preempt_schedule\w*|"
    r"__cond_resched\w*|raw_irqentry_exit\w*|yield\w*|do_sched_yield|__(?:x64_)?sys_sched_yield"
)
_DISK: Final = re.compile(
    r"io_schedule\w*|blk_\w+|submit_bio_wait|folio_wait\w*|wait_on_\w*(?:bit|page|buffer)\w*|"
    r"jbd2_\w+|balance_dirty\w*|(?:__)?(?:x64_)?sys_(?:fsync|fdatasync|io_getevents)|"
    r"read_events|\w*iomap_dio\w*|do_fsync|\w*rq_qos_wait\w*"
)
_FUTEX: Final = re.compile(r"(?:do_)?futex\w*|__(?:x64_)?sys_futex\w*")
_NETWORK: Final = re.compile(
    r"poll_schedule_timeout.*|do_(?:sys_)?poll|ep_poll|do_select|sk_\w+|tcp_\w+|inet\w*|unix_\w+|"
    r"wait_woken|__skb_wait\w*|sock_\w+"
)


class Frames:
    """Gives ids to frames and stacks of one tool, and names them at the end."""

    def __init__(
        self, tool_number: int, symbolizer: Symbolizer | None, homes: Mapping[str, MappedObject]
    ) -> None:
        self._first = FIRST_ID + tool_number * EACH_TOOL
        self._symbolizer = symbolizer
        self._homes = homes
        self._frames: dict[Place, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._places: dict[tuple[BccFrame, bool], Place] = {}

    def places(
        self, frames: Sequence[BccFrame], kernel: bool, *, waited: bool = False
    ) -> list[Place]:
        """The places of the frames, leaf first; for a wait without those of tool and scheduler."""
        first = 0
        if waited:
            first = next(
                (i for i, frame in enumerate(frames) if not _SCHEDULER.fullmatch(frame.name)), 0
            )
        return [self._place(frame, kernel, depth) for depth, frame in enumerate(frames[first:])]

    def stack(self, places: Iterable[Place]) -> int | None:
        """The stored id of a stack; None if it is empty."""
        numbers = tuple(
            self._frames.setdefault(place, self._first + len(self._frames)) for place in places
        )
        return (
            self._stacks.setdefault(numbers, self._first + len(self._stacks)) if numbers else None
        )

    def rows(self) -> Iterable[schema.Row]:
        """Every frame and stack so far."""
        yield from (schema.Frame(number, *place) for place, number in self._frames.items())
        yield from (
            schema.Stack(number, " ".join(map(str, frames)))
            for frames, number in self._stacks.items()
        )

    def _place(self, frame: BccFrame, kernel: bool, depth: int) -> Place:
        # A return address can lie after the end of a function that never returns.
        address = frame.address - (depth > 0)
        key = (BccFrame(address, frame.name), kernel)
        if key not in self._places:
            self._places[key] = self._look_up(frame, address, kernel)
        return self._places[key]

    def _look_up(self, frame: BccFrame, address: int, kernel: bool) -> Place:
        if kernel:
            name = frame.name if frame.name != UNNAMED else "[kernel]"
            return Place("kernel", "", 0, name, 0, "kallsyms", "")
        if frame.address and self._symbolizer is not None:
            return self._symbolizer.user(address) if address < KERNEL_START else _NOWHERE
        home = self._homes.get(frame.name)
        path, build_id = (home.path, home.build_id) if home else ("unknown", "")
        known = frame.name != UNNAMED
        return Place(path, build_id, 0, demangle(frame.name), 0, "bcc" if known else "none", "")


_NOWHERE: Final = Place("", "", 0, UNNAMED, 0, "none", "")


class BccRows:
    """Makes rows of the output of one tool."""

    def __init__(
        self,
        tool_number: int,
        phases: StackPhases,
        symbolizer: Symbolizer | None = None,
        homes: Mapping[str, MappedObject] | None = None,
    ) -> None:
        """`symbolizer` names addresses; `homes` gives the file of a name without an address."""
        self._phases = phases
        self._frames = Frames(tool_number, symbolizer, homes or {})

    def waits(self, stacks: Iterable[BccStack], start_ns: int) -> list[schema.Row]:
        """Off-CPU time by stack, and by thread, phase and state (offcputime prints us)."""
        time_ns: Counter[tuple[str, str, int, int | None, int | None]] = Counter()
        ledger: Counter[tuple[int, str, str]] = Counter()
        names: dict[int, str] = {}
        for stack in stacks:
            user, kernel = self._frames.places(stack.user, False), [f.name for f in stack.kernel]
            functions = [place.symbol for place in user]
            phase, state = self._phases.phase(functions), wait_state(kernel)
            if state == "blocked_futex":
                state = self._phases.wait_state(functions) or state
            pair = (
                self._frames.stack(user),
                self._frames.stack(self._frames.places(stack.kernel, True, waited=True)),
            )
            time_ns[phase, state, syscall_of(kernel, _leaf(user)), *pair] += stack.value * 1000
            ledger[stack.tid, phase, state] += stack.value * 1000
            names[stack.tid] = stack.comm
        rows = [*self._frames.rows()]
        rows += (schema.OffcpuStack(WINDOW_ID, *key, 0, ns) for key, ns in time_ns.items())
        for tid in sorted(tid for tid in names if tid):
            rows.append(schema.Thread(FIRST_ID + tid, tid, names[tid], "unknown", start_ns, None))
        rows += (
            schema.Ledger(WINDOW_ID, FIRST_ID + tid, phase, state, ns)
            for (tid, phase, state), ns in ledger.items()
            if tid
        )
        return rows

    def samples(self, stacks: Iterable[BccStack]) -> list[schema.Row]:
        """CPU samples by stack."""
        counts: Counter[tuple[str, int, int | None, int | None]] = Counter()
        for stack in stacks:
            user = self._frames.places(stack.user, False)
            kernel = [frame.name for frame in stack.kernel]
            phase = self._phases.phase([place.symbol for place in user])
            pair = (
                self._frames.stack(user),
                self._frames.stack(self._frames.places(stack.kernel, True)),
            )
            counts[phase, syscall_of(kernel, _leaf(user)), *pair] += stack.value
        rows = [*self._frames.rows()]
        rows += (schema.SampleStack(WINDOW_ID, *key, count) for key, count in counts.items())
        return rows


def homes_of(stacks: Iterable[BccStack], target: Target) -> dict[str, MappedObject]:
    """The files of the process that define the functions of frames without an address.

    A name that none or several of them define is left out.
    """
    names = {frame.name for stack in stacks for frame in stack.user if not frame.address}
    wanted = {name.encode("utf-8", "surrogateescape"): name for name in names}
    homes: dict[str, MappedObject] = {}
    twice: set[str] = set()
    for mapped in target.objects if wanted else ():
        with suppress(TlstaxError):
            for name in _defined(mapped, wanted):
                if name in homes:
                    twice.add(name)
                homes[name] = mapped
    return {name: mapped for name, mapped in homes.items() if name not in twice}


def _defined(mapped: MappedObject, wanted: Mapping[bytes, str]) -> set[str]:
    """The names that a file defines."""
    if not mapped.open_path:
        return set()
    with Elf(mapped.open_path) as elf:
        return {
            wanted[raw]
            for table in (".symtab", ".dynsym")
            for strings in (elf.names(table),)
            for _, _, at in elf.symbols(table)
            if (raw := strings[at : strings.find(b"\0", at)]) in wanted
        }


def handshakes(buckets: Iterable[Bucket]) -> list[schema.Row]:
    """Durations of handshakes, from funclatency on the server's handshake function."""
    rows: list[schema.Row] = []
    total = 0
    for one in buckets:
        rows.append(schema.Latency(WINDOW_ID, "handshake", one.low_ns, one.high_ns, one.times))
        total += one.times
    return [*rows, schema.PhaseCount(WINDOW_ID, "handshake", total)]


def block_times(buckets: Iterable[Bucket], start_ns: int, end_ns: int) -> list[schema.Row]:
    """Durations of block I/O by device, from biolatency."""
    return [
        schema.Metric(
            end_ns, end_ns - start_ns, "bcc", one.disk or "all disks",
            f"io_took_{one.low_ns // 1000}_to_{one.high_ns // 1000}_us_count", float(one.times),
        )
        for one in buckets
    ]  # fmt: skip


def _leaf(user: Sequence[Place]) -> str:
    return user[0].symbol if user else ""


def wait_state(kernel: Sequence[str]) -> str:
    """Why a thread left the CPU, by the kernel functions of its stack (leaf first).

    A thread that was preempted, or that yielded, can run again at once: `runnable`.
    """
    for name in kernel:
        if _SCHEDULER.fullmatch(name) or name in ("schedule", "schedule_timeout"):
            continue
        for state, functions in _STATES:
            if functions.fullmatch(name):
                return state
    return "blocked_other" if kernel else "runnable"


_STATES: Final = (
    ("runnable", _PREEMPTED),
    ("blocked_disk", _DISK),
    ("blocked_futex", _FUTEX),
    ("blocked_network", _NETWORK),
)
