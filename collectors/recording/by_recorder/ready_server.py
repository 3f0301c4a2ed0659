# SPDX-License-Identifier: GPL-2.0-only
"""A server that is ready to be recorded: examined, planned, with a capture to write."""

import os
from collections.abc import Callable
from typing import NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.clock import cpu_used_ns
from tlstax.collectors.placement.planning import plan_functions_in_child, plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.target import Target, require_host_pids
from tlstax.collectors.process.target_fate import require_same_program
from tlstax.collectors.process.thread_room import thread_room
from tlstax.collectors.recording.by_recorder.asked import Asked, Recorded
from tlstax.collectors.recording.by_recorder.child import ChildPart, ChildTarget
from tlstax.collectors.recording.by_recorder.stretch_times import stretch_plan
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import limits_of, made_safe
from tlstax.collectors.recording.stream.tables_file import (
    GrowingTables,
    process_tables,
    usable_tables,
)


class ReadyServer(NamedTuple):
    """What is known of a server before anything is attached. Its capture is discarded or used."""

    request: Request
    """With its preflight, and without what that leaves out."""
    asked: Asked
    """What is to be recorded."""
    told: ChildTarget
    """What the recorder is told of it: the process may end before that starts."""
    writer: CaptureWriter
    spent_ns: int
    """CPU time that this took, starting Python included where a process does nothing else."""


class Share(NamedTuple):
    """A server's part of a recorder that records several."""

    server: ReadyServer
    child: ChildPart
    used_ns: Callable[[], int]
    """CPU time of this process for that server."""
    others: Callable[[], tuple[int, ...]]
    """Processes that the recorder is attached to, too, as far as is known."""
    recording_id: str


def make_ready(request: Request) -> ReadyServer:
    """Examine a server, plan for it and create its capture. Raises TlstaxError.

    Forks: call it while this process has one thread.
    """
    before_ns = 0 if request.is_all else cpu_used_ns()
    require_host_pids()
    request = made_safe(request)
    target, plan = plan_in_child(
        *(request.pid, request.level, request.definitions),
        limits=limits_of(request),
        networks=request.has_networks,
    )
    of_functions = (request.pid, request.functions, request.definitions, limits_of(request))
    functions = plan_functions_in_child(*of_functions) if request.functions else None
    stretches = stretch_plan(request, plan)
    safety = request.safety or Safety()
    recorded = Recorded(target, plan, safety, functions, stretches, recorder=request.recorder)
    writer = CaptureWriter.create(request.capture, request.overwrite)
    try:
        tables = _own_tables(request, target)
        asked = Asked(recorded, _arguments(request, has_stretches=bool(stretches)), tables)
        told = asked.of_child
    except BaseException as error:
        writer.discard()
        if isinstance(error, TlstaxError):
            require_same_program(target)  # the reason of any error, if it ended
        raise
    spent_ns = cpu_used_ns() - before_ns
    return ReadyServer(request, asked, told, writer, spent_ns)


def _own_tables(request: Request, target: Target) -> GrowingTables | None:
    """The unwind tables of the process; None where stacks are not walked by them."""
    if not request.unwind_tables or not (request.safety or Safety()).user_stacks:
        return None
    return usable_tables(request.pid, process_tables(request.pid, known=target.objects))


def _arguments(request: Request, *, has_stretches: bool) -> list[str]:
    room = request.threads_most or thread_room(request.pid)
    values = {
        "--pid": str(request.pid),
        "--window": f"{request.window_s * 1000:.3f}ms",
        "--sample-hz": str(request.sample_hz),
        "--slots": str(room),
    }
    if request.budget is not None:
        values |= {"--budget": f"{request.budget:%}", "--reader": str(os.getpid())}
    if request.duration_s is not None:
        values["--for"] = f"{request.duration_s * 1000:.3f}ms"
    if request.network_bits is not None:
        values["--client-networks"] = ",".join(map(str, request.network_bits))
    if has_stretches:
        values["--calibrate"] = f"{(request.calibration_s or 0) * 1000:.3f}ms"
    words = [word for pair in values.items() for word in pair]
    words.append("--measure-cost")
    words += ["--choose-level"] if has_stretches and request.chooses_level else []
    words += ["--traced"] if "tracer" in request.accepted else []
    return [*words, "--or-everything"] if request.budget_is_default else words
