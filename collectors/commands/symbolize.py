# SPDX-License-Identifier: GPL-2.0-only
"""Name functions of a capture that had no name where it was recorded.

    tlstax symbolize server.tlstax                     files and debug files of this host
    tlstax symbolize server.tlstax --files DIR         and those below DIR; repeatable
    DEBUGINFOD_URLS=https://debuginfod.example.org tlstax symbolize server.tlstax

A file is used only if it has the recorded build-id. DIR holds copies of the server's executables
and libraries, their debug files, or both, in any arrangement. With DEBUGINFOD_URLS, missing files
are fetched from these servers, which so learn the build-ids; DEBUGINFOD_MAXSIZE and
DEBUGINFOD_MAXTIME limit each. No other command uses the network for names.
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
from tlstax.collectors.capture.schema import Frame
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
        frames = list(reader.rows(Frame))
    files = names.name(frames)
    if changed := [frame for one in files for frame in one.changed]:
        store_names(options.capture, changed)
    print(f"{options.capture}: {_summary(files)}")
    for one in files:
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
    text = f"{visible(one.path)} ({build}): {one.named_count:,} named"
    return f"{text}, {one.left_count:,} not: {one.why}" if one.left_count else text
