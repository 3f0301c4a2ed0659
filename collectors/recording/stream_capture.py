# SPDX-License-Identifier: GPL-2.0-only
"""Make a capture of a stream: the rows that a recording by tlstax itself would have.

Names are looked up here, in files of this host that have the build-ids of the recorded ones, and
in the names of the kernel's functions that the stream holds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import ROLES
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.recording_facts import CRYPTO_FLAGS, PRIVACY
from tlstax.collectors.placement.model import RoleMark
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.engine.budget import FLOOR_CPUS
from tlstax.collectors.recording.engine.ledger_maps import SlotView
from tlstax.collectors.recording.engine.metering import Meter, Reading, SpanOverhead
from tlstax.collectors.recording.engine.native import Engine, level_of
from tlstax.collectors.recording.engine_rows import fate_rows
from tlstax.collectors.recording.proc_clocks import Clocks
from tlstax.collectors.recording.safe_request import safety_rows
from tlstax.collectors.recording.stack_store import StackStore
from tlstax.collectors.recording.stream.plan_file import PlanFileError
from tlstax.collectors.recording.stream.recorded_files import recorded_objects, special_mappings
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.target_rows import (
    calibration_rows,
    gap_rows,
    probe_rows,
    target_row,
)
from tlstax.collectors.recording.thread_roles import ThreadRoles
from tlstax.collectors.recording.windows import WindowCutter
from tlstax.probes.model import Level

_UNKNOWN_END: Final = "unknown: the stream was cut"


class _RecordedClocks(Clocks):
    """The recorder's clocks at the end of the present window."""

    def __init__(self, replay: Replay) -> None:
        super().__init__(lambda: int(replay.window.read_ns))
        self._replay = replay

    def host_times(self) -> tuple[int, int, int, int, int]:
        now = self._replay.window
        busy = (now.host_user_ns, now.host_system_ns, now.host_interrupt_ns)
        return (*busy, now.host_steal_ns, now.host_idle_ns)

    def target_counters(self, pid: int) -> None:
        """Not in the stream."""

    def own_cpu_ns(self) -> int:
        return int(self._replay.window.own_cpu_ns)

    def resident_bytes(self) -> int:
        return int(self._replay.window.resident_bytes)


class _RecordedRoles(ThreadRoles):
    """Roles by names, and by what the recorder saw on the threads' stacks."""

    def __init__(self, replay: Replay, marks: tuple[RoleMark, ...]) -> None:
        super().__init__(replay.pid, marks)
        self._replay = replay
        self._roles = [mark.role for mark in marks for _ in mark.spans]

    def _by_stack(self, slot: SlotView) -> str:
        span = self._replay.span_of(slot)
        return self._roles[span - 1] if 0 < span <= len(self._roles) else ROLES[0]


class _RecordedSymbolizer(Symbolizer):
    """Names addresses of a process that may have ended long ago, on another host."""

    def __init__(self, replay: Replay, target: Target) -> None:
        super().__init__(target, root=Path("/"))
        self._replay = replay
        self._special = special_mappings(replay.mappings)

    def kernel(self, address: int) -> Place:
        found = self._replay.kernel_names.get(address)
        if found is None:
            return Place("kernel", "", 0, "[kernel]", 0, "none", "")
        return Place("kernel", "", 0, found[0], found[1], "kallsyms", "")

    def _refresh(self) -> None:
        """All mappings are known."""


def import_stream(stream: BinaryIO, name: str, capture: Path, overwrite: bool) -> str:
    """Write the capture of a stream; what was made, as a sentence.

    Raises TlstaxError (CAPTURE) if it is no stream, or holds what no recorder writes, and what
    `CaptureWriter.create` raises. A stream that was cut has the windows up to there.
    """
    try:
        replay = Replay(stream)
    except (StreamError, PlanFileError) as error:
        raise _unusable(name, str(error)) from None
    writer = CaptureWriter.create(capture, overwrite)
    try:
        with writer:
            windows_count = _StreamImport(replay, writer).run()
    except StreamError as error:
        capture.unlink(missing_ok=True)
        raise _unusable(name, str(error)) from None
    except BaseException:
        capture.unlink(missing_ok=True)
        raise
    text = f"{windows_count} windows of process {replay.pid}"
    if replay.reading.why_ended or replay.end is None:
        text += f"; {name} has no end: {replay.reading.why_ended or 'it was cut'}"
    return text


