# SPDX-License-Identifier: GPL-2.0-only
"""Render what a matrix left in a directory: the table of its cells."""

import sqlite3
import statistics
from collections import defaultdict
from pathlib import Path

from rich.console import Console

from tlstax.analysis.report import console as parts
from tlstax.analysis.report import quantities

RESULTS = "results.sqlite"


def render(folder: Path) -> Path:
    """Print mean and standard deviation of operations/s of each cell; the results' file."""
    path = folder / RESULTS
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT label, operations_count * 1e9 / elapsed_ns, p95_ns FROM run"
            " JOIN cell USING (cell_id) WHERE state = 'done' ORDER BY cell_id, round"
        ).fetchall()
    finally:
        connection.close()
    rates, slowest = defaultdict(list), defaultdict(list)
    for label, rate, p95_ns in rows:
        rates[label].append(rate)
        slowest[label].append(p95_ns)
    table = parts.table("Operations per second", "cell", "mean", "sd", "95 % within", "runs")
    for label, values in rates.items():
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        table.add_row(
            label,
            f"{statistics.mean(values):,.1f}",
            f"{deviation:,.1f}",
            quantities.time(statistics.mean(slowest[label])),
            str(len(values)),
        )
    Console().print(table)
    return path
