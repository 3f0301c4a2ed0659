# SPDX-License-Identifier: GPL-2.0-only
"""Actions of the commands that take --ssh."""

import argparse
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.capture_file import require_place
from tlstax.collectors.commands.attach_request import budget_share
from tlstax.collectors.commands.attach_several import (
    Failures,
    capture_name,
    captures_folder,
    end_several,
    refuse_options,
    require_room,
)
from tlstax.collectors.commands.options import target_group
from tlstax.collectors.recording.by_recorder.stretch_times import interval_s
from tlstax.probes.model import Level

if TYPE_CHECKING:
    from tlstax.collectors.preflight.judge import Finding
    from tlstax.collectors.remote.connection import Connection
    from tlstax.collectors.remote.image import Image
    from tlstax.collectors.remote.remote_plan import PlanRequest, RemotePlan
    from tlstax.collectors.remote.remote_recording import RecordRequest, RemoteRecordings


def attach_there(options: argparse.Namespace) -> int:
    """`tlstax attach --ssh` of one server."""
    from tlstax.collectors.remote.remote_plan import fetch, plan_there
    from tlstax.collectors.remote.remote_recording import record_there

    _refuse_local_options(options)
    asked = _plan_request(options)
    with _opened(options) as (connection, open_image):
        image = open_image()
        made = plan_there(image, fetch(image, asked, _tell), asked, _tell, refuse=True)
        for note in made.safety.notes:
            _tell(f"preflight ({note.hazard}): {note.text}")
        record_there(connection, made, _record_request(options, options.output), _tell)
    _tell(f"detached; `tlstax report {options.output}` explains it")
    if not options.quiet:
        _tell(options.headline(options.output))
    return int(ExitCode.OK)


class _Made(NamedTuple):
    pid: int
    capture: Path


def attach_several_there(options: argparse.Namespace) -> int:
    """`tlstax attach --ssh` of several servers; see `attach_several`."""
    from tlstax.collectors.remote.remote_plan import find_servers
    from tlstax.collectors.remote.remote_recording import RemoteRecordings

    refuse_options(options)
    _refuse_local_options(options)
    asked, failures, made = _plan_request(options), Failures(), list[_Made]()
    with captures_folder(options.output), _opened(options) as (connection, open_image):
        pids = options.pids or find_servers(open_image(), asked)
        require_room(pids)
        with RemoteRecordings(connection, failures.tell, _tell, keeps_going=True) as recordings:
            for pid in pids:
                try:
                    capture = _add_server(options, asked, recordings, open_image(), pid)
                except TlstaxError as error:
                    if not connection.can_be_asked:
                        raise
                    failures.tell(pid, error)
                else:
                    made.append(_Made(pid, capture))
            if made:
                recordings.run()
    if recordings.is_unwritable:
        _tell("a capture cannot be written: the other recordings ended, too")
    return end_several(options, failures, made)


def _add_server(
    options: argparse.Namespace,
    asked: "PlanRequest",
    recordings: "RemoteRecordings",
    image: "Image",
    pid: int,
) -> Path:
    """Examine a server of several and plan for it; its capture. Raises TlstaxError."""
    from tlstax.collectors.remote.remote_plan import SYMBOLS, plan_there

    def tell(text: str) -> None:
        _tell(text if re.search(rf"\b{pid}\b", text) else f"process {pid}: {text}")

    image.add_process(pid, SYMBOLS, tell)
    capture = Path(options.output / capture_name(pid, image.proc))
    require_place(capture, options.force)
    made = plan_there(image, pid, asked, tell, refuse=True)
    recordings.add(made, _record_request(options, capture))
    for note in made.safety.notes:
        tell(f"preflight ({note.hazard}): {note.text}")
    return capture


def _record_request(options: argparse.Namespace, output: Path) -> "RecordRequest":
    from tlstax.collectors.remote.remote_recording import RecordRequest

    return RecordRequest(
        output=output,
        overwrite=options.force,
        for_s=options.duration_s,
        window_s=options.window or 1.0,
        sample_hz=options.sample_hz,
        slots_count=options.max_threads,
        may_be_traced="tracer" in options.accept,
        calibration_s=interval_s(options.duration_s) if options.calibrate else None,
        chooses_level=options.chooses_level,
        unwind_tables=options.stacks != "frame-pointers",
        budget=budget_share(options),
        budget_is_default=options.budget is None,
        network_bits=options.client_networks,
    )


def plan_elsewhere(options: argparse.Namespace, show: Callable[["RemotePlan"], None]) -> int:
    """`tlstax probes plan --ssh`: `show` is given the plan while its files can be read."""
    from tlstax.collectors.remote.remote_plan import fetch, plan_there

    asked, is_file = _plan_request(options), options.output is not None
    with _opened(options) as (_, open_image):
        image = open_image()
        show(plan_there(image, fetch(image, asked, _tell), asked, _tell, refuse=is_file))
    return int(ExitCode.OK)


def examine_there(options: argparse.Namespace) -> "Sequence[Finding]":
    """`tlstax doctor PID --ssh`: the findings."""
    from tlstax.collectors.remote.remote_plan import SYMBOLS, findings_on

    with _opened(options) as (_, open_image):
        image = open_image()
        image.add_process(options.pid, SYMBOLS, _tell)
        return findings_on(image, options.pid, options.accept)


@contextmanager
def _opened(
    options: argparse.Namespace,
) -> Iterator[tuple["Connection", Callable[[], "Image"]]]:
    """A connection to the host, and what makes an empty image of it: one for each process."""
    from tlstax.collectors.remote.connection import connect
    from tlstax.collectors.remote.destination import Destination
    from tlstax.collectors.remote.image import Image

    destination = Destination(options.ssh, options.sudo, options.remote_dir or "")
    with (
        _interrupted_by_signals(),
        tempfile.TemporaryDirectory(prefix="tlstax-") as directory,
        connect(destination) as connection,
    ):
        yield connection, lambda: Image(Path(tempfile.mkdtemp(dir=directory)), connection)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does: what was made here is removed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plan_request(options: argparse.Namespace) -> "PlanRequest":
    from tlstax.collectors.remote.remote_plan import PlanRequest

    group = target_group(options)
    if any(group) and options.name is None:
        raise TlstaxError(
            f"{group} was given with --ssh, without --name",
            "the recorder on the other host finds processes by their name only",
            "Give --name, too",
            ExitCode.USAGE,
        )
    level = options.level if isinstance(options.level, Level) else Level[options.level.upper()]
    return PlanRequest(
        options.pid,
        options.name,
        level,
        "client" if options.client else "server",
        options.definitions,
        tuple(options.accept),
        group,
        has_stretches=bool(options.calibrate),
        chooses_level=getattr(options, "chooses_level", False),
        has_networks=getattr(options, "client_networks", None) is not None,
    )


def _refuse_local_options(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for what a recorder on another host cannot do."""
    given = {
        "--client": bool(options.client),
        "--functions": bool(options.functions),
        "--collect": tuple(options.collect) != ("native",),
    }
    for name, is_given in given.items():
        if is_given:
            raise TlstaxError(
                f"{name} was given with --ssh",
                "the recorder that runs on the other host cannot do it yet",
                f"Leave {name} out, or run tlstax on that host",
                ExitCode.USAGE,
            )


def _tell(text: str) -> None:
    print(f"tlstax: {text}", file=sys.stderr)
