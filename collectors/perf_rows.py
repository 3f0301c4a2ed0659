# SPDX-License-Identifier: GPL-2.0-only
"""Samples of perf as rows of a capture: one window of the engine `perf`.

Phases come from the boundary functions in each stack. Functions without a name in the TLS library
are described by their instructions, as the native engine does, where the file at hand is the one
that perf sampled (equal build-id).
"""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.syscalls import NUMBERS
from tlstax.collectors.elf import Elf
from tlstax.collectors.nameless import NamelessFunctions
from tlstax.collectors.perf_script import UNNAMED, PerfFrame, PerfSample
from tlstax.collectors.stack_phases import StackPhases
from tlstax.collectors.symbols import demangle, stem

FIRST_ID: Final = 1 << 40
"""Frames, stacks and windows of perf are numbered from here, above all of the native engine."""
_SYSCALL: Final = re.compile(r"(?:__x64_|__arm64_|__do_|__se_|do_|k|__)sys_(\w+)")
_ENTRY: Final = re.compile(r"entry_SYSCALL|el0t_64_sync")
_LIBC: Final = re.compile(r"(?:__GI_)?(?:__)?(?:libc_)?(\w+?)(?:_nocancel)?(?:@.*)?")


class PerfRows:
    """Collects samples; `rows` gives what they add up to."""

    def __init__(self, phases: StackPhases, build_ids: Mapping[str, str], root: str = "") -> None:
        """`build_ids`: by path, what perf recorded; `root`: where the paths begin on this host."""
        self._phases = phases
        self._names = FileNames(build_ids, root)
        self._build_ids = build_ids
        self._frames: dict[PerfFrame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._samples: Counter[tuple[str, int, int | None, int | None]] = Counter()
        self._threads: Counter[tuple[int, str]] = Counter()
        self.start_ns = self.end_ns = 0
        self.sample_count = 0

    def add(self, sample: PerfSample) -> None:
        """Count one sample."""
        user = tuple(frame for frame in sample.frames if not frame.is_kernel)
        kernel = tuple(frame for frame in sample.frames if frame.is_kernel)
        phase = self._phases.phase([frame.symbol for frame in user])
        key = phase, _syscall(kernel, user), self._stack(user), self._stack(kernel)
        self._samples[key] += 1
        self._threads[sample.tid, phase] += 1
        self.sample_count += 1
        self.start_ns = min(self.start_ns or sample.time_ns, sample.time_ns)
        self.end_ns = max(self.end_ns, sample.time_ns)

    def rows(self, window: schema.Window, sample_ns: float) -> list[schema.Row]:
        """Everything, under that window; each sample stands for so much time on a CPU."""
        made: list[schema.Row] = [window]
        for tid in sorted({tid for tid, _ in self._threads}):
            number = FIRST_ID + tid
            made.append(schema.Thread(number, tid, "", "unknown", window.start_ns, None))
        for (tid, phase), count in self._threads.items():
            time_ns = round(count * sample_ns)
            made.append(schema.Ledger(window.window_id, FIRST_ID + tid, phase, "on_cpu", time_ns))
        made += (self._frame_row(frame, number) for frame, number in self._frames.items())
        made += (
            schema.Stack(number, " ".join(map(str, frames)))
            for frames, number in self._stacks.items()
        )
        made += (
            schema.SampleStack(window.window_id, *key, count)
            for key, count in self._samples.items()
        )
        return made

    def close(self) -> None:
        """Close the files that names were read from."""
        self._names.close()

    def _stack(self, frames: tuple[PerfFrame, ...]) -> int | None:
        if not frames:
            return None
        numbers = tuple(
            self._frames.setdefault(one, FIRST_ID + len(self._frames)) for one in frames
        )
        return self._stacks.setdefault(numbers, FIRST_ID + len(self._stacks))

    def _frame_row(self, frame: PerfFrame, number: int) -> schema.Frame:
        if frame.is_kernel:
            name = frame.symbol if frame.symbol != UNNAMED else "[kernel]"
            return schema.Frame(
                number, "kernel", "", 0, name, frame.symbol_offset_bytes, "perf", ""
            )
        build_id = self._build_ids.get(frame.object, "")
        place = (frame.object, build_id, frame.address)
        if frame.symbol != UNNAMED:
            name = demangle(frame.symbol)
            return schema.Frame(number, *place, name, frame.symbol_offset_bytes, "perf", "")
        name, offset, code = self._names.describe(frame.object, frame.address)
        return schema.Frame(number, *place, name, offset, "none", code)


class FileNames:
    """What functions without a name show of themselves, file by file."""

    def __init__(self, build_ids: Mapping[str, str], root: str) -> None:
        self._build_ids = build_ids
        self._root = root
        self._files: dict[str, tuple[Elf, NamelessFunctions] | None] = {}

    def describe(self, path: str, address: int) -> tuple[str, int, str]:
        """Text for the function, distance from its start, evidence of its instructions."""
        if path not in self._files:
            self._files[path] = self._open(path)
        opened = self._files[path]
        if opened is not None:
            with suppress(TlstaxError):
                bounds, code = opened[1].describe(address)
                return f"[{stem(path)}+{bounds.start:#x}]", address - bounds.start, code
        return f"[{stem(path)}+{address:#x}]", 0, ""

    def _open(self, path: str) -> tuple[Elf, NamelessFunctions] | None:
        """The file, if it is here and still the one that was sampled."""
        if path not in self._build_ids:
            return None
        with suppress(TlstaxError, OSError):
            elf = Elf(f"{self._root}{path}")
            if elf.build_id == self._build_ids[path]:
                return elf, NamelessFunctions(elf, stem(path))
            elf.close()
        return None

    def close(self) -> None:
        """Close the files."""
        for opened in self._files.values():
            if opened is not None:
                opened[0].close()
        self._files.clear()


def _syscall(kernel: tuple[PerfFrame, ...], user: tuple[PerfFrame, ...]) -> int:
    """The number of the system call that the kernel stack is in, -1 for none.

    Where the kernel's own functions do not tell, the caller does: libc's wrapper of the call.
    """
    if not kernel or not _ENTRY.match(kernel[-1].symbol):
        return -1
    for frame in kernel:
        if found := _SYSCALL.fullmatch(frame.symbol):
            return NUMBERS.get(found[1], -1)
    wrapper = _LIBC.fullmatch(user[0].symbol) if user else None
    return NUMBERS.get(wrapper[1], -1) if wrapper else -1


def read_frequency_hz(text: str) -> float:
    """Samples per second and CPU, of what `perf evlist -F` prints; 0 where it does not say."""
    found = re.search(r"sample_freq=(\d+)", text)
    return float(found[1]) if found else 0.0


def read_build_ids(text: str) -> dict[str, str]:
    """What `perf buildid-list` prints: one build-id and path a line."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines())
    return {path: build_id for build_id, path in (pair for pair in pairs if len(pair) == 2)}
