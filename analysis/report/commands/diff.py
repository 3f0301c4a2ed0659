# SPDX-License-Identifier: GPL-2.0-only
"""Compare two recordings, or two arms or cells of an experiment, operation by operation.

    tlstax diff old.tlstax new.tlstax                        the same loads in both
    tlstax diff cap.tlstax:plaintext cap.tlstax:tls          two arms of one experiment
    tlstax diff cap.tlstax:connect/tls new.tlstax:connect/tls
    tlstax diff lab-out/libraries-...:mariadb lab-out/libraries-...:mysql97
    tlstax diff "lab-out/wan-...:mariadb-rsa2048/veth 1x connect/plaintext" ...

Prints a waterfall from the first to the second with its intervals, the CPU time by category, the
functions and waits that changed, and latencies side by side. A recording without a driver is
counted by connection or by query (--per). Pairs that are not comparable are refused; the reasons
are printed.
Exit status: 0; 1 nothing could be compared; 2 wrong arguments; 5 a file is no capture or damaged;
6 a report cannot be written.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.compare import difference
from tlstax.analysis.compare.selections import UNITS, RecordingSelection, matching, pair_up
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.report.export import jsondoc
from tlstax.analysis.report.html import diff as diff_html
from tlstax.analysis.report.markdown import diff as diff_markdown
from tlstax.analysis.report.output import STANDARD_OUTPUT, write
from tlstax.analysis.report.terminal import diff as diff_terminal
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.join import join_captures
from tlstax.collectors.capture.reader import CaptureReader

_TURN: Final = re.compile(r"\d{3,}-(.+?)(?:-\d+)?")
"""The name of a matrix's capture: turn, server, attempt."""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax diff`."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two recordings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in ("before", "after"):
        parser.add_argument(
            name,
            metavar=f"{name.upper()}[:PART]",
            help="capture, or folder of captures; PART is an arm, a scenario, driver/scenario/arm, "
            "in a folder CAPTURE or CAPTURE/...",
        )
    parser.add_argument(
        "--per",
        choices=UNITS,
        help="count operations in the server, not at the driver",
    )
    parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON; - prints it")
    parser.add_argument(
        "--markdown", metavar="FILE", help="write it as Markdown, for a ticket; - prints it"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare, and write every requested output."""
    printed = [text for text in (options.json, options.markdown) if text == STANDARD_OUTPUT]
    if len(printed) > 1:
        raise TlstaxError(
            "cannot print two outputs",
            "both --json and --markdown are -",
            "Give one of them a file",
            ExitCode.USAGE,
        )
    loaded: dict[Path, Tables] = {}
    before, after = (sides_of(text, loaded) for text in (options.before, options.after))
    pairs = pair_up(before, after)
    if not pairs:
        names = [", ".join(side.group.name for side in sides) for sides in (before, after)]
        raise TlstaxError(
            "no pair to compare",
            f"{options.before} has {names[0]}, and {options.after} has {names[1]}",
            "Choose one of each, as in FILE:scenario/arm",
            ExitCode.USAGE,
        )
    compared = difference.compare_recordings(pairs, options.per)
    document: dict[str, Any] = to_plain(compared)
    if options.html is not None:
        write(options.html, diff_html.render(document))
    if options.json is not None:
        write(options.json, jsondoc.render(document))
    if options.markdown is not None:
        write(options.markdown, diff_markdown.render(document))
    if not printed:
        diff_terminal.print_difference(document, options.html)
    refused = all(pair.refusals for pair in compared.pairs)
    if refused:
        print("tlstax: nothing could be compared; see the reasons above", file=sys.stderr)
    return int(ExitCode.FAILED if refused else ExitCode.OK)


def sides_of(text: str, loaded: dict[Path, Tables]) -> list[RecordingSelection]:
    """The groups that an argument names. Raises TlstaxError (USAGE) where there is none."""
    path, wanted = Path(text), ""
    if not os.path.exists(path):  # Path.exists() may raise
        name, _, wanted = text.rpartition(":")
        path = Path(name or text)
    parts = [path]
    if os.path.isdir(path):
        path, parts, wanted = _in_folder(path, wanted, text)
    if path not in loaded:
        loaded[path] = _load(parts)
    found = matching(loaded[path], wanted)
    if not found:
        names = ", ".join(group.name for group in tables.groups(loaded[path]))
        raise TlstaxError(
            f"{path} has no part {wanted}",
            f"it has {names}",
            "Name one of these, or an arm or scenario of them",
            ExitCode.USAGE,
        )
    return [RecordingSelection(path.stem, loaded[path], group) for group in found]


def _load(parts: list[Path]) -> Tables:
    """One capture, or several of one server joined."""
    with tempfile.TemporaryDirectory(prefix="tlstax-diff-") as scratch:
        path = parts[0]
        if len(parts) > 1:
            path = Path(scratch) / path.name
            join_captures(parts, path)
        with CaptureReader.open(path) as reader:
            return tables.load(reader)


def _in_folder(folder: Path, wanted: str, text: str) -> tuple[Path, list[Path], str]:
    """A name for what is meant of a folder, its captures in order of time, and their part.

    A matrix records each server in turns, `003-mariadb-rsa2048`: they are one.
    """
    captures: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.tlstax")):
        turn = _TURN.fullmatch(path.stem)
        captures.setdefault(turn[1] if turn else path.stem, []).append(path)
        if turn:
            captures.setdefault(path.stem, []).append(path)
    name, _, rest = wanted.partition("/")
    if name in captures:
        return folder / name, captures[name], rest
    raise TlstaxError(
        f"{text} names no capture",
        f"{folder} has {', '.join(captures) or 'none'}",
        f"Name one of these, as in {folder}:NAME",
        ExitCode.USAGE,
    )
