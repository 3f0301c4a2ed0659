# SPDX-License-Identifier: GPL-2.0-only
"""Compare two recordings, or two arms or cells of an experiment, operation by operation.

    tlstax diff old.tlstax new.tlstax                        the same loads in both
    tlstax diff cap.tlstax:plaintext cap.tlstax:tls          two arms of one experiment
    tlstax diff cap.tlstax:connect/tls new.tlstax:connect/tls
    tlstax diff lab-out/libraries-...:mariadb lab-out/libraries-...:mysql97

Prints a waterfall from the first to the second with 95 % intervals, the CPU time by category, the
functions and waits that changed, and latencies side by side. A recording without a driver is
counted by connection or by query (--per). What is not comparable is refused, with the reasons.
Exit status: 0; 1 nothing could be compared; 2 wrong arguments; 5 a file is no capture or damaged;
6 a report cannot be written.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import difference, tables
from tlstax.analysis.report import diff_html, diff_markdown, diff_terminal, jsondoc
from tlstax.analysis.report.command import STANDARD_OUTPUT, print_safely, write
from tlstax.analysis.sides import UNITS, Side, matching, pair_up
from tlstax.analysis.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader


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
        help="count operations by what the server's threads did, not by what the driver says",
    )
    parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON; - prints it")
    parser.add_argument(
        "--markdown", metavar="FILE", help="write it as Markdown, for a ticket; - prints it"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare, and render in every form that was asked for."""
    printed = [text for text in (options.json, options.markdown) if text == STANDARD_OUTPUT]
    if len(printed) > 1:
        raise TlstaxError(
            "cannot print both forms",
            "--json and --markdown both ask for the standard output",
            "Give one of them a file",
            ExitCode.USAGE,
        )
    loaded: dict[Path, Tables] = {}
    before, after = (sides_of(text, loaded) for text in (options.before, options.after))
    pairs = pair_up(before, after)
    if not pairs:
        names = [", ".join(side.group.name for side in sides) for sides in (before, after)]
        raise TlstaxError(
            "there is no pair to compare",
            f"{options.before} has {names[0]}, and {options.after} has {names[1]}",
            "Choose one of each, as in FILE:scenario/arm",
            ExitCode.USAGE,
        )
    compared = difference.compare_recordings(pairs, options.per)
    document: dict[str, Any] = dataclasses.asdict(compared)
    if options.html is not None:
        write(options.html, diff_html.render(document))
    if options.json is not None:
        write(options.json, jsondoc.render(document))
    if options.markdown is not None:
        write(options.markdown, diff_markdown.render(document))
    if not printed:
        print_safely()
        diff_terminal.print_difference(document, options.html)
    refused = all(pair.refusals for pair in compared.pairs)
    if refused:
        print("tlstax: nothing could be compared; see the reasons above", file=sys.stderr)
    return int(ExitCode.FAILED if refused else ExitCode.OK)


def sides_of(text: str, loaded: dict[Path, Tables]) -> list[Side]:
    """The groups that an argument names. Raises TlstaxError (USAGE) where there is none."""
    path, wanted = Path(text), ""
    if not path.exists():
        name, _, wanted = text.rpartition(":")
        path = Path(name or text)
    if path.is_dir():
        path, wanted = _in_folder(path, wanted, text)
    if path not in loaded:
        with CaptureReader.open(path) as reader:
            loaded[path] = tables.load(reader)
    found = matching(loaded[path], wanted)
    if not found:
        names = ", ".join(group.name for group in tables.groups(loaded[path]))
        raise TlstaxError(
            f"{path} has no part {wanted}",
            f"it has {names}",
            "Name one of these, or an arm or scenario of them",
            ExitCode.USAGE,
        )
    return [Side(path.stem, loaded[path], group) for group in found]


def _in_folder(folder: Path, wanted: str, text: str) -> tuple[Path, str]:
    """The capture of a folder, and what is wanted of it."""
    captures = {path.stem: path for path in sorted(folder.rglob("*.tlstax"))}
    name, _, rest = wanted.partition("/")
    if name in captures:
        return captures[name], rest
    raise TlstaxError(
        f"{text} names no capture",
        f"{folder} has {', '.join(captures) or 'none'}",
        f"Name one of these, as in {folder}:NAME",
        ExitCode.USAGE,
    )
