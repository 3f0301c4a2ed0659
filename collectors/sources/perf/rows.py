# SPDX-License-Identifier: GPL-2.0-only
"""Samples of perf as rows of a capture: one window of the engine `perf`.

Phases come from the boundary functions in each stack. Functions without a name in the TLS library
are described by their instructions, as the native engine does, where the file at hand is the one
that perf sampled (equal build-id).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.nameless import NamelessFunctions
from tlstax.collectors.binary.rooted_files import path_below
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.frame_ids import FRAMES_MAX
from tlstax.collectors.process.symbols import demangle, stem
from tlstax.collectors.sources.perf.script import UNNAMED, PerfFrame, PerfSample
from tlstax.collectors.sources.stacks.boundary_aliases import Aliases, read_aliases
from tlstax.collectors.sources.stacks.stack_phases import StackPhases
from tlstax.collectors.sources.stacks.stack_syscalls import syscall_of
from tlstax.probes.model import Definition

FIRST_ID: Final = 1 << 40
"""Ids of frames, stacks and windows of perf begin here, above all of the native engine."""
RETURN_PROBE: Final = "[return probe]"
"""The frame at which a walk ends because a return probe has replaced the caller's address."""
_TRAMPOLINES: Final = frozenset({0x7FFFFFFFE000, 0x7FFFFFFFDFFF})
"""The address to which probed functions return on x86-64, and the same less 1, as walks show it."""
_CLOCKS: Final = ("cpu-clock", "task-clock")


