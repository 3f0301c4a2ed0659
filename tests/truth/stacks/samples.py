# SPDX-License-Identifier: GPL-2.0-only
"""Samples with the stack by tables, by frame pointers, and what libdw needs to walk it again."""

import ctypes
import struct
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax.collectors.host.bpf import enable_perf_event, open_cpu_clock
from tlstax.collectors.recording.programs.names import WALK_COUNTS
from tlstax.tests.loader import program_memory
from tlstax.tests.loader.libbpf import BpfObject
from tlstax.tests.loader.loaded import map_memory
from tlstax.tests.loader.sampler import online_cpus
from tlstax.tests.loader.walker import Walker
from tlstax.tests.truth.stacks.libdw import Debugger
from tlstax.tests.truth.stacks.paths import NOT_DESCRIBED, Functions, Route, outermost_first
from tlstax.tests.truth.stacks.perf_run import COPY_BYTES

OBJECT: Final = Path(__file__).parent / "bin" / "stackcheck.bpf.o"
FRAMES: Final = 127
HEAD: Final = struct.Struct("=IIiIQQQQQIIQ16Q")
START_FRAMES: Final = 3  # clone3, start_thread, and the function that the thread was given
RED_ZONE_BYTES: Final = 128
DEPTH_BYTES_MOST: Final = 1 << 23
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass
class Verdict:
    """What was found in the samples of one load."""

    samples: int = 0
    equal: int = 0
    incomparable: int = 0  # the copy of the stack ends before the thread's first function
    guessed: int = 0  # interrupted code has no call frame information, and the two guess otherwise
    ends: Counter[str] = field(default_factory=Counter)
    tables_ns: list[int] = field(default_factory=list)
    pointers_ns: list[int] = field(default_factory=list)
    tables_again_ns: list[int] = field(default_factory=list)  # once more in the same sample
    pointers_again_ns: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    by_tables: Counter[str] = field(default_factory=Counter)  # file -> samples that reach the start
    pointer_ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    by_file: Counter[str] = field(default_factory=Counter)
    starts: Counter[int] = field(default_factory=Counter)  # outermost addresses of whole stacks
    ends_at: Counter[int] = field(default_factory=Counter)  # only the outermost one
    differences: list[str] = field(default_factory=list)
    routes: Counter[Route] = field(default_factory=Counter)
    """Whole stacks of code in user mode with call frame information that perf's copy would hold."""
    lost: int = 0  # found no room in the ring

    @property
    def comparable(self) -> int:
        """Samples in which both had the same to go by."""
        return self.samples - self.incomparable - self.guessed

    @property
    def by_pointers(self) -> Counter[str]:
        """Samples by file that reach the start by frame pointers: clone3 itself has none."""
        reached: Counter[str] = Counter()
        for (name, end), count in self.pointer_ends.items():
            reached[name] += count if end in self.starts else 0
        return reached


