# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet sql`: one SELECT over views of the tables, by DuckDB."""

import argparse
import decimal
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import host_sums, location
from tlstax.analysis.fleet.columns import TABLES, TIERS
from tlstax.analysis.fleet.engines.duckdb_engine import DuckDb
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.engines.retrying import open_retrying
from tlstax.analysis.fleet.question import Question, parse_time
from tlstax.analysis.fleet.store.parquet_files import arrow
from tlstax.analysis.report.commands.fleet_options import add_command
from tlstax.analysis.report.output import write
from tlstax.analysis.report.terminal import fleet as terminal


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = add_command(commands, "sql", "read-only SQL over the tables, by DuckDB", _sql)
    parser.add_argument("sql", metavar="SQL", help="one SELECT; see docs/fleet-columns.md")
    parser.add_argument("--tier", choices=TIERS, default="1h", help="intervals of the views (1h)")
    parser.add_argument("--from", dest="start", metavar="TIME", help="only rows from this hour on")
    parser.add_argument("--to", dest="end", metavar="TIME", help="only rows that begin before this")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - prints them")


def _sql(options: argparse.Namespace) -> int:
    limits = [None if text is None else parse_time(text) for text in (options.start, options.end)]
    question = Question(options.data, "duckdb", options.tier, limits[0], limits[1])
    span = question.span()

    def answer(engine: Engine) -> Any:
        assert isinstance(engine, DuckDb)
        if limits != [None, None]:
            engine.limit(host_sums.in_hours(span).condition)
        return engine.read_only(options.sql)

    with open_retrying(
        "duckdb", lambda: location.select(options.data, options.tier, TABLES, span)
    ) as engine:
        found = engine.asked(answer)
    for text in engine.left_out:
        print(f"tlstax: {text}", file=sys.stderr)
    names = _distinct(found.column_names)
    columns = [_values(*one) for one in zip(names, found.columns, strict=True)]
    rows = list(zip(*columns, strict=True))
    if options.json is not None:
        write(options.json, _as_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        terminal.print_rows(names, [[_text(value) for value in row] for row in rows])
    return int(ExitCode.OK)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of columns, numbered where one has several."""
    made: list[str] = []
    for name in names:
        numbered, number = name, 2
        while numbered in made:
            numbered, number = f"{name}_{number}", number + 1
        made.append(numbered)
    return made


def _values(name: str, column: Any) -> list[Any]:
    """The values of a column as JSON has them; times as texts.

    Raises TlstaxError (USAGE) for a column that has no such form.
    """
    types = arrow("pyarrow.types")
    try:
        if types.is_temporal(column.type) and not types.is_interval(column.type):
            column = column.cast(arrow().string())
        return [_plain(value) for value in column.to_pylist()]
    except (OverflowError, ValueError) as error:
        raise TlstaxError(
            f"cannot print the column {name}",
            f"it has values of type {column.type} that are beyond what can be printed",
            f"Let the query make a text of it: CAST({name} AS VARCHAR)",
            ExitCode.USAGE,
        ) from error


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a list of objects; what JSON has no type for is a text."""
    return json.dumps(rows, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
