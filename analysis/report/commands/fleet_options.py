# SPDX-License-Identifier: GPL-2.0-only
"""Options that the commands of `tlstax fleet` share."""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tlstax import ExitCode
from tlstax.analysis.fleet import location
from tlstax.analysis.fleet.columns import TIERS
from tlstax.analysis.fleet.engines.opening import ENGINES
from tlstax.analysis.fleet.question import Question, parse_time
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.report.export import jsondoc
from tlstax.analysis.report.output import STANDARD_OUTPUT, write


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a command with its data set."""
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.add_argument(
        "--data",
        metavar="DIR|s3://BUCKET/PREFIX",
        type=location.parse,
        required=True,
        help="where the data set is",
    )
    parser.set_defaults(run=run)
    return parser


def add_question(parser: argparse.ArgumentParser, *, has_span: bool = True) -> None:
    """Add what all questions understand."""
    if has_span:
        parser.add_argument("--from", dest="start", metavar="TIME", help="default: the first hour")
        parser.add_argument("--to", dest="end", metavar="TIME", help="default: the last hour")
    parser.add_argument("--tier", choices=TIERS, default="", help="length of intervals; default: "
                        "the longest that fits")  # fmt: skip
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=PATTERN",
        help="only hosts with this fact, such as cluster=eu-* or host=db1?; repeatable",
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default="duckdb", help="what reads the files (duckdb)"
    )


def add_reports(parser: argparse.ArgumentParser) -> None:
    """Add where the hosts' own reports are."""
    parser.add_argument(
        "--reports",
        default="",
        metavar="DIR|URL",
        help="link hosts to their own reports, HOST.html there",
    )


def add_outputs(parser: argparse.ArgumentParser, *, has_page: bool) -> None:
    """Add the forms of an answer."""
    parser.add_argument("--json", metavar="FILE", help="write the answer as JSON; - prints it")
    if has_page:
        parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML file")


def question_of(options: argparse.Namespace) -> Question:
    """What is asked about. Raises TlstaxError (USAGE) for a time that is none."""
    start, end = getattr(options, "start", None), getattr(options, "end", None)
    return Question(
        options.data,
        options.engine,
        options.tier,
        None if start is None else parse_time(start),
        None if end is None else parse_time(end),
        tuple(options.where),
        getattr(options, "reports", ""),
    )


def answer(
    options: argparse.Namespace,
    found: Any,
    show: Callable[[Mapping[str, Any]], None],
    draw: Callable[[Mapping[str, Any]], str] | None = None,
) -> int:
    """Write every requested form of an answer."""
    document: dict[str, Any] = to_plain(found)
    for text in document["scope"]["left_out"]:
        print(f"tlstax: {text}", file=sys.stderr)
    if draw is not None and options.html is not None:
        write(options.html, draw(document))
    if options.json is not None:
        write(options.json, jsondoc.render(document))
    if options.json != STANDARD_OUTPUT:
        show(document)
    return int(ExitCode.OK)
