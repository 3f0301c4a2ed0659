# SPDX-License-Identifier: GPL-2.0-only
"""Write stacks as a Parquet table for DuckDB, pandas or Spark: one row for each stack.

Needs pyarrow, which is no part of tlstax's own installation (`pip install tlstax[parquet]`).
"""

import io
from collections.abc import Mapping
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.stacks import Folded

LARGEST: Final = (1 << 63) - 1
"""Of a column; a time of 292 years is none."""


def render(graphs: Mapping[str, Folded]) -> bytes:
    """All graphs in one table: workload, kind, phase, category, stack (root first), time_ns.

    Raises TlstaxError (HOST) where pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TlstaxError(
            "cannot write Parquet",
            "the Python package pyarrow is not installed",
            "pip install 'tlstax[parquet]', or choose another --format",
            ExitCode.HOST,
        ) from error
    rows = [
        {
            "workload": name.rpartition("/")[0],
            "kind": name.rpartition("/")[2],
            "phase": path[0].name,
            "category": path[-1].category,
            "stack": [frame.text for frame in path],
            "time_ns": min(round(value_ns), LARGEST),
        }
        for name, folded in graphs.items()
        for path, value_ns in folded.items()
    ]
    schema = pyarrow.schema(
        [
            ("workload", pyarrow.string()),
            ("kind", pyarrow.string()),
            ("phase", pyarrow.string()),
            ("category", pyarrow.string()),
            ("stack", pyarrow.list_(pyarrow.string())),
            ("time_ns", pyarrow.int64()),
        ]
    )
    made = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), made)
    return made.getvalue()
