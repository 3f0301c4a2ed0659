# SPDX-License-Identifier: GPL-2.0-only
"""Sample the stacks of all threads with pt-pmp, on hosts that allow neither BPF nor perf.

    tlstax pmp 1234 --allow-pause                stop the server for one snapshot
    tlstax pmp 1234 --allow-pause --iterations 5 -o server.tlstax
    tlstax pmp --from stacks.txt                 what pt-pmp, gdb or eu-stack wrote before

gdb stops the WHOLE server for every snapshot, often for seconds; how long is measured and printed.
Exit status: 0; 1 no stack was found; 2 without --allow-pause; 3 pt-pmp or gdb is missing; 4 no
such process.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.sources.pmp.snapshots import KINDS, Snapshot, count_kinds, take, to_rows
from tlstax.collectors.sources.pmp.text import parse
from tlstax.collectors.sources.stacks.stack_phases import StackPhases
from tlstax.probes.definitions import load_definitions

_LENGTH_MOST: Final = 64 << 20
"""Of saved stacks: 1,000 characters for each of 65,536 threads."""
_MEANING = {
    "running": "on a CPU, or ready for one",
    "lock": "waiting for a lock",
    "io": "waiting for the disk",
    "network": "waiting for the network inside a phase",
    "idle": "waiting for work",
    "wait": "waiting; the stack does not say for what",
}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax pmp`."""
    parser = subparsers.add_parser(
        "pmp",
        help="sample all threads by stopping the server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("pid", nargs="?", type=int, metavar="PID", help="process id of the server")
    source.add_argument("--from", dest="saved", type=Path, metavar="FILE", help="saved stacks")
    parser.add_argument(
        "--allow-pause", action="store_true", help="allow the server to be stopped for seconds"
    )
    parser.add_argument("--iterations", type=_count, default=1, metavar="N", help="snapshots (1)")
    parser.add_argument(
        "--interval", type=_count, default=1, metavar="S", help="seconds between them (1)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="capture to write")
    parser.add_argument("--force", action="store_true", help="replace an existing capture")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    """A whole number from 1 to 1000."""
    number = whole_number(text) or 0
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return number


def run(options: argparse.Namespace) -> int:
    """Take or read the stacks, print what the threads did, and store them with -o."""
    if options.saved is not None:
        snapshot = _saved(options.saved)
    else:
        snapshot = take(
            options.pid, options.iterations, options.interval, allow_pause=options.allow_pause
        )
    phases = StackPhases(load_definitions())
    _print(snapshot, phases)
    if options.output is not None:
        _store(snapshot, phases, options)
    return int(ExitCode.OK)


def _saved(path: Path) -> Snapshot:
    do = "Name a file that pt-pmp, gdb or eu-stack wrote"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LENGTH_MOST + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise TlstaxError(f"cannot read {path}", why, do, ExitCode.FAILED) from error
    if len(text) > _LENGTH_MOST:
        why = f"it has more than {_LENGTH_MOST:,} characters"
        raise TlstaxError(f"cannot read {path}", why, do, ExitCode.FAILED)
    return Snapshot(parse(text), 1, 0, 0, 0)


def _print(snapshot: Snapshot, phases: StackPhases) -> None:
    kinds = count_kinds(snapshot.stacks, phases)
    total = sum(kinds.values())
    if snapshot.end_ns:
        print(
            f"{snapshot.iterations_count} snapshots in "
            f"{(snapshot.end_ns - snapshot.start_ns) / 1e9:.1f} s; the server was stopped for "
            f"{snapshot.pause_ns / 1e9:.2f} s of that"
        )
    else:
        print("from a file; how long the server was stopped is unknown")
    for kind in KINDS:
        if kinds[kind]:
            print(f"{kinds[kind]:6}  {kinds[kind] / total:6.1%}  {kind:8}  {_MEANING[kind]}")
    print(f"{total:6}          threads seen; shares of few threads are rough")


def _store(snapshot: Snapshot, phases: StackPhases, options: argparse.Namespace) -> None:
    facts = {
        "tlstax_version": __version__,
        "created_wall_ns": time.time_ns(),
        "monotonic_anchor_ns": time.monotonic_ns(),
        "engine": "pmp",
        "command_level": "sample",
        "pause_ns": snapshot.pause_ns,
        "privacy": "function names and counts only",
    }
    who = (options.pid or 0, "", "", "unknown", "unknown", "unknown", "unknown", "none")
    meta = [schema.Meta(key, str(value)) for key, value in facts.items()]
    rows = [*meta, schema.Target(1, *who), *to_rows(snapshot, phases)]
    write_whole(options.output, rows, options.force)
    print(f"{options.output}: stacks of {sum(snapshot.stacks.values())} threads", file=sys.stderr)
