# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax probes list | print | run`: the bpftrace programs, for one process.

`print` writes a program of probes/*.bt with the attach points of this process and the reason for
each; `run` runs it with bpftrace, prints its output and stores in a capture what has a table there.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.commands.options import accept_option
from tlstax.collectors.placement.return_probes import ACCEPT, return_probe_refused
from tlstax.probes import programs

if TYPE_CHECKING:
    from tlstax.collectors.process.target import Target
    from tlstax.collectors.sources.bpftrace.program_text import Rendered


def register(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the actions to `tlstax probes`."""
    listing = actions.add_parser("list", help="the bpftrace programs, and what each answers")
    listing.set_defaults(run=run_list)
    printing = actions.add_parser("print", help="write a bpftrace program for a process")
    running = actions.add_parser("run", help="run a bpftrace program on a process")
    for parser in (printing, running):
        parser.add_argument("name", metavar="NAME", help="see `tlstax probes list`")
        parser.add_argument("--pid", type=int, required=True, help="process id")
        parser.add_argument(
            "--bpftrace", type=Path, metavar="PATH", help="which bpftrace (default: on the PATH)"
        )
        parser.add_argument(
            "--definitions", type=Path, metavar="DIR", help="directory with further definitions"
        )
    printing.set_defaults(run=run_print)
    running.add_argument(
        "--for", dest="duration_s", type=_duration, default=10.0, metavar="TIME",
        help="how long, as in 500ms, 10s, 2m (default: 10s; Ctrl-C ends it earlier)",
    )  # fmt: skip
    running.add_argument("-o", "--output", type=Path, metavar="CAPTURE", help="store it, too")
    accept_option(running)
    running.set_defaults(run=run_program)


def _duration(text: str) -> float:
    from tlstax.collectors.commands.options import duration

    return duration(text)


def run_list(_: argparse.Namespace) -> int:
    """Print the programs."""
    for name in programs.names():
        program = programs.load(name)
        question = " ".join(program.labels["Question"].split())
        print(f"{name:10} {program.line}\n{'':10} {question}")
    return int(ExitCode.OK)


def run_print(options: argparse.Namespace) -> int:
    """Print a program for a process. Raises TlstaxError."""
    from tlstax.collectors.sources.bpftrace.process import find_bpftrace

    program = programs.load(options.name)
    try:
        offsets = find_bpftrace(options.bpftrace).offsets
    except TlstaxError:
        if options.bpftrace is not None:
            raise
        offsets = False  # every version of bpftrace accepts this
    print(_render(program, options, offsets)[1].text, end="")
    return int(ExitCode.OK)


def _render(
    program: programs.Program, options: argparse.Namespace, offsets: bool
) -> "tuple[Target, Rendered]":
    from tlstax.collectors.process.target import open_target
    from tlstax.collectors.sources.bpftrace.program_text import render

    target = open_target(options.pid)
    return target, render(program, target, offsets, options.definitions)


def run_program(options: argparse.Namespace) -> int:
    """Run a program, print its output, and store it with -o. Raises TlstaxError."""
    from tlstax.collectors.recording.safe_request import preflight, require_safe_sources
    from tlstax.collectors.sources.bpftrace.process import (
        Run,
        find_bpftrace,
        require_tracepoints_of,
    )

    program = programs.load(options.name)
    if options.output is not None and options.output.exists():
        raise TlstaxError(
            f"{options.output} exists already",
            "this command does not overwrite a capture",
            "Choose another name, or remove the file",
            ExitCode.USAGE,
        )
    tool = find_bpftrace(options.bpftrace)
    target, rendered = _render(program, options, tool.offsets)
    is_return = any(place.point.kind == "uretprobe" for place in rendered.places)
    if is_return and ACCEPT not in options.accept:
        raise return_probe_refused(program.name)
    require_safe_sources(preflight(target.pid, options.accept), ("bpftrace",))
    require_tracepoints_of([rendered])
    run = Run(tool, rendered, target.pid)
    messages: list[dict[str, Any]] = run.record(options.duration_s)
    from tlstax.collectors.sources.bpftrace.output import as_lines

    print("\n".join(as_lines(rendered, messages, run)))
    if options.output is not None:
        from tlstax.collectors.sources.bpftrace.rows import store

        store(options.output, target, rendered, messages, run)
        print(f"stored in {options.output}")
    return int(ExitCode.OK)