class PerfRows:
    """Collects samples; `rows` returns their sums."""

    def __init__(
        self,
        definitions: Sequence[Definition],
        build_ids: Mapping[str, str],
        root: str = "",
        leader: str = "",
    ) -> None:
        """`build_ids`: by path, what perf recorded; `root`: where the paths begin on this host.

        `leader`: the event whose samples count; those of others only add to their counters.
        """
        self._phases = StackPhases(definitions)
        self._names = FileNames(build_ids, root, definitions)
        self._leader = leader
        self._counters: Counter[tuple[str, str]] = Counter()
        self._build_ids = build_ids
        self._frames: dict[PerfFrame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._filed: dict[tuple[PerfFrame, ...], tuple[str, int, int | None, int | None]] = {}
        self._samples: Counter[tuple[str, int, int | None, int | None]] = Counter()
        self._threads: Counter[tuple[int, str]] = Counter()
        self.start_ns = self.end_ns = 0
        self.sample_count = 0
        self._cut_count = 0

    def add(self, sample: PerfSample, count: int = 1) -> None:
        """Count one sample, or `count` equal ones."""
        if len(sample.frames) > FRAMES_MAX:
            sample = sample._replace(frames=sample.frames[:FRAMES_MAX])
            self._cut_count += count
        key = self._filed.get(sample.frames)
        if key is None:
            key = self._filed[sample.frames] = self._file(sample.frames)
        phase, counter = key[0], sample.counter
        if counter not in _CLOCKS:
            self._counters[phase, counter] += sample.period
        if self._leader and counter != self._leader:
            return
        self._samples[key] += count
        self._threads[sample.tid, phase] += count
        self.sample_count += count
        self.start_ns = min(self.start_ns or sample.time_ns, sample.time_ns)
        self.end_ns = max(self.end_ns, sample.time_ns)

    def _file(self, frames: tuple[PerfFrame, ...]) -> tuple[str, int, int | None, int | None]:
        """Phase, system call, user and kernel stack."""
        user = tuple(self._names.corrected(one) for one in frames if not one.is_kernel)
        kernel = tuple(one for one in frames if one.is_kernel)
        call = syscall_of([one.symbol for one in kernel], user[0].symbol if user else "")
        return self._phase(user), call, self._stack(user), self._stack(kernel)

    def _phase(self, user: tuple[PerfFrame, ...]) -> str:
        """The phase of a user stack, by its names and the aliases of functions without a name."""
        cut = bool(user) and user[-1].symbol == RETURN_PROBE
        names = [
            self._names.boundary(frame, cut=cut and at == len(user) - 2) or frame.symbol
            for at, frame in enumerate(user)
        ]
        return self._phases.phase(names, cut=cut)

    def rows(self, window: schema.Window, sample_ns: float) -> list[schema.Row]:
        """All rows, in that window; each sample stands for `sample_ns` on a CPU."""
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
        if self._cut_count:
            made.append(schema.Loss(window.window_id, "stack_cut", self._cut_count))
        length_ns = window.end_ns - window.start_ns
        made += (
            schema.Metric(window.end_ns, length_ns, "perf", phase, f"{counter}_count", float(count))
            for (phase, counter), count in self._counters.items()
            if count
        )
        return made

    def close(self) -> None:
        """Close the files that were read for names."""
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
        place = (frame.object, build_id, self._names.file_offset(frame))
        if frame.symbol != UNNAMED:
            name = demangle(frame.symbol.partition("@")[0])
            return schema.Frame(number, *place, name, frame.symbol_offset_bytes, "perf", "")
        name, offset, code = self._names.describe(frame.object, frame.address)
        return schema.Frame(number, *place, name, offset, "none", code)


class FileNames:
    """Identifies functions without a name, file by file."""

    def __init__(
        self, build_ids: Mapping[str, str], root: str, definitions: Sequence[Definition] = ()
    ) -> None:
        self._build_ids = build_ids
        self._root = root
        self._definitions = definitions
        self._aliases: dict[str, Aliases] = {}
        self._known: dict[tuple[str, int, bool], str] = {}
        self._corrected: dict[PerfFrame, PerfFrame] = {}
        self._files: dict[str, tuple[Elf, NamelessFunctions] | None] = {}

    def describe(self, path: str, address: int) -> tuple[str, int, str]:
        """A label of the function, the distance from its start, evidence from its instructions."""
        opened = self._opened(path)
        if opened is not None:
            with suppress(TlstaxError):
                bounds, code = opened[1].describe(address)
                return f"[{stem(path)}+{bounds.start:#x}]", address - bounds.start, code
        return f"[{stem(path)}+{address:#x}]", 0, ""

    def corrected(self, frame: PerfFrame) -> PerfFrame:
        """The frame without a name that is only its neighbour's, and with what a trap page means.

        Where a stripped file has no name for a function, perf shows that of the last one before.
        """
        if frame.symbol == UNNAMED:
            if frame.address in _TRAMPOLINES:
                return PerfFrame(0, RETURN_PROBE, 0, "[uprobes]")
            return frame
        if frame not in self._corrected:
            self._corrected[frame] = frame
            opened = self._opened(frame.object)
            with suppress(TlstaxError):
                start = opened[1].known_start(frame.address) if opened else None
                if start is not None and start > frame.address - frame.symbol_offset_bytes:
                    plain = frame._replace(symbol=UNNAMED, symbol_offset_bytes=0)
                    self._corrected[frame] = plain
        return self._corrected[frame]

    def file_offset(self, frame: PerfFrame) -> int:
        """Where a frame's code is in its file; its address if the file is unavailable."""
        opened = self._opened(frame.object)
        offset = opened[0].to_offset(frame.address) if opened else None
        return frame.address if offset is None else offset

    def boundary(self, frame: PerfFrame, *, cut: bool) -> str:
        """The boundary function that a frame stands for; "" if its own name is enough."""
        nameless = frame.symbol == UNNAMED
        if not (nameless or cut):
            return ""
        key = frame.object, frame.address, cut
        if key not in self._known:
            self._known[key] = self._alias(frame, nameless=nameless, cut=cut)
        return self._known[key]

    def _alias(self, frame: PerfFrame, *, nameless: bool, cut: bool) -> str:
        opened = self._opened(frame.object)
        if opened is None:
            return ""
        with suppress(TlstaxError):
            if frame.object not in self._aliases:
                self._aliases[frame.object] = read_aliases(opened[0], self._definitions)
            start = opened[1].known_start(frame.address)
            return self._aliases[frame.object].of(start or 0, nameless=nameless, cut=cut)
        return ""

    def _opened(self, path: str) -> tuple[Elf, NamelessFunctions] | None:
        if path not in self._files:
            self._files[path] = self._open(path)
        return self._files[path]

    def _open(self, path: str) -> tuple[Elf, NamelessFunctions] | None:
        """The file, if it exists and is still the one that was sampled."""
        if path not in self._build_ids:
            return None
        with suppress(TlstaxError, OSError):
            elf = Elf(path_below(self._root or "/", path))
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


def read_leader(text: str) -> tuple[str, float]:
    """The event that samples, and its rate per second and CPU, from `perf evlist -F`.

    "" and 0 if it prints none.
    """
    found = re.search(r"^(\S+?)(?::\w+)?: sample_freq=(\d+)", text, re.MULTILINE)
    return (found[1], float(found[2])) if found else ("", 0.0)


def read_build_ids(text: str) -> dict[str, str]:
    """Build-ids by path, from the output of `perf buildid-list`."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines())
    return {path: build_id for build_id, path in (pair for pair in pairs if len(pair) == 2)}
