# SPDX-License-Identifier: GPL-2.0-only
"""Waits with stacks, in the windows in which they took place.

A wait is recorded when it ends, with its whole length. The ledger has the part of each window. So
where the rows of a window hold more time than its ledger, the surplus took place before: it moves
to earlier windows of the stretch, as far as their ledgers have time that no row explains.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tlstax.analysis.rows.edges import stretches
from tlstax.collectors.capture.schema import Ledger, OffcpuStack, Window

_Cell = tuple[int, str, str]
"""Window, phase, state."""


def place(
    rows: Sequence[OffcpuStack], ledger: Iterable[Ledger], windows: Iterable[Window]
) -> list[OffcpuStack]:
    """The rows; what is moved has a row of its own there, without a count of waits."""
    measured: dict[_Cell, int] = defaultdict(int)
    for line in ledger:
        if line.state.startswith("blocked_"):
            measured[line.window_id, line.phase, line.state] += line.time_ns
    found: dict[_Cell, list[OffcpuStack]] = defaultdict(list)
    for row in rows:
        found[row.window_id, row.phase, row.state].append(row)
    if all(sum(one.time_ns for one in mine) <= measured[at] for at, mine in found.items()):
        return list(rows)
    kinds = {at[1:] for at in found}
    for stretch in stretches.of_windows(windows):
        ids = [window.window_id for window in stretch]
        for kind in kinds:
            _push_back([(one, *kind) for one in ids], found, measured)
    return [row for mine in found.values() for row in mine]


def _push_back(
    cells: Sequence[_Cell],
    found: dict[_Cell, list[OffcpuStack]],
    measured: Mapping[_Cell, int],
) -> None:
    """Move surplus time of one phase and state to earlier windows, from the last one on.

    The longest waits began first. What no earlier window has room for stays where it was.
    """
    rooms = [
        measured.get(cell, 0) - sum(row.time_ns for row in found.get(cell, ())) for cell in cells
    ]
    for at in range(len(cells) - 1, 0, -1):
        if rooms[at] >= 0:
            continue
        rows = sorted(found[cells[at]], key=_mean_ns, reverse=True)
        for number, row in enumerate(rows):
            for to in range(at - 1, -1, -1):
                moved = min(-rooms[at], rooms[to], row.time_ns)
                if moved <= 0:
                    continue
                rooms[at] += moved
                rooms[to] -= moved
                row = row._replace(time_ns=row.time_ns - moved)
                found[cells[to]].append(
                    row._replace(window_id=cells[to][0], wait_count=0, time_ns=moved)
                )
            rows[number] = row
        found[cells[at]] = rows


def _mean_ns(row: OffcpuStack) -> float:
    return row.time_ns / max(1, row.wait_count)
