# SPDX-License-Identifier: GPL-2.0-only
"""Commands whose beginning or end was not recorded, so that their length is a lower bound.

A command that is under way when a dense stretch begins has lost its boundary: its thread is
`unknown` until the next one. While connecting and disconnecting were followed since the thread was
last known, it still serves an open connection, and whatever it waits for, except the network (it
may await the next command), it waits for in a command.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tlstax.analysis.rows.edges import stretches
from tlstax.collectors.capture.schema import Ledger, Probe, Thread, Window
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES, LEDGER_LEVELS

_OF_COMMANDS: Final = ("blocked_disk", "blocked_lock", "blocked_futex")
"""States in which a thread of an open connection does not await its next command."""
_SERVES: Final = ("connection", "pool_worker", "x_plugin")
"""Roles with commands that end; that of a replica's connection does not."""
_WITHIN: Final = ("command", "tde")
"""Phases that do not end a command."""
_OUTSIDE: Final = ("unknown", "background")
_SETTING_UP: Final = frozenset(("connect", *HANDSHAKE_PHASES))
_TELL_RECORDS: Final = ("full", "record")
"""Levels at which each command is seen to be received and answered."""

_Cells = Mapping[tuple[str, str], int]


def place(
    rows: Sequence[Ledger],
    windows: Sequence[Window],
    threads: Iterable[Thread],
    probes: Iterable[Probe],
) -> list[Ledger]:
    """The rows; waits of open connections outside of all phases are in `command`.

    So is all else that a thread did outside of phases in a window without a wait for the network:
    a wait may be a loop of shorter ones.
    Only of threads that serve one connection at a time: those of a pool await events, too.
    """
    lost = {one.thread_id for one in rows if one.phase in _OUTSIDE and one.state in _OF_COMMANDS}
    serving = {one.thread_id for one in threads if one.role == "connection"} & lost
    followed = {one.target_id for one in probes if one.boundary.startswith("disconnect")}
    if not serving or not followed:
        return list(rows)
    known = _known(rows, windows, serving, followed)
    awaits = {
        (row.window_id, row.thread_id)
        for row in rows
        if row.phase in _OUTSIDE and row.state == "blocked_network"
    }
    return [
        row._replace(phase="command")
        if row.phase in _OUTSIDE
        and (at := (row.window_id, row.thread_id)) in known
        and (row.state in _OF_COMMANDS or at not in awaits)
        else row
        for row in rows
    ]


def _known(
    rows: Iterable[Ledger],
    windows: Iterable[Window],
    serving: Collection[int],
    followed: Collection[int],
) -> set[tuple[int, int]]:
    """Windows and threads that were known to have a connection, and were followed since."""
    phases: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if row.thread_id in serving and row.time_ns > 0:
            phases[row.window_id][row.thread_id].add(row.phase)
    found: set[tuple[int, int]] = set()
    known: set[int] = set()
    opening: dict[int, list[int]] = defaultdict(list)
    """Windows of this stretch in which a thread was not known yet."""
    last: Window | None = None
    for window in sorted(windows, key=lambda one: (one.target_id, one.start_ns)):
        number, is_first = window.window_id, last is None or last.target_id != window.target_id
        missed = last is not None and window.start_ns - last.end_ns >= stretches.GAP_NS
        last = window
        is_dense = window.level in LEDGER_LEVELS and window.target_id in followed
        if not is_dense or is_first or missed:
            opening.clear()  # new connections were not seen in the ledger
        if is_first or missed or not (is_dense or window.level == "connection"):
            known = set()
        if not is_dense:
            continue
        for thread, mine in phases[number].items():
            if thread in known:
                found.add((number, thread))
            elif mine <= {*_OUTSIDE}:
                opening[thread].append(number)
            else:
                known.add(thread)
                begun = [*opening.pop(thread, []), number]
                if not mine & _SETTING_UP:
                    found |= {(one, thread) for one in begun}
    return found


@dataclass(frozen=True)
class Unfinished:
    """A command that lasted at least so long: its beginning, its end or both were not recorded."""

    thread_id: int
    window_id: int
    """The last window in which it is known to have lasted throughout."""
    least_ns: int
    state: str
    """The state of most of this time."""
    is_same: bool
    """It may be the same one as the thread's last one before."""


def unfinished(
    rows: Iterable[Ledger],
    windows: Iterable[Window],
    threads: Iterable[Thread],
) -> list[Unfinished]:
    """Commands that took all of the first or last windows of a stretch.

    The end of one stretch and the beginning of the next may be one command (`is_same`).
    """
    serving = {one.thread_id for one in threads if one.role in _SERVES}
    cells: dict[int, dict[int, dict[tuple[str, str], int]]] = defaultdict(dict)
    for row in rows:
        if row.thread_id in serving and row.time_ns > 0:
            mine = cells[row.window_id].setdefault(row.thread_id, {})
            mine[row.phase, row.state] = mine.get((row.phase, row.state), 0) + row.time_ns
    found: list[Unfinished] = []
    before: set[int] = set()
    """Threads that had a command under way when the last stretch ended."""
    last: Window | None = None
    for stretch in stretches.of_windows(windows):
        if last and (last.target_id, last.run_id) != (stretch[0].target_id, stretch[0].run_id):
            before = set()
        last = stretch[-1]
        present = {thread for one in stretch for thread in cells[one.window_id]}
        whole = {
            one.window_id: {
                thread for thread, mine in cells[one.window_id].items() if _lasted(mine, one)
            }
            for one in stretch
        }
        after: set[int] = set()
        for thread in present:
            first, final = _edges([thread in whole[one.window_id] for one in stretch])
            if first:
                is_same = thread in before
                found.append(_unfinished(thread, stretch[:first], cells, is_same))
            if final and first < len(stretch):
                found.append(_unfinished(thread, stretch[-final:], cells, False))
            if final:
                after.add(thread)
        before = after
    return found


def _edges(lasted: Sequence[bool]) -> tuple[int, int]:
    """How many at the beginning and at the end are true."""
    first = next((at for at, one in enumerate(lasted) if not one), len(lasted))
    final = next((at for at, one in enumerate(reversed(lasted)) if not one), len(lasted))
    return first, final


def _lasted(cells: _Cells, window: Window) -> bool:
    """Whether a thread spent a whole window in one command."""
    if {phase for phase, _ in cells} - set(_WITHIN) or not cells:
        return False
    if sum(cells.values()) < 0.99 * (window.end_ns - window.start_ns):
        return False  # it began or ended in it
    if window.level in _TELL_RECORDS:
        return True
    return len(cells) == 1 and all(state.startswith("blocked_") for _, state in cells)


def _unfinished(
    thread: int,
    kept: Sequence[Window],
    cells: Mapping[int, Mapping[int, _Cells]],
    is_same: bool,
) -> Unfinished:
    sums: dict[str, int] = defaultdict(int)
    for window in kept:
        for (_, state), time_ns in cells[window.window_id][thread].items():
            sums[state] += time_ns
    state = max(sums, key=lambda name: sums[name])
    return Unfinished(thread, kept[-1].window_id, sum(sums.values()), state, is_same)


def lengths_ns(found: Iterable[Unfinished], window_ids: Collection[int]) -> list[int]:
    """What each command of these windows lasted at least; of what may be one, its longest part."""
    longest: list[int] = []
    place: dict[int, int] = {}
    for one in found:
        if one.window_id not in window_ids:
            continue
        if one.is_same and one.thread_id in place:
            longest[place[one.thread_id]] = max(longest[place[one.thread_id]], one.least_ns)
        else:
            place[one.thread_id] = len(longest)
            longest.append(one.least_ns)
    return longest
