# SPDX-License-Identifier: GPL-2.0-only
"""Draw the last seconds of a recording on a terminal of any size from 80x24 on.

States are letters as well as colours, so that nothing is lost without colour.
"""

from dataclasses import dataclass
from typing import Final

from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.document.live_snapshot import FunctionLine, LiveSnapshot, PhaseLine
from tlstax.analysis.report import texts
from tlstax.collectors.capture.schema import Target

STATES: Final = {
    "on_cpu": ("#", "green", "CPU"),
    "runnable": ("r", "yellow", "ready"),
    "blocked_network": ("n", "blue", "net"),
    "blocked_disk": ("d", "magenta", "disk"),
    "blocked_lock": ("l", "red", "lock"),
    "blocked_futex": ("f", "cyan", "futex"),
    "blocked_other": ("o", "bright_black", "other"),
}
NAME: Final = 13
FOOT_ROWS: Final = 2
LEAST_COLUMNS: Final = 40
SORTS: Final = ("time", "category")
KEYS: Final = "q quit  p pause  s sort"


@dataclass(frozen=True)
class Frame:
    """What stands beside the numbers."""

    target: Target | None
    running_ns: int
    note: str = ""
    is_paused: bool = False
    sort: str = SORTS[0]
    output: str = ""
    host: str = ""  # where the process runs, if not here


def draw(snapshot: LiveSnapshot, frame: Frame, columns: int, rows: int) -> list[Text]:
    """The lines of one picture, none wider than the terminal, not more than it has."""
    columns = max(columns, LEAST_COLUMNS)
    lines = [
        _title(frame),
        _rates(snapshot),
        _cpu(snapshot),
        Text(f"{'phase':<{NAME}}{'/s':>7}{'p50':>8}{'p99':>8}{'busy':>5} ", style="bold")
        + _legend(),
    ]
    widest = max((line.total for line in snapshot.phases), default=0.0)
    room = columns - NAME - 7 - 8 - 8 - 5 - 1
    lines += [_phase(line, widest, room) for line in snapshot.phases]
    lines.append(_waits(snapshot))
    left = rows - len(lines) - FOOT_ROWS - 1
    if left > 0:
        title = f"functions by {frame.sort}, of {snapshot.sample_count} CPU samples"
        lines.append(Text(title, style="bold"))
        lines += _functions(snapshot, frame.sort, columns)[:left]
    lines = lines[: rows - FOOT_ROWS]
    lines += [Text()] * (rows - FOOT_ROWS - len(lines))
    lines += [_losses(snapshot), _keys(frame)]
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    return lines


def _title(frame: Frame) -> Text:
    target = frame.target
    if target is None:
        return Text("tlstax top: waiting for the first window", style="bold")
    name = target.exe.rpartition("/")[2]
    where = f" on {frame.host}" if frame.host else ""
    text = (
        f"{name} {target.pid}{where} · {target.server} {target.server_version} · "
        f"{quantities.library(target.tls_library, target.tls_version)} · "
        f"{frame.running_ns / 1e9:.0f} s"
    )
    line = Text("tlstax top  ", style="bold")
    if frame.is_paused:
        line = Text("PAUSED", style="bold reverse") + Text("  ")
    return line + Text(texts.clean(text))


def _rates(snapshot: LiveSnapshot) -> Text:
    phases = {line.name: line for line in snapshot.phases}
    per_second = {name: phases[name].per_second if name in phases else 0.0
                  for name in ("connect", "command")}  # fmt: skip
    resumed = quantities.share(snapshot.resumed_share)
    failed = snapshot.failed_per_second
    text = f"handshakes {_rate(snapshot.handshakes_per_second)} ({resumed} resumed"
    text += f", {_rate(failed)} failed)" if failed else ")"
    return Text(
        f"{text}  connects {_rate(per_second['connect'])}  commands {_rate(per_second['command'])}",
        style="" if not failed else "red",
    )


def _rate(value: float) -> str:
    return f"{quantities.number_text(value)}/s"


def _cpu(snapshot: LiveSnapshot) -> Text:
    cpus = quantities.three_digits(snapshot.cpus)
    text = f"server {cpus} CPUs  host {quantities.share(snapshot.idle_share)} idle  last "
    text += quantities.time(snapshot.span_ns)
    if snapshot.measured_ns < snapshot.span_ns:
        share = snapshot.measured_ns / snapshot.span_ns if snapshot.span_ns else 0.0
        text += f", phases seen in {quantities.share(share)} of it"
    return Text(text)


def _legend() -> Text:
    line = Text()
    for letter, colour, name in STATES.values():
        rest = name.removeprefix(letter)
        line.append(letter, style=f"bold {colour}")
        line.append(rest if rest != name else f"={name}", style="dim")
        line.append(" ")
    return line


def _phase(line: PhaseLine, widest: float, room: int) -> Text:
    """A phase with its times, and a bar of its states."""
    text = Text(
        f"{texts.name(line.name)[: NAME - 1]:<{NAME}}{line.per_second:>7,.0f}"
        f"{quantities.time(line.p50_ns):>8}{quantities.time(line.p99_ns):>8}{line.total:>5.2f} "
    )
    drawn, ends = 0, 0.0
    for state, (letter, colour, _) in STATES.items():
        ends += line.states.get(state, 0.0)
        columns = round(ends / widest * max(room, 1)) if widest > 0 else 0
        text.append(letter * (columns - drawn), style=colour)
        drawn = columns
    return text


def _waits(snapshot: LiveSnapshot) -> Text:
    """What connection threads wait for, in threads at any time."""
    line = Text("waiting threads  ", style="bold")
    for state, value in snapshot.waits.items():
        _, colour, name = STATES[state]
        line.append(f"{name} ", style=colour)
        line.append(f"{quantities.three_digits(value)}  ")
    if not snapshot.waits:
        line.append("none")
    return line


def _functions(snapshot: LiveSnapshot, sort: str, columns: int) -> list[Text]:
    """One line for each function, or each category."""
    found = snapshot.functions
    if sort == "category":
        sums: dict[str, float] = {}
        for line in found:
            sums[line.category] = sums.get(line.category, 0.0) + line.share
        found = [
            FunctionLine(texts.name(name), "", "", share)
            for name, share in sorted(sums.items(), key=lambda item: -item[1])
        ]
    return [_function(line, columns) for line in found]


def _function(line: FunctionLine, columns: int) -> Text:
    where = f"{texts.name(line.category)}, {texts.name(line.phase)}" if line.category else ""
    name = texts.clean(line.name)
    room = columns - 8 - len(where) - 3
    if len(name) > room:
        name = name[: max(room - 1, 1)] + "…"
    text = Text(f"{quantities.share(line.share):>7} {name}")
    return text.append(f"  {where}", style="dim")


def _losses(snapshot: LiveSnapshot) -> Text:
    lost = ", ".join(f"{count} {texts.name(kind)}" for kind, count in snapshot.lost.items())
    engine = quantities.share(snapshot.engine_share)
    return Text(
        f"lost {lost or 'nothing'}, healed {snapshot.repaired_count} · cost "
        f"{quantities.share(snapshot.cost_share)} of its CPU · tlstax {engine} CPU, "
        f"{quantities.size(snapshot.engine_bytes)}",
        style="yellow" if lost else "dim",
    )


def _keys(frame: Frame) -> Text:
    text = KEYS
    if frame.output:
        text += f"  recording to {frame.output}"
    if frame.note:
        text += f"  {frame.note}"
    return Text(texts.clean(text), style="dim")
