# SPDX-License-Identifier: GPL-2.0-only
"""Name functions of a capture that had no name where it was recorded.

    tlstax symbolize server.tlstax                     files and debug files of this host
    tlstax symbolize server.tlstax --files DIR         and those below DIR; repeatable
    DEBUGINFOD_URLS=https://debuginfod.example.org tlstax symbolize server.tlstax

A file is used only if it has the recorded build-id. DIR holds copies of the server's executables
and libraries, their debug files, or both, in any arrangement. With DEBUGINFOD_URLS, missing files
are fetched from these servers, which so learn the build-ids; DEBUGINFOD_MAXSIZE and
DEBUGINFOD_MAXTIME limit each. No other command uses the network for names.
Where a file's DWARF is at hand, functions that the compiler inlined get names, too: pictures and
exports show them, marked as inlined. That needs eu-addr2line (elfutils) or llvm-addr2line; nothing
is fetched only for it.
CAPTURE is changed in place; names that it has are kept, and a second run changes nothing. What is
still unnamed is listed, and why.
Exit status: 0, also if names are still missing; 2 wrong arguments; 5 CAPTURE is no capture or
damaged; 6 it cannot be written.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tlstax import ExitCode
from tlstax.collectors.capture.frame_names import store_names
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, InlinedFrame
from tlstax.collectors.process.debug_server import DebugServer
from tlstax.collectors.process.later_names import FileNames, LaterNames


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax symbolize`."""
    parser = subparsers.add_parser(
        "symbolize",
        help="add names of functions to a capture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("capture", type=Path, metavar="CAPTURE", help="file written by tlstax")
    parser.add_argument(
        "--files",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="look for files below DIR, too; repeatable",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Find names, store them, and say what is missing."""
    names = LaterNames(options.files, DebugServer.from_environment())
    with CaptureReader.open(options.capture) as reader:
        frames, known = list(reader.rows(Frame)), set(reader.rows(InlinedFrame))
    files = names.name(frames)
    changed = [frame for one in files for frame in one.changed]
    inlined = [row for one in files for row in one.inlined]
    asked = {frame_id for one in files for frame_id in one.asked_ids}
    if {row for row in known if row.frame_id in asked} == set(inlined):
        inlined, asked = [], set()
    if changed or asked:
        store_names(options.capture, changed, inlined, asked)
    print(f"{options.capture}: {_summary(files)}")
    for one in files:
        if one.unnamed_count or one.inlined or one.why_not_inlined:
            print(f"  {_line(one)}")
    return int(ExitCode.OK)


def _summary(files: Sequence[FileNames]) -> str:
    unnamed = sum(one.unnamed_count for one in files)
    named = sum(one.named_count for one in files)
    if not unnamed:
        return "every address in a file has a name"
    return f"{unnamed:,} addresses had no name; {named:,} are named now"


def _line(one: FileNames) -> str:
    build = f"build-id {visible(one.build_id)}" if one.build_id else "no build-id"
    parts = []
    if one.unnamed_count:
        named = f"{one.named_count:,} named"
        parts.append(f"{named}, {one.left_count:,} not: {one.why}" if one.left_count else named)
    if one.inlined:
        count = len({row.frame_id for row in one.inlined})
        parts.append(f"functions are inlined at {count:,} of {len(one.asked_ids):,} addresses")
    if one.why_not_inlined:
        parts.append(f"inlined functions unknown: {one.why_not_inlined}")
    return f"{visible(one.path)} ({build}): {'; '.join(parts)}"
