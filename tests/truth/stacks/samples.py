# SPDX-License-Identifier: GPL-2.0-only
"""Samples with the stack by tables, by frame pointers, and what libdw needs to walk it again."""

import ctypes
import struct
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.unwind_table import UnwindTable
from tlstax.collectors.host.bpf import enable_perf_event, open_cpu_clock
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.names import WALK_COUNTS
from tlstax.tests.loader.libbpf import BpfObject, Link
from tlstax.tests.loader.sampler import online_cpus
from tlstax.tests.loader.walker import Walker
from tlstax.tests.truth.stacks.libdw import Debugger

OBJECT: Final = Path(__file__).parent / "bin" / "stackcheck.bpf.o"
FRAMES: Final = 127
HEAD: Final = struct.Struct("=IIiIQQQII16Q")
START_FRAMES: Final = 3  # clone3, start_thread, and the function that the thread was given
RED_ZONE_BYTES: Final = 128
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
    frames: list[int] = field(default_factory=list)
    by_tables: Counter[str] = field(default_factory=Counter)  # file -> samples that reach the start
    pointer_ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    by_file: Counter[str] = field(default_factory=Counter)
    starts: Counter[int] = field(default_factory=Counter)  # outermost addresses of whole stacks
    differences: list[str] = field(default_factory=list)

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
    """Samples a process while it is open; `poll` compares what came in."""

    def __init__(self, pid: int, hz: int, *, switches: bool = False) -> None:
        """Load and attach. TlstaxError HOST when the kernel refuses.

        `switches`: stacks of threads that leave the CPU instead of those that run.
        """
        self.verdict = Verdict()
        self._stack = ExitStack()
        self._raw: list[bytes] = []
        self._object = bpf = self._stack.enter_context(BpfObject(OBJECT))
        self._walker = Walker(bpf, pid, wanted=True)
        config = layout.Config()
        config.tgid = pid
        bpf.set_constants(".rodata.config", bytes(config))
        bpf.set_autoload("check_sample", not switches)
        bpf.set_autoload("check_switch", switches)
        bpf.load()
        self._walker.load(self._stack)
        self._debugger = Debugger(pid)
        self._stack.callback(self._debugger.close)
        self._files = _files(pid)
        self._root = Path(f"/proc/{pid}/root")
        self._described: dict[str, tuple[Elf, UnwindTable]] = {}
        self._callback = _CALLBACK(self._take)
        self._ring = bpf.library.ring_buffer__new(bpf.map_fd("checked"), self._callback, None, None)
        self._stack.callback(bpf.library.ring_buffer__free, self._ring)
        self._links: list[Link] = []
        if switches:
            self._stack.callback(bpf.attach("check_switch").close)
        for cpu in () if switches else online_cpus():
            fd = open_cpu_clock(hz, cpu=cpu)
            link = bpf.attach_perf_event("check_sample", fd)
            self._links.append(link)
            self._stack.callback(link.close)
            enable_perf_event(fd)

    def _take(self, _context: int, data: int, size: int) -> int:
        self._raw.append(ctypes.string_at(data, size))
        return 0

    def poll(self) -> None:
        """Compare the samples that came since the last call."""
        self._object.library.ring_buffer__consume(self._ring)
        raw, self._raw = self._raw, []
        for each in raw:
            self._judge(each)

    def close(self) -> None:
        """Detach and unload."""
        self.poll()
        self._stack.close()

    def _judge(self, raw: bytes) -> None:
        _, count, pointer_bytes, copied, tables_ns, pointers_ns, pc, end, first, *registers = (
            HEAD.unpack_from(raw)
        )
        at = HEAD.size
        frames = struct.unpack_from(f"={count}Q", raw, at)
        at += (FRAMES + 1) * 8
        pointers = struct.unpack_from(f"={max(0, pointer_bytes) // 8}Q", raw, at)
        at += (FRAMES + 1) * 8
        memory = raw[at : at + copied]
        verdict, name = self.verdict, self._file_of(pc)
        verdict.samples += 1
        verdict.ends[WALK_COUNTS[end]] += 1
        verdict.by_file[name] += 1
        verdict.frames.append(count + 1)
        if first:
            verdict.tables_ns.append(tables_ns)
        else:
            verdict.pointers_ns.append(pointers_ns)
        if WALK_COUNTS[end] == "complete" and frames:
            verdict.by_tables[name] += 1
            verdict.starts.update(frames[-START_FRAMES:])
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
            len(expected) < len(mine) and mine[: len(expected)] == expected and len(memory) > 50000
        ):
            verdict.incomparable += 1
        elif not self._is_described(pc):
            verdict.guessed += 1
        else:
            self._differ(mine, expected, WALK_COUNTS[end])

    def _differ(self, mine: list[int], expected: list[int], end: str) -> None:
        if len(self.verdict.differences) < 20:
            same = next(
                (
                    n
                    for n, pair in enumerate(zip(mine, expected, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(mine), len(expected)),
            )
            places = [
                " ".join(f"{self._file_of(a)}:{a:#x}" for a in part[max(0, same - 1) : same + 2])
                for part in (mine, expected)
            ]
            self.verdict.differences.append(
                f"{end}, frame {same} of {len(mine)} and {len(expected)}: {places[0]} | {places[1]}"
            )

    def _file_of(self, address: int) -> str:
        found = self._mapping_of(address)
        return found.name if found else "?"

    def _is_described(self, address: int) -> bool:
        """Whether the file has call frame information for the address."""
        found = self._mapping_of(address)
        if found is None or not found.path.startswith("/"):
            return True
        if found.path not in self._described:
            self._described[found.path] = _described(self._root / found.path.lstrip("/"))
        elf, table = self._described[found.path]
        at = elf.to_address(address - found.start + found.offset)
        return at is not None and table.covering(at) is not None

    def _mapping_of(self, address: int) -> "_Mapping | None":
        return next((one for one in self._files if one.start <= address < one.end), None)


class _Mapping(NamedTuple):
    start: int
    end: int
    offset: int
    path: str
    name: str


def _described(path: Path) -> tuple[Elf, UnwindTable]:
    elf = Elf(path)
    return elf, UnwindTable(elf)


def _files(pid: int) -> list[_Mapping]:
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if "x" in fields[1] and len(fields) > 5:
            start, _, end = fields[0].partition("-")
            name = fields[5].rpartition("/")[2].partition(".so")[0]
            place = int(start, 16), int(end, 16), int(fields[2], 16)
            found.append(_Mapping(*place, fields[5], name))
    return found
