# SPDX-License-Identifier: GPL-2.0-only
"""Explain a capture: where the time goes, on the terminal, as HTML, JSON or folded stacks.

    tlstax report demo.tlstax                       print the report
    tlstax report demo.tlstax --html demo.html      and write it as one file that works offline
    tlstax report demo.tlstax --json -              print only the whole document, as JSON
    tlstax report demo.tlstax --markdown -          answer, findings and tables for a ticket
    tlstax report demo.tlstax --folded demo.folded  stacks for FlameGraph, inferno or speedscope
    tlstax report lab-out/libraries-...             render the results of `tlstax lab run` again

Needs neither root nor the host that recorded. Losses, closure and symbol quality come first.
Exit status: 0; 2 wrong arguments; 5 FILE is no capture or damaged; 6 a report cannot be written.
"""

import argparse
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify import profiles
from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.commands.folder import render_folder
from tlstax.analysis.report.export import folded, jsondoc
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.markdown import report as markdown
from tlstax.analysis.report.output import STANDARD_OUTPUT, write
from tlstax.analysis.report.terminal import report as terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax report`."""
    parser = subparsers.add_parser(
        "report",
        help="explain a capture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("capture", metavar="CAPTURE", help="file written by tlstax")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the document as JSON; - prints it")
    parser.add_argument(
        "--markdown", metavar="FILE", help="write it as Markdown for a ticket; - prints it"
    )
    parser.add_argument(
        "--folded", metavar="FILE", help="write folded stacks, times in nanoseconds; - prints them"
    )
    parser.set_defaults(run=run)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Reports make few cycles; the collector would walk millions of rows again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def run(options: argparse.Namespace) -> int:
    """Write every requested output."""
    with _without_collection():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if os.path.isdir(options.capture):  # Path.is_dir() may raise
        render_folder(Path(options.capture))
        return int(ExitCode.OK)
    forms = (options.json, options.folded, options.markdown)
    printed = [text for text in forms if text == STANDARD_OUTPUT]
    if len(printed) > 1:
        raise TlstaxError(
            "cannot print several outputs",
            "more than one of --json, --markdown and --folded is -",
            "Give all but one of them a file",
            ExitCode.USAGE,
        )
    with CaptureReader.open(options.capture) as reader:
        rows = tables.load(reader)
    document = to_json(explain.explain(rows))
    if options.html is not None:
        write(options.html, html.render(document))
    if options.json is not None:
        write(options.json, jsondoc.render(document))
    if options.markdown is not None:
        write(options.markdown, markdown.render(document))
    if options.folded is not None:
        write(options.folded, folded.render(profiles.fold_all(rows)))
    if not printed:
        terminal.print_report(document, html_path=options.html)
    return int(ExitCode.OK)


def render_report(capture: Path, folder: Path) -> Path:
    """The HTML page of a capture in a folder, and the report on the terminal; the page."""
    page = folder / f"{capture.stem}.html"
    unwanted = {"json": None, "folded": None, "markdown": None}
    run(argparse.Namespace(capture=capture, html=str(page), **unwanted))
    return page


def headline(capture: Path) -> str:
    """The sentence at the head of a capture's report."""
    with CaptureReader.open(capture) as reader:
        rows = tables.load(reader)
    return explain.explain(rows).answer.sentence
