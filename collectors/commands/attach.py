# SPDX-License-Identifier: GPL-2.0-only
"""Record a running server into a capture. The server is not restarted.

Before anything is attached the kernel and the process are examined: see `tlstax doctor PID`.

Several servers are recorded at once, by one recorder, into a capture each:

    tlstax attach 1234 5678 --for 30s -o captures
    tlstax attach --name mysqld --all --for 30s -o captures

The kernel sets breakpoints on the instructions that `tlstax probes plan PID` shows; nothing else is
written to the server. They are removed when tlstax ends, even if it is killed. Stop with Ctrl-C.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.capture_file import require_place
from tlstax.collectors.commands.attach_request import (
    QUIET_POLL_S,
    add_arguments,
    budget_share,
    poll_time_s,
    refuse_contradictions,
    request_for,
    settle_level,
)
from tlstax.collectors.commands.attach_several import attach_several, is_several
from tlstax.collectors.commands.options import remote_options, require_ssh, target_pid
from tlstax.collectors.commands.progress import Progress
from tlstax.collectors.commands.stop_flag import StopFlag
from tlstax.collectors.placement.return_probes import ACCEPT, return_probe_refused
from tlstax.collectors.preflight.safety import Safety, at_level
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.plain import PlainRecording
from tlstax.collectors.recording.safe_request import preflight, require_safe_sources
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources import registry

Recording = Recorder | PlainRecording


def register(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    headline: Callable[[Path], str],
) -> None:
    """Add `attach` to the command line."""
    parser = subparsers.add_parser(
        "attach",
        help="record a running server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    remote_options(parser)
    parser.set_defaults(run=run, headline=headline)


def _run_there(options: argparse.Namespace) -> int:
    # Only here: it is not needed to record on this host.
    from tlstax.collectors.commands.remote import attach_several_there, attach_there

    if is_several(options):
        return attach_several_there(options)
    options.pid = options.pids[0] if options.pids else None
    require_place(options.output, options.force)
    return attach_there(options)


def run(options: argparse.Namespace) -> int:
    """Record until the time is up, Ctrl-C, or the end of the server."""
    settle_level(options)
    refuse_contradictions(options)
    require_ssh(options)
    if options.ssh:
        return _run_there(options)
    if is_several(options):
        return attach_several(options)
    options.pid = options.pids[0] if options.pids else None
    require_place(options.output, options.force)
    pid = target_pid(options)
    stop = StopFlag()
    recorder, sources, safety = _begin(options, pid)
    notes = [f"preflight ({note.hazard}): {note.text}" for note in safety.notes]
    _watch(recorder, options, (*notes, *sources.failures, *sources.warnings), stop)
    if recorder.ending:
        raise recorder.ended()
    if sources.failures:
        raise TlstaxError(
            f"{len(sources.failures)} of the sources failed",
            "; ".join(sources.failures),
            f"{options.output} contains the rows of the others and lists what is missing",
            ExitCode.FAILED,
        )
    print(f"tlstax: detached; `tlstax report {options.output}` explains it", file=sys.stderr)
    if not options.quiet:
        print(f"tlstax: {options.headline(options.output)}", file=sys.stderr)
    return int(ExitCode.OK)


def _begin(options: argparse.Namespace, pid: int) -> "tuple[Recording, SourceSet, Safety]":
    """Attach what was requested, within the given or the default budget."""
    is_budgeted = registry.NATIVE in options.collect and budget_share(options) is not None
    what = registry.asked(options, pid, is_budgeted=is_budgeted)
    if (parts := registry.return_probes(what)) and ACCEPT not in options.accept:
        raise return_probe_refused(f"--collect {parts}")
    safety, options.level = at_level(preflight(pid, options.accept), options.level)
    require_safe_sources(safety, what.names)
    sources = registry.open_sources(what)
    if registry.NATIVE not in what.names:
        return PlainRecording(pid, options.output, sources, options.force), sources, safety
    return (
        Recorder(replace(request_for(options, pid, sources, safety), is_all=True)),
        sources,
        safety,
    )


def _watch(
    recorder: "Recording",
    options: argparse.Namespace,
    messages: Iterable[str],
    stop: "StopFlag",
) -> None:
    """Until the time is up, Ctrl-C, or the end of the server."""
    live = None if options.quiet else Progress(sys.stderr.isatty())
    with recorder:
        print(f"tlstax: attached to {recorder.pid}, recording to {options.output}", file=sys.stderr)
        for text in messages:
            print(f"tlstax: {text}", file=sys.stderr)
        # The default budget is printed only where it changes something.
        is_asked = options.budget is not None
        if isinstance(recorder, Recorder):
            summary = recorder.budget_summary
            if summary and (is_asked or options.chooses_level or not recorder.is_continuous):
                print(f"tlstax: {summary}", file=sys.stderr)
        recorder.wake_on(stop.fd)
        # A window, a signal and the end wake it up: other sources alone are asked again and again.
        is_alone = tuple(options.collect) == (registry.NATIVE,)
        poll_s = QUIET_POLL_S if is_alone else poll_time_s(options)
        duration_s = float("inf") if options.duration_s is None else options.duration_s
        end_s = time.monotonic() + duration_s
        while not stop.requested and not recorder.ending:
            if (left_s := end_s - time.monotonic()) <= 0:
                break
            step_s = min(poll_s, left_s)
            if isinstance(recorder, Recorder):
                recorder.poll(step_s, until_window=True)
            else:
                recorder.poll(step_s)
            if live and not isinstance(recorder, PlainRecording) and recorder.last:
                live.show(recorder.last)
    if live:
        live.end()
