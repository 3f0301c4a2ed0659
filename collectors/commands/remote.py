# SPDX-License-Identifier: GPL-2.0-only
"""Actions of the commands that take --ssh."""

import argparse
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.capture_file import require_place
from tlstax.collectors.capture.printable import complain, whole_number
from tlstax.collectors.commands.attach_request import budget_share, warn_of_functions
from tlstax.collectors.commands.attach_several import (
    Failures,
    capture_name,
    captures_folder,
    end_several,
    refuse_options,
    require_room,
)
from tlstax.collectors.commands.options import target_group
from tlstax.collectors.recording.by_recorder.peers import given_twice
from tlstax.collectors.recording.by_recorder.several import SERVERS_MOST
from tlstax.collectors.recording.by_recorder.stretch_times import interval_s
from tlstax.collectors.sources.registry import NATIVE
from tlstax.probes.model import Level

if TYPE_CHECKING:
    from tlstax.collectors.preflight.judge import Finding
    from tlstax.collectors.remote.connection import Connection
    from tlstax.collectors.remote.image import Image
    from tlstax.collectors.remote.remote_plan import PlanRequest, RemotePlan
    from tlstax.collectors.remote.remote_recording import RecordRequest, RemoteRecordings

    OpenImage = Callable[[], Image]


def attach_there(options: argparse.Namespace) -> int:
    """`tlstax attach --ssh` of one server, and of its clients on that host."""
    from tlstax.collectors.remote.remote_plan import fetch, plan_there
    from tlstax.collectors.remote.remote_recording import record_there

    _refuse_local_options(options)
    asked = _plan_request(options)
    warn_of_functions(options)
    with _opened(options) as (connection, open_image):
        image = open_image()
        made = plan_there(image, fetch(image, asked, _tell), asked, _tell, refuse=True)
        for note in made.safety.notes:
            _tell(f"preflight ({note.hazard}): {note.text}")
        clients = _plan_clients(options, asked, made.target.pid, open_image)
        request = _record_request(options, options.output)
        record_there(connection, made, request, _tell, clients)
    _tell(f"detached; `tlstax report {options.output}` explains it")
    if not options.quiet:
        _tell(options.headline(options.output))
    return int(ExitCode.OK)


def _plan_clients(
    options: argparse.Namespace, of_server: "PlanRequest", server: int, open_image: "OpenImage"
) -> "list[RemotePlan]":
    """Find the clients of a server on its host, examine them and plan for them, as for a server.

    Raises TlstaxError.
    """
    from tlstax.collectors.remote.remote_plan import SYMBOLS, find, plan_there

    level = Level[options.client_level.upper()]
    asked = replace(of_server.of_client(), level=level)
    made: list[RemotePlan] = []
    for text in options.client:
        pid = whole_number(text, 9)
        if pid is None:
            pid = find(open_image(), replace(asked, name=text))
        if pid in (server, *(one.target.pid for one in made)):
            raise given_twice(pid)
        image, tell = open_image(), _teller_of(pid)
        image.add_process(pid, SYMBOLS, tell)
        made.append(plan_there(image, pid, asked, tell, refuse=True))
        for note in made[-1].safety.notes:
            tell(f"preflight ({note.hazard}): {note.text}")
    return made


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
    warn_of_functions(options)
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

    tell = _teller_of(pid)
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

    role = "client" if options.client else "server"
    asked, is_file = replace(_plan_request(options), role=role), options.output is not None
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

    destination = Destination(
        options.ssh, options.sudo, options.remote_dir or "", options.remote_recorder or ""
    )
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
    level = options.level if isinstance(options.level, Level) else Level[options.level.upper()]
    return PlanRequest(
        options.pid,
        options.name,
        level,
        definitions=options.definitions,
        accepted=tuple(options.accept),
        group=group,
        has_stretches=bool(options.calibrate),
        chooses_level=getattr(options, "chooses_level", False),
        has_networks=getattr(options, "client_networks", None) is not None,
        functions=tuple(options.functions or ()),
    )


def _refuse_local_options(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for what is not done on another host."""
    if tuple(options.collect) != (NATIVE,):
        raise TlstaxError(
            "--collect was given with --ssh",
            "other sources run programs of the server's host, where only the recorder runs",
            "Leave --collect out, or run tlstax on that host",
            ExitCode.USAGE,
        )
    if len(options.client) >= SERVERS_MOST:
        raise TlstaxError(
            f"--client was given {len(options.client)} times with --ssh",
            f"one recorder records a server and {SERVERS_MOST - 1} clients at most",
            "Name fewer of them",
            ExitCode.USAGE,
        )


def _teller_of(pid: int) -> Callable[[str], None]:
    """Tells what is said of one of several processes."""
    return lambda text: _tell(text if re.search(rf"\b{pid}\b", text) else f"process {pid}: {text}")


def _tell(text: str) -> None:
    complain(text)  # in one line: it names what another host sent