class _StreamImport:
    """One stream on its way into a capture."""

    def __init__(self, replay: Replay, writer: CaptureWriter) -> None:
        self._replay = replay
        self._writer = writer
        self._engine = cast(Engine, replay)
        plan_file, start = replay.plan_file, replay.start
        self._plan = plan = plan_file.plan
        objects = recorded_objects(replay.mappings, plan_file.objects)
        self._target = Target(
            replay.pid,
            plan_file.exe.rpartition("/")[2],
            plan_file.exe,
            int(start.start_ticks),
            objects,
            own_pid=int(start.own_pid),
        )
        self._level = Level[_text(start.level).upper()]
        levels = [level_of(site, self._level) for site in plan.sites]
        self._meter = Meter(self._engine, plan.sites, levels, int(start.online_count))

    def run(self) -> int:
        """Write all of it; the number of windows."""
        replay = self._replay
        self._writer.add(self._facts())
        self._writer.add(target_row(self._target, self._plan))
        self._writer.add(gap_rows(self._plan))
        self._writer.add(calibration_rows(self._plan))
        self._writer.add(safety_rows(replay.plan_file.safety))
        symbolizer = _RecordedSymbolizer(replay, self._target)
        try:
            stacks = StackStore(replay.stack_addresses, symbolizer)
            count = self._add_windows(stacks)
            rows: list[schema.Row] = []
            stacks.name_frames(rows)
            self._writer.add(rows)
        finally:
            symbolizer.close()
        self._writer.add(probe_rows(self._engine))
        self._writer.add(self._end_rows())
        return count

    def _add_windows(self, stacks: StackStore) -> int:
        replay = self._replay
        cutter = WindowCutter(
            self._engine,
            stacks,
            _RecordedRoles(replay, self._plan.role_marks),
            start_ns=int(replay.window.end_ns),
            clocks=_RecordedClocks(replay),
        )
        level = "full" if self._level == Level.RECORD else self._level.name.lower()
        count, before = 0, self._reading()
        while replay.next_window():
            rows, _ = cutter.cut(None, int(replay.window.end_ns), level)
            now = self._reading()
            overhead = self._meter.overhead(before, now, self._level, int(replay.start.sample_hz))
            self._writer.add(rows)
            self._writer.add(self._effect(cutter.windows_count, overhead))
            count, before = count + 1, now
        return count

    def _reading(self) -> Reading:
        now, replay = self._replay.window, self._replay
        return Reading(
            int(now.end_ns),
            replay.read().process_cpu_ns or 0,
            int(now.own_cpu_ns),
            tuple(replay.site_hits()),
            replay.program_times(),
            bool(now.timed),
        )

    def _effect(self, window: int, overhead: SpanOverhead) -> schema.Effect:
        known = self._meter.prices_are_known
        return schema.Effect(
            window,
            overhead.target_cpu_ns,
            round(overhead.spent.probes_ns) if known else None,
            round(overhead.spent.scheduler_ns),
            round(overhead.spent.samples_ns),
        )

    def _facts(self) -> Iterator[schema.Meta]:
        start = self._replay.start
        flags = CRYPTO_FLAGS.intersection(_text(start.cpu_flags).split())
        values: dict[str, object] = {
            "tlstax_version": __version__,
            "created_wall_ns": start.wall_ns,
            "monotonic_anchor_ns": start.monotonic_ns,
            "hostname": _text(start.hostname),
            "kernel": _text(start.kernel),
            "cpu_count": start.online_count,
            "cpu_model": _text(start.cpu_model),
            "cpu_flags": " ".join(sorted(flags)),
            "engine": "native",
            "command_level": self._level.name.lower(),
            "sample_hz": start.sample_hz,
            "probe_kind": "uprobe_multi" if start.multi else "perf_event",
            "start_cpu_ns": start.start_cpu_ns,
            "thread_room": start.slots_count,
            "thread_room_bytes": start.slots_bytes,
            "effect_floor_cpus": f"{FLOOR_CPUS:g}",
            "privacy": PRIVACY,
        }
        for key, value in values.items():
            yield schema.Meta(key, str(value))

    def _end_rows(self) -> Iterator[schema.Row]:
        replay = self._replay
        yield schema.Meta("end_monotonic_ns", str(int(replay.window.end_ns)))
        yield from fate_rows(self._engine, _text(replay.end.ending) if replay.end else _UNKNOWN_END)
        merged = int(replay.end.merged_count if replay.end else replay.window.merged_count)
        if merged:
            text = f"{merged} windows are parts of longer ones: the reader of the stream was slow."
            yield schema.Gap(1, "windows", text)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _unusable(name: str, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot import {name}",
        why,
        "Name a stream of tlstax-recorder of this version",
        ExitCode.CAPTURE,
    )
