# SPDX-License-Identifier: GPL-2.0-only
"""Prints docs/fleet-columns.md from the tables of the data set.

python -m tlstax.analysis.fleet.column_reference > docs/fleet-columns.md
"""

import inspect
from typing import Any, Final

from tlstax.analysis.fleet.columns import (
    HOURLY,
    SCHEMA_VERSION,
    TABLES,
    TIERS,
    columns,
)
from tlstax.analysis.fleet.histograms import SCALE
from tlstax.collectors.capture.schema import table_name

_HEAD: Final = """\
# The tables of a data set

<!-- Made by `python -m tlstax.analysis.fleet.column_reference`: change columns.py instead. -->

`tlstax fleet add` writes these tables as Parquet files of version {version}; [fleet.md](fleet.md)
says how to ask questions. Files are at `tier=/table=/date=/hour=`, by the start of the interval in
UTC, with the rows of a host next to each other; many rows of `phase_latency` have whole handshakes
in row groups of their own, before other phases. The footer of each file holds the version
(`tlstax.schema_version`); a file of a newer version is refused by name.

- **Tiers.** Rows of the tables below are sums over intervals of {tiers}. A window of a capture
  belongs to the interval in which it began, so the sums of all tiers are equal.
- **Units.** Each number has its unit as suffix: `_wall_ns` is a time in ns since 1970 (UTC), `_ns`
  a duration, `_count` a number of things.
- **Sums are of what was seen.** A rate divides by the observed time of its interval. To add hosts
  up, scale each row by `recorded_ns / observed_ns` of its interval: else a host that was watched
  all the time counts for more than one whose recorder had a small budget.
- **A recording is added once.** `source_id` names it in every row. `tlstax fleet` never counts the
  rows of one recording twice; who reads the files with another program while `tlstax fleet compact`
  runs may see a file and the compacted one for a moment.
- **Nothing secret.** No SQL text, no payload, no key, no password. Addresses of clients are in
  `client_net` only, and only their first bits, where --client-networks asked for it.

The same tables for a ClickHouse server are in [fleet-clickhouse.sql](fleet-clickhouse.sql).
"""
_TYPES: Final = {"int": "int64", "float": "double", "str": "string", "list": "list of int64"}


def columns_markdown() -> str:
    """The text of docs/fleet-columns.md."""
    tiers = ", ".join(TIERS)
    parts = [_HEAD.format(version=SCHEMA_VERSION, tiers=tiers)]
    return "\n".join([*parts, *(_section(table) for table in TABLES)])


def _section(table: type[Any]) -> str:
    text = inspect.cleandoc(table.__doc__ or "").format(scale=SCALE)
    tiers = "Tier 1h only." if table in HOURLY else "All tiers."
    lines = [f"## `{table_name(table)}`", "", text, "", tiers, ""]
    lines += ["| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{one.name}` | {_TYPES[one.kind]} | {one.doc} |" for one in columns(table)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(columns_markdown(), end="")
