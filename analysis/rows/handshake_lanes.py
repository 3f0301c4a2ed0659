# SPDX-License-Identifier: GPL-2.0-only
"""The parts of a handshake as lanes: the median and the slowest one, and the means of both sides.

A record has totals by part, not their order. The records of server and client cannot be matched by
connection, so the two sides are compared as means.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tlstax.analysis.model.tables import HandshakeLane, HandshakeLanePart
from tlstax.analysis.rows import handshakes
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.schema import Handshake

_THROUGHOUT: Final = ("other_cpu", "rest", "runnable", "blocked_other", "untracked")
"""Parts without a position in the protocol."""
_SERVER: Final = ("keygen", "derive", "sign", "blocked_network", "certificate", "verify")
_SERVER_1_2: Final = ("keygen", "sign", "blocked_network", "certificate", "verify", "derive")
_CLIENT: Final = ("keygen", "blocked_network", "derive", "certificate", "verify", "sign")
_ORDER_NOTE: Final = (
    "The recording has the total time of each part, not their order: the parts are drawn in the "
    "protocol's usual order, followed by those that occur throughout."
)
_MEANS_NOTE: Final = (
    " The handshakes of clients and server cannot be matched by connection, so the lanes of both "
    "sides are means."
)


def lanes(part: Group, rows: Sequence[Handshake], tables: Tables) -> list[HandshakeLane]:
    """The lanes of a group whose server's handshakes are `rows`; none without a success."""
    server = _split(rows)
    if not server:
        return []
    made = [
        _lane("server_median", "server, median", "server", [server[(len(server) - 1) // 2]]),
        _lane("server_slowest", "server, slowest", "server", [server[-1]]),
    ]
    if client := _split(_of_clients(part, tables)):
        made += [
            _lane("server_mean", "server, mean", "server", server),
            _lane("client_mean", "client, mean", "client", client),
        ]
    return made


def note(made: Sequence[HandshakeLane]) -> str:
    """The limits of the lanes; '' without any."""
    if not made:
        return ""
    return _ORDER_NOTE + (_MEANS_NOTE if any(lane.side == "client" for lane in made) else "")


def _split(rows: Sequence[Handshake]) -> list[Handshake]:
    """The successful ones of which most is known, the fastest first."""
    split = handshakes.most_told(rows)
    return sorted(split, key=lambda row: (row.end_ns - row.start_ns, row.handshake_id))


def _of_clients(part: Group, tables: Tables) -> list[Handshake]:
    if tables.clients is None:
        return []
    run_ids = {run.run_id for run in part.runs}
    windows = tables.clients.windows
    ids = {one.window_id for one in windows if not part.runs or one.run_id in run_ids}
    return [
        row for row in tables.clients.handshakes if row.window_id in ids and row.side != "server"
    ]


def _lane(name: str, label: str, side: str, rows: Sequence[Handshake]) -> HandshakeLane:
    """A lane of one record, or of the mean of several. A part below zero is left out."""
    times = {one.name: one for one in handshakes.parts(rows)}
    if side == "client":
        order = _CLIENT
    else:
        version, _ = Counter(row.tls_version for row in rows).most_common(1)[0]
        order = _SERVER if version in ("TLSv1.3", "unknown") else _SERVER_1_2
    at_ns = 0.0
    drawn = []
    for one in (*order, *_THROUGHOUT):
        if one in times and times[one].mean.value_ns > 0:
            end_ns = at_ns + times[one].mean.value_ns
            text = _LABELS.get((side, one), times[one].label)
            drawn.append(HandshakeLanePart(one, text, end_ns - at_ns, at_ns, end_ns))
            at_ns = end_ns
    wall_ns = sum(row.end_ns - row.start_ns for row in rows) / len(rows)
    return HandshakeLane(name, label, side, len(rows), wall_ns, drawn)


_LABELS: Final[Mapping[tuple[str, str], str]] = {
    ("client", "blocked_network"): "waiting for the server",
}
