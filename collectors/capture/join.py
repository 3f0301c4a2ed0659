# SPDX-License-Identifier: GPL-2.0-only
"""Join recordings of one server, made one after the other, into one capture.

An experiment on several servers records one at a time, so that the others run without probes
meanwhile; each turn is a separate recording. Keys continue from one recording to the next. Runs
keep their keys, which the experiment assigned over all turns, and so does the server, which is the
same process in all of them, or the same program started again (`Run.server_start`; its row has the
process id of the first start, and the fact `server_pids` those of all). CPU time that is in no
window is summed. A probe that was attached in each turn is one row with the sum of
its hits, and what was unavailable in each turn is one row.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import KEYED, TABLES, Gap, Meta, Probe, Row, Target, columns
from tlstax.collectors.capture.writer import CaptureWriter

KEPT: Final = "run_id"
LIST: Final = "frame_ids"
SERVER: Final = 1  # the target_id of what is recorded, see schema.Target
_OUTSIDE: Final = ("start_cpu_ns", "end_cpu_ns")
_PIDS: Final = "server_pids"
_DIGITS_MOST: Final = 18  # of a number of 64 bits


def join_captures(parts: Sequence[Path], output: Path) -> None:
    """Write `output` from `parts`, which are in the order of time and are not changed.

    Raises TlstaxError: CAPTURE if a part is not a capture, USAGE or IO if the output cannot be
    written.
    """
    counted: dict[str, int] = {}  # key column -> highest key so far
    probes: dict[tuple[object, ...], Probe] = {}
    gaps: dict[Gap, None] = {}
    pids: dict[str, None] = {}
    outside_ns = dict.fromkeys(_OUTSIDE, 0)
    with CaptureWriter.create(output) as writer:
        for number, part in enumerate(parts):
            with CaptureReader.open(part) as reader:
                meta = reader.meta()
                pids |= dict.fromkeys(_server_pids(reader, meta))
                for key in outside_ns:
                    outside_ns[key] += _number(meta.get(key, ""))
                shifts = dict(counted)
                for table in TABLES:
                    for row in _shifted(reader, table, shifts, counted):
                        if isinstance(row, Probe):
                            _sum_up(probes, row)
                        elif isinstance(row, Gap):
                            gaps[row] = None
                        elif number == 0 or _adds(row):
                            writer.add(row)
            writer.commit()
        writer.add([*probes.values(), *gaps])
        writer.add(Meta(key, str(spent_ns)) for key, spent_ns in outside_ns.items() if spent_ns)
        if len(pids) > 1:
            writer.add(Meta(_PIDS, " ".join(pids)))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_MOST else 0


def _server_pids(reader: CaptureReader, meta: Mapping[str, str]) -> list[str]:
    """Those of a recording, which may be a joined one."""
    found = [str(row.pid) for row in reader.rows(Target) if row.target_id == SERVER]
    return meta.get(_PIDS, "").split() or found


def _shifted(
    reader: CaptureReader, table: type[Any], shifts: Mapping[str, int], counted: dict[str, int]
) -> Iterator[Row]:
    """The rows of a table with keys continued from `counted`, which is updated."""
    fields = [(column.name, _key_of(column.name, column.kind)) for column in columns(table)]
    own = fields[0][1] if table in KEYED else None
    for row in reader.rows(table):
        moved = {}
        for name, key in fields:
            value = getattr(row, name)
            if key and value is not None and (key, value) != ("target_id", SERVER):
                moved[name] = value + shifts.get(key, 0)
            elif name == LIST:
                shift = shifts.get("frame_id", 0)
                moved[name] = " ".join(str(one + shift) for one in frame_ids.parse(value))
        made: Row = row._replace(**moved)
        if own:
            counted[own] = max(counted.get(own, 0), getattr(made, own))
        yield made


def _key_of(name: str, kind: type) -> str | None:
    """The key column that a column refers to or is, None for a value and for keys that are kept."""
    if kind is not int or not name.endswith("_id") or name == KEPT:
        return None
    return "stack_id" if name.endswith("_stack_id") else name


def _adds(row: Row) -> bool:
    """Whether a later recording's row is kept: it holds what the first recording does not."""
    if isinstance(row, Meta):
        return row.key.startswith("end_")
    return not isinstance(row, Target) or row.target_id != SERVER


def _sum_up(probes: dict[tuple[object, ...], Probe], row: Probe) -> None:
    place = row._replace(probe_id=0, hits_count=0, cost_ns=None, begun_count=0, healed_count=0)
    earlier = probes.get(place)
    if earlier is not None:
        row = earlier._replace(
            hits_count=earlier.hits_count + row.hits_count,
            begun_count=earlier.begun_count + row.begun_count,
            healed_count=earlier.healed_count + row.healed_count,
        )
    probes[place] = row