class StackCheck:
    """Samples a process while it is open; `finish` compares."""

    def __init__(
        self, pid: int, hz: int, verdict: Verdict, functions: Functions, *, switches: bool = False
    ) -> None:
        """Load and attach. TlstaxError HOST when the kernel refuses.

        `switches`: stacks of threads that leave the CPU instead of those that run.
        """
        self._verdict, self._functions = verdict, functions
        self._stack = ExitStack()
        self._raw: list[bytes] = []
        self._object = bpf = self._stack.enter_context(BpfObject(OBJECT))
        self._walker = Walker(bpf, pid, wanted=True)
        config = program_memory.Config()
        config.tgid = pid
        bpf.set_constants(".rodata.config", bytes(config))
        bpf.set_autoload("check_sample", not switches)
        bpf.set_autoload("check_switch", switches)
        bpf.load()
        self._walker.load(self._stack)
        self._debugger = Debugger(pid)
        self._stack.callback(self._debugger.close)
        self._callback = _CALLBACK(self._take)
        self._ring = bpf.library.ring_buffer__new(bpf.map_fd("checked"), self._callback, None, None)
        self._stack.callback(bpf.library.ring_buffer__free, self._ring)
        self._attached = ExitStack()
        self._stack.callback(self._attached.close)
        if switches:
            self._attached.callback(bpf.attach("check_switch").close)
        for cpu in () if switches else online_cpus():
            fd = open_cpu_clock(hz, cpu=cpu)
            self._attached.callback(bpf.attach_perf_event("check_sample", fd).close)
            enable_perf_event(fd)

    def _take(self, _context: int, data: int, size: int) -> int:
        self._raw.append(ctypes.string_at(data, size))
        return 0

    def poll(self) -> None:
        """Take the samples that came, so that the ring has room."""
        self._object.library.ring_buffer__consume(self._ring)

    def finish(self) -> None:
        """Detach, and compare all samples while the process still has its files mapped."""
        self._attached.close()
        self.poll()
        for each in self._raw:
            self._judge(each)
        with map_memory(self._object.map_fd_ending(".data.lost"), 8) as memory:
            self._verdict.lost += int.from_bytes(memory[:8], "little")

    def close(self) -> None:
        """Detach and unload."""
        self._stack.close()

    def _judge(self, raw: bytes) -> None:
        head = HEAD.unpack_from(raw)
        in_user, count, pointer_bytes, copied, tables_ns, pointers_ns = head[:6]
        pc, end, first, depth_bytes, *registers = head[8:]
        at = HEAD.size
        frames = struct.unpack_from(f"={count}Q", raw, at)
        at += (FRAMES + 1) * 8
        pointers = struct.unpack_from(f"={max(0, pointer_bytes) // 8}Q", raw, at)
        at += (FRAMES + 1) * 8
        memory = raw[at : at + copied]
        functions = self._functions
        verdict, name = self._verdict, functions.file_of(pc)
        verdict.samples += 1
        verdict.ends[WALK_COUNTS[end]] += 1
        verdict.by_file[name] += 1
        verdict.frames.append(count + 1)
        verdict.tables_again_ns.append(head[6])
        verdict.pointers_again_ns.append(head[7])
        if first:
            verdict.tables_ns.append(tables_ns)
        else:
            verdict.pointers_ns.append(pointers_ns)
        if WALK_COUNTS[end] == "complete" and frames:
            verdict.by_tables[name] += 1
            verdict.starts.update(frames[-START_FRAMES:])
            verdict.ends_at[frames[-1]] += 1
            leaf = functions.at(pc)
            if in_user and depth_bytes <= COPY_BYTES and leaf.start != NOT_DESCRIBED:
                callers = (functions.at(address - 1) for address in frames)
                verdict.routes[outermost_first((leaf, *callers))] += 1
        verdict.pointer_ends[name, pointers[-1] if pointers else 0] += 1
        start = registers[7] - RED_ZONE_BYTES
        walked = self._debugger.walk(registers, pc, start, memory)
        expected = [
            address + (is_exact and depth > 0) for depth, (address, is_exact) in enumerate(walked)
        ]
        mine = [pc, *frames]
        if mine == expected:
            verdict.equal += 1
        elif (
            len(expected) < len(mine)
            and mine[: len(expected)] == expected
            and expected[-1] not in verdict.ends_at
            and len(memory) - RED_ZONE_BYTES < depth_bytes <= DEPTH_BYTES_MOST
        ):
            verdict.incomparable += 1
        elif not functions.is_described(pc):
            verdict.guessed += 1
        else:
            self._differ(mine, expected, WALK_COUNTS[end])

    def _differ(self, mine: list[int], expected: list[int], end: str) -> None:
        if len(self._verdict.differences) < 20:
            same = next(
                (
                    n
                    for n, pair in enumerate(zip(mine, expected, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(mine), len(expected)),
            )
            places = [
                " ".join(
                    f"{self._functions.file_of(a)}:{a:#x}"
                    for a in part[max(0, same - 1) : same + 2]
                )
                for part in (mine, expected)
            ]
            self._verdict.differences.append(
                f"{end}, frame {same} of {len(mine)} and {len(expected)}: {places[0]} | {places[1]}"
            )
