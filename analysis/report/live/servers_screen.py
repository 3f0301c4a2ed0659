# SPDX-License-Identifier: GPL-2.0-only
"""Draw the last seconds of several recordings: one line for each server."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.document.live_snapshot import LiveSnapshot
from tlstax.analysis.report import texts
from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS
from tlstax.collectors.capture.schema import Target

KEYS: Final = "q quit  p pause"
_COLUMNS: Final = (
    ("handsh./s", 10), ("failed/s", 9), ("p50", 8), ("p99", 8), ("commands/s", 11), ("CPUs", 6),
    ("cost", 7),
)  # fmt: skip
_NAME_LEAST: Final = 12
_HEAD_ROWS, _FOOT_ROWS = 2, 2
_UNKNOWN: Final = "-"


@dataclass(frozen=True)
class ServerLine:
    """A server."""

    target: Target | None
    snapshot: LiveSnapshot
    ending: str = ""
    """Why it is no longer recorded."""


@dataclass(frozen=True)
class Frame:
    """What stands beside the numbers."""

    running_ns: int
    note: str = ""
    is_paused: bool = False
    output: str = ""
    host: str = ""  # where the processes run, if not here


def draw(servers: Sequence[ServerLine], frame: Frame, columns: int, rows: int) -> list[Text]:
    """The lines of one picture, none wider than the terminal, not more than it has."""
    room = max(_NAME_LEAST, columns - sum(width for _, width in _COLUMNS))
    names = "".join(f"{name:>{width}}" for name, width in _COLUMNS)
    lines = [_title(servers, frame), Text(f"{'server':<{room}}{names}", style="bold")]
    left = max(rows - _HEAD_ROWS - _FOOT_ROWS, 1)
    shown = servers if len(servers) <= left else servers[: left - 1]
    lines += [_server(server, room) for server in shown]
    if hidden := len(servers) - len(shown):
        lines.append(Text(f"and {hidden} more: the terminal is too low", style="dim"))
    lines += [Text()] * (rows - _FOOT_ROWS - len(lines))
    lines += [_costs(servers), _keys(frame)]
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    return lines[:rows]


def _title(servers: Sequence[ServerLine], frame: Frame) -> Text:
    line = Text("tlstax top  ", style="bold")
    if frame.is_paused:
        line = Text("PAUSED", style="bold reverse") + Text("  ")
    where = f" on {frame.host}" if frame.host else ""
    span_ns = max((server.snapshot.span_ns for server in servers), default=0)
    text = f"{len(servers)} servers{where} · {frame.running_ns / 1e9:.0f} s"
    text += f" · last {quantities.time(span_ns)}" if span_ns else ""
    return line + Text(texts.clean(text))


def _server(server: ServerLine, room: int) -> Text:
    name = f"{_name(server.target)} "
    if len(name) > room:
        name = f"{name[: room - 2]}… "
    if server.ending:
        return Text(f"{name:<{room}}ended: {texts.clean(server.ending)}", style="dim")
    seen = server.snapshot
    if not seen.span_ns:
        return Text(f"{name:<{room}}no window yet", style="dim")
    phases = {line.name: line for line in seen.phases}
    handshake, command = phases.get("handshake"), phases.get("command")
    counts_handshakes = seen.level in HANDSHAKE_LEVELS
    values = (
        quantities.number_text(seen.handshakes_per_second) if counts_handshakes else _UNKNOWN,
        quantities.number_text(seen.failed_per_second) if counts_handshakes else _UNKNOWN,
        quantities.time(handshake.p50_ns if handshake else None),
        quantities.time(handshake.p99_ns if handshake else None),
        quantities.number_text(command.per_second) if command and seen.measured_ns else _UNKNOWN,
        quantities.three_digits(seen.cpus),
        quantities.share(seen.cost_share),
    )
    cells = (f"{value:>{width}}" for value, (_, width) in zip(values, _COLUMNS, strict=True))
    return Text(f"{name:<{room}}{''.join(cells)}", style="red" if seen.failed_per_second else "")


def _name(target: Target | None) -> str:
    """The process, as in the name of its capture."""
    if target is None:
        return _UNKNOWN
    return texts.clean(f"{target.exe.rpartition('/')[2]} {target.pid}")


def _costs(servers: Sequence[ServerLine]) -> Text:
    """What is lost, and the cost of all: the recorder is one, and so is its memory."""
    live = [server.snapshot for server in servers if not server.ending]
    lost = [server for server in servers if sum(server.snapshot.lost.values())]
    kinds = ", ".join(
        f"{sum(server.snapshot.lost.values())} of {_name(server.target)}" for server in lost
    )
    engine = sum(seen.engine_share or 0.0 for seen in live)
    known = [(seen.cost_share, seen.cpus) for seen in live]
    cpus = sum(cpus or 0.0 for _, cpus in known)
    text = f"lost {kinds or 'nothing'} · "
    if cpus and all(cost is not None for cost, _ in known):
        cost = sum((cost or 0.0) * (own or 0.0) for cost, own in known) / cpus
        text += f"cost {quantities.share(cost)} of the CPU of all · "
    size = quantities.size(max((seen.engine_bytes for seen in live), default=0))
    text += f"tlstax {quantities.share(engine)} CPU, {size}"
    return Text(text, style="yellow" if lost else "dim")


def _keys(frame: Frame) -> Text:
    text = KEYS
    if frame.output:
        text += f"  recording to {frame.output}"
    if frame.note:
        text += f"  {frame.note}"
    return Text(texts.clean(text), style="dim")
