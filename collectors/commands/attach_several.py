# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach` of several servers: one recorder, a folder with one capture for each."""

import argparse
import copy
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.capture_file import require_place, write_error
from tlstax.collectors.capture.printable import complain
from tlstax.collectors.commands.attach_request import poll_time_s, request_for
from tlstax.collectors.commands.options import target_group
from tlstax.collectors.commands.progress import Progress
from tlstax.collectors.commands.stop_flag import StopFlag
from tlstax.collectors.process.find_process import find_all
from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.recording.by_recorder.ready_server import ReadyServer, make_ready
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.by_recorder.several import SERVERS_MOST, SeveralServers
from tlstax.collectors.sources import registry


def is_several(options: argparse.Namespace) -> bool:
    """Whether several servers were asked for."""
    return len(options.pids) > 1 or options.all


class Made(Protocol):
    """A capture that was made."""

    @property
    def pid(self) -> int:
        """Of the server."""

    @property
    def capture(self) -> Path:
        """Its file."""


class Failures:
    """What was told of servers that are not recorded, or not to their end."""

    def __init__(self) -> None:
        self.code = ExitCode.OK
        """Of the first one."""
        self.pids: set[int] = set()

    def tell(self, pid: int, error: TlstaxError) -> None:
        """Print its line; the others go on."""
        text = str(error)
        complain(text if re.search(rf"\b{pid}\b", text) else f"process {pid}: {text}")
        self.code = self.code or ExitCode(error.exit_code)
        self.pids.add(pid)


def attach_several(options: argparse.Namespace) -> int:
    """Record until the time is up, Ctrl-C, or the end of all servers.

    The exit code is that of the first server that could not be recorded to the end.
    """
    refuse_options(options)
    group = target_group(options)
    pids = options.pids or find_all(group, options.name or "")
    require_room(pids)
    failures = Failures()
    with captures_folder(options.output):
        stop = StopFlag()
        ready: list[ReadyServer] = []
        try:
            for pid in pids:
                if server := _ready(options, pid, failures):
                    ready.append(server)
                if stop.requested:
                    raise KeyboardInterrupt
        except BaseException:
            for server in ready:
                server.writer.discard()
            raise
        if not ready:
            return int(failures.code)
        with SeveralServers(ready, failures.tell, options.duration_s) as servers:
            servers.wake_on(stop.fd)
            for one in servers.recordings:
                _announce(one, options)
            _watch(servers, options, stop)
    return end_several(options, failures, [one.request for one in servers.recordings])


def end_several(options: argparse.Namespace, failures: Failures, recorded: Iterable[Made]) -> int:
    """Tell of the captures that are whole; the exit code."""
    whole = [one for one in recorded if one.pid not in failures.pids]
    if whole:
        text = f"`tlstax report {whole[0].capture}` explains "
        text += "it" if len(whole) == 1 else f"one of {len(whole)} captures"
        print(f"tlstax: detached; {text}", file=sys.stderr)
    for one in () if options.quiet else whole:
        text = options.headline(one.capture)
        print(f"tlstax: process {one.pid}: {text}", file=sys.stderr)
    return int(failures.code)


def _ready(options: argparse.Namespace, pid: int, failures: Failures) -> ReadyServer | None:
    """Examine a server and plan for it; None: its line was told."""
    own = copy.copy(options)
    own.output = options.output / capture_name(pid)
    try:
        require_place(own.output, own.force)
        request = request_for(own, pid)
        return make_ready(replace(request, duration_s=None))  # all end at the same time
    except TlstaxError as error:
        failures.tell(pid, error)
        return None


def _announce(recording: Recorder, options: argparse.Namespace) -> None:
    request = recording.request
    print(f"tlstax: attached to {request.pid}, recording to {request.capture}", file=sys.stderr)
    texts = [
        f"preflight ({n.hazard}): {n.text}"
        for n in (request.safety.notes if request.safety else ())
    ]
    is_worth_telling = options.budget is not None or options.chooses_level
    if (summary := recording.budget_summary) and (is_worth_telling or not recording.is_continuous):
        texts.append(summary)
    for text in texts:
        print(f"tlstax: process {request.pid}: {text}", file=sys.stderr)


def _watch(servers: SeveralServers, options: argparse.Namespace, stop: StopFlag) -> None:
    """Until the time is up, Ctrl-C, or the end of all servers."""
    live = None if options.quiet else Progress(sys.stderr.isatty())
    poll_s, told = poll_time_s(options), set[int]()
    left_s = options.duration_s if options.duration_s is not None else float("inf")
    while left_s > 0 and not stop.requested and servers.current and not servers.is_unwritable:
        step_s = min(poll_s, left_s)
        servers.poll(step_s)
        left_s -= step_s
        for one in servers.recordings:
            if one.has_ended_early and one.pid not in told and servers.current:
                told.add(one.pid)
                if live:
                    live.end()
                text = f"process {one.pid} is no longer recorded: {one.ending}; the others are"
                print(f"tlstax: {text}", file=sys.stderr)
        windows = [one.last for one in servers.current if one.last]
        if live and windows:
            live.show(*windows)
    if live:
        live.end()
    if servers.is_unwritable:
        print("tlstax: a capture cannot be written: the other recordings end, too", file=sys.stderr)


def require_room(pids: Sequence[int]) -> None:
    """Raise TlstaxError (USAGE) if one recorder cannot record these."""
    twice = [pid for pid in pids if pids.count(pid) > 1]
    if twice:
        raise TlstaxError(
            f"process {twice[0]} was given twice",
            "each server has one capture",
            "Name each process once",
            ExitCode.USAGE,
        )
    if len(pids) > SERVERS_MOST:
        raise TlstaxError(
            f"{len(pids)} processes are too many",
            f"one recorder records {SERVERS_MOST} at most",
            "Pass the pids of fewer of them, and start tlstax again for the others",
            ExitCode.USAGE,
        )


def refuse_options(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for what is only for one server; set `pid`."""
    options.pid = options.pids[0] if options.pids else None
    given = {
        "--client": (options.client, "a capture has the clients of one server"),
        "--collect": (
            tuple(options.collect) != (registry.NATIVE,),
            "sources other than native are set up for one server",
        ),
    }
    for name, (is_given, why) in given.items():
        if is_given:
            raise TlstaxError(
                f"{name} was given with several servers",
                why,
                f"Leave {name} out, or attach to one server at a time",
                ExitCode.USAGE,
            )
    if options.all and options.pids:
        raise TlstaxError(
            "--all was given with a pid",
            "it means all processes of a name, unit, container or pod",
            "Leave it out and pass all pids, or give --name, --unit, --container or --pod",
            ExitCode.USAGE,
        )


@contextmanager
def captures_folder(path: Path) -> Iterator[None]:
    """Make the folder for the captures if it is not there; one that stays empty is removed."""
    is_new = not path.exists()
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise TlstaxError(
            f"{path} is not a folder",
            "several servers have one capture each",
            "Name a folder with -o; it is made if it is not there",
            ExitCode.USAGE,
        ) from None
    except OSError as error:
        raise write_error(path, error) from error
    try:
        yield
    finally:
        if is_new:
            with suppress(OSError):  # there are captures in it
                path.rmdir()


def capture_name(pid: int, proc: Path = PROC) -> str:
    """The name of a server's capture: that of its process, and its pid."""
    try:
        text = (proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        text = ""
    name = re.sub(r"[^\w.-]", "_", text, flags=re.ASCII).lstrip(".-") or "process"
    return f"{name}-{pid}.tlstax"
