# SPDX-License-Identifier: GPL-2.0-only
"""What a stream says of its recording as a whole: how programs recorded, how stacks were walked."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.recording.programs.names import WALK_ENDS
from tlstax.collectors.recording.stream.recorded_files import without_table
from tlstax.collectors.recording.stream.replay import Replay

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


def engine_asked(replay: Replay, start_cpu_ns: int) -> dict[str, object]:
    """How the programs recorded. `start_cpu_ns`: CPU time until they were attached."""
    start, functions = replay.start, replay.plan_file.functions
    asked: dict[str, object] = {}
    if functions:
        asked["functions"] = ", ".join(functions.asked)
        missing = (*functions.absent, *functions.unsafe)
        asked["missing_functions"] = ", ".join(missing) or "none"
    if any(replay.network_bits):
        asked["client_networks"] = ",".join(map(str, replay.network_bits))
    return asked | {
        "sample_hz": start.sample_hz,
        "probe_kind": "uprobe_multi" if start.multi else "perf_event",
        "start_cpu_ns": start_cpu_ns,
        **stack_walk_facts(replay),
        "thread_room": start.slots_count,
        "thread_room_bytes": start.slots_bytes,
    }


def stack_walk_facts(replay: Replay) -> dict[str, object]:
    """How user stacks were walked, and what that needed."""
    if not replay.plan_file.safety.user_stacks:
        return {"user_stacks": "none"}
    if not replay.start.unwind_bytes:
        return {"user_stacks": "frame pointers"}
    return {"user_stacks": "unwind tables", "unwind_bytes": replay.start.unwind_bytes}


def stream_walk_rows(
    replay: Replay, walks: Mapping[str, int], earlier: Mapping[str, int] = _NONE
) -> Iterator[schema.Row]:
    """How many stacks were walked by unwind tables, how many whole, and what has no table.

    `walks`: by WALK_COUNTS, of which earlier captures have `earlier`.
    """
    if not replay.start.unwind_bytes:
        return
    counts = {end: walks.get(end, 0) - earlier.get(end, 0) for end in WALK_ENDS}
    yield schema.Meta("stack_walk_count", str(sum(counts.values())))
    yield schema.Meta("stack_whole_count", str(counts["complete"]))
    if missing := without_table(replay.mappings):
        text = f"{', '.join(missing)}: callers there are found by frame pointers, or are missing."
        yield schema.Gap(1, "files without unwind tables", text)


def suspend_rows(window_id: int, before_ns: int, now_ns: int) -> Iterator[schema.Gap]:
    """What a suspend of the host in a window means; `now_ns`: suspended up to its end."""
    if now_ns > before_ns:
        slept_s = (now_ns - before_ns) / 1e9
        text = f"The host was suspended for {slept_s:.1f} s: that time is in no figure, and times"
        text += " of day of what came later are too early by it."
        yield schema.Gap(1, f"times of day after window {window_id}", text)


def text_of(raw: bytes) -> str:
    """A text of the stream, whatever bytes it has."""
    return raw.decode("utf-8", "replace")
