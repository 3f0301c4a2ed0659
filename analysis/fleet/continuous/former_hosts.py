# SPDX-License-Identifier: GPL-2.0-only
"""Removes what is left of hosts that were watched into a data set once, and are no more.

With --all a server gets its name anew when the watch is started again, so a name may never come
back. Hosts whose rows were added otherwise have no lock file of a watch here: theirs stay.
"""

from collections.abc import Callable
from pathlib import Path

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.continuous.rotation import has_rows, rotate
from tlstax.analysis.fleet.store import layout

RemoveRaw = Callable[[str, int], bool]
"""Removes a host's raw windows that began before this wall clock time; whether none is left."""


def remove(data: Path, end_wall_ns: int, remove_raw: RemoveRaw) -> list[str]:
    """Remove former hosts whose newest hour ends before this time; their names.

    Raises TlstaxError (IO) where the folder or a file cannot be read or written.
    """
    removed = []
    with layout.former(data) as found:
        recent = _recent(data, set(found), end_wall_ns)
        for host in sorted(found.keys() - recent):
            rotate(data, host, end_wall_ns)
            if remove_raw(host, end_wall_ns):
                layout.forget(found[host])
                removed.append(host)
    return removed


def _recent(data: Path, hosts: set[str], end_wall_ns: int) -> set[str]:
    """Those of the hosts that have an hour or day that ends after this time, the newest first."""
    table = columns.Interval
    found: set[str] = set()
    places = layout.places(data, "1h", table, end_wall_ns) if hosts else ()
    for place in reversed([*places]):
        for path in place.folder(data).glob("*.parquet"):
            found |= {host for host in hosts - found if has_rows(path, table, host)}
        if found == hosts:
            break
    return found
