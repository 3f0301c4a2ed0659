# SPDX-License-Identifier: GPL-2.0-only
"""The native engine's options, and the rows that a capture holds once: request, probes, end."""

from collections.abc import Iterable

from tlstax.collectors.capture import schema
from tlstax.collectors.host.recording_facts import cpu_facts, recording_facts
from tlstax.collectors.process.target import Target
from tlstax.collectors.process.thread_room import thread_room
from tlstax.collectors.recording.engine.native import Engine, Options
from tlstax.collectors.recording.engine.walker import WALK_ENDS
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import programs_of, safety_rows
from tlstax.collectors.recording.target_rows import (
    calibration_rows,
    gap_rows,
    probe_rows,
    target_row,
)


def engine_options(request: Request, target: Target) -> Options:
    """What the engine is to do, and for how many threads."""
    room = request.threads_most or thread_room(request.pid)
    stacks = request.safety is None or request.safety.user_stacks
    programs = request.programs or programs_of(request.safety)
    return Options(
        request.sample_hz,
        room,
        stacks,
        request.unwind_tables,
        programs=programs,
        files=target.objects,
    )


def engine_facts(request: Request, engine: Engine, start_cpu_ns: int) -> Iterable[schema.Meta]:
    """What was requested, and how the engine records it. `start_cpu_ns`: CPU time of startup."""
    asked: dict[str, object] = {
        "sample_hz": request.sample_hz,
        "probe_kind": "uprobe_multi" if engine.multi else "perf_event",
        "start_cpu_ns": start_cpu_ns,
        **stack_facts(engine),
        "thread_room": engine.options.slots_count,
        "thread_room_bytes": engine.maps.slots_bytes,
    }
    return recording_facts("native", request.level.name.lower(), **cpu_facts(), **asked)


def stack_facts(engine: Engine) -> dict[str, object]:
    """How user stacks are walked, and what that needs."""
    if not engine.options.user_stacks:
        return {"user_stacks": "none"}
    if not engine.walker.enabled:
        return {"user_stacks": "frame pointers"}
    return {"user_stacks": "unwind tables", "unwind_bytes": engine.walker.tables_bytes}


def described(request: Request, target: Target, engine: Engine) -> Iterable[schema.Row]:
    """What is measured, by which probes, and what the recording lacks."""
    yield target_row(target, engine.plan)
    yield from probe_rows(engine)
    yield from calibration_rows(engine.plan)
    yield from gap_rows(engine.plan)
    yield from safety_rows(request.safety)


def fate_rows(engine: Engine, ending: str) -> Iterable[schema.Row]:
    """How the target ended ("" while it runs), and the processes that it started."""
    yield schema.Meta("target_ending", ending or "it was running")
    if count := engine.maps.forked_count():
        text = f"{count} were started while it was recorded; they are not measured."
        yield schema.Gap(1, "processes that it started", text)


def walk_rows(engine: Engine) -> Iterable[schema.Row]:
    """How many stacks were walked by unwind tables, how many whole, and what has no table."""
    if engine.walker.enabled:
        walks = engine.walker.counts()
        yield schema.Meta("stack_walk_count", str(sum(walks[end] for end in WALK_ENDS)))
        yield schema.Meta("stack_whole_count", str(walks["complete"]))
    if missing := engine.walker.without_table():
        text = f"{', '.join(missing)}: callers there are found by frame pointers, or are missing."
        yield schema.Gap(1, "files without unwind tables", text)
