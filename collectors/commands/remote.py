# SPDX-License-Identifier: GPL-2.0-only
"""Options and actions of the commands that take --ssh."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.commands.attach_request import budget_share
from tlstax.collectors.commands.options import target_group
from tlstax.collectors.recording.by_recorder.stretch_times import interval_s
from tlstax.probes.model import Level

if TYPE_CHECKING:
    from tlstax.collectors.preflight.judge import Finding
    from tlstax.collectors.remote.connection import Connection
    from tlstax.collectors.remote.image import Image
    from tlstax.collectors.remote.remote_plan import PlanRequest, RemotePlan


def remote_options(parser: argparse.ArgumentParser) -> None:
    """Add --ssh, --sudo and --remote-dir."""
    from tlstax.collectors.remote.destination import directory_name, host_name

    group = parser.add_argument_group("on another host")
    group.add_argument(
        "--ssh",
        type=_checked(host_name),
        metavar="[USER@]HOST",
        help="the process runs there: its files are read and it is recorded over your own ssh; "
        "nothing is installed or left there",
    )
    group.add_argument(
        "--sudo", action="store_true", help="run the recorder there by sudo -n (docs/agentless.md)"
    )
    group.add_argument(
        "--remote-dir",
        type=_checked(directory_name),
        metavar="DIR",
        help="copy the recorder there instead of to memory-backed storage",
    )


def _checked(parse: Callable[[str], str]) -> Callable[[str], str]:
    def checked(text: str) -> str:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def require_ssh(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for an option that means nothing without --ssh."""
    if not options.ssh and (options.sudo or options.remote_dir):
        raise TlstaxError(
            "--sudo or --remote-dir was given without --ssh",
            "they are about another host",
            "Give --ssh HOST, too",
            ExitCode.USAGE,
        )


def attach_there(options: argparse.Namespace) -> int:
    """`tlstax attach --ssh`."""
    from tlstax.collectors.remote.remote_plan import plan_there
    from tlstax.collectors.remote.remote_recording import RecordRequest, record_there

    _refuse_local_options(options)
    request = RecordRequest(
        output=options.output,
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
    )
    asked = _plan_request(options)
    with _opened(options) as (connection, image):
        made = plan_there(image, asked, _tell, refuse=True)
        for note in made.safety.notes:
            _tell(f"preflight ({note.hazard}): {note.text}")
        record_there(connection, made, request, _tell)
    _tell(f"detached; `tlstax report {options.output}` explains it")
    if not options.quiet:
        _tell(options.headline(options.output))
    return int(ExitCode.OK)


def plan_elsewhere(options: argparse.Namespace, show: Callable[["RemotePlan"], None]) -> int:
    """`tlstax probes plan --ssh`: `show` is given the plan while its files can be read."""
    from tlstax.collectors.remote.remote_plan import plan_there

    asked, is_file = _plan_request(options), options.output is not None
    with _opened(options) as (_, image):
        show(plan_there(image, asked, _tell, refuse=is_file))
    return int(ExitCode.OK)


def examine_there(options: argparse.Namespace) -> "Sequence[Finding]":
    """`tlstax doctor PID --ssh`: the findings."""
    from tlstax.collectors.remote.remote_plan import SYMBOLS, findings_on

    with _opened(options) as (_, image):
        image.add_process(options.pid, SYMBOLS, _tell)
        return findings_on(image, options.pid, options.accept)


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[tuple["Connection", "Image"]]:
    """A connection to the host, and an empty image of it."""
    from tlstax.collectors.remote.connection import connect
    from tlstax.collectors.remote.destination import Destination
    from tlstax.collectors.remote.image import Image

    destination = Destination(options.ssh, options.sudo, options.remote_dir or "")
    with (
        _interrupted_by_signals(),
        tempfile.TemporaryDirectory(prefix="tlstax-") as directory,
        connect(destination) as connection,
    ):
        yield connection, Image(Path(directory), connection)


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
