# SPDX-License-Identifier: GPL-2.0-only
"""Client and server of one operation on the terminal: two bars, and what lies between them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]

SMALLEST_PART: Final = 0.005
"""Parts below this share of the operation are in the JSON and the HTML only."""
_STYLES: Final = {
    "cpu": "cyan",
    "runnable": "yellow",
    "wait": "bright_black",
    "peer": "bright_black",
}


def is_of_interest(item: Json) -> bool:
    """The TLS arms and whole recordings; plaintext arms are in the HTML."""
    return bool(item["arm"] != "plaintext")


def render(item: Json, width: int) -> RenderableType:
    """Both sides of one operation, and what TLS adds to each part where plaintext was measured."""
    title = f"both sides: {item['label']}, per {item['operation']}"
    compared = item["latency_added"] is not None
    fifth = "TLS adds" if compared else "share"
    bounds, write = texts.bounds_column(part["cost"] for part in item["parts"])
    table = console.table(title, "part", "time", bounds, fifth, "")
    table.columns[-1].justify = "left"
    whole = max([item["latency"]["value_ns"], *(part["end_ns"] for part in item["parts"])])
    lane = ""
    for part in item["parts"]:
        if part["share"] < SMALLEST_PART and part["kind"] != "between":
            continue
        if part["lane"] != lane:
            lane = part["lane"]
            if lane == "client":
                total = (item["latency"], 1.0, item["latency_added"])
                table.add_row(*_row("client", *total, write), style="bold")
            elif lane == "server":
                table.add_row(Text("server", style="bold"))
        label = "between" if lane == "between" else f"  {texts.clean(part['label'])}"
        table.add_row(
            *_row(label, part["cost"], part["share"], part["added"], write),
            Text(
                console.bar(part["start_ns"], part["end_ns"], whole),
                style=_STYLES.get(part["kind"], "bright_black"),
            ),
        )
    return console.titled(table, width, *_notes(item))


def _row(
    label: str, cost: Json, share: float, added: Json | None, write: Callable[[Json], str]
) -> tuple[str, str, str, str]:
    last = quantities.share(share) if added is None else quantities.time_change(added["value_ns"])
    return label, quantities.time(cost["value_ns"]), write(cost), last


def _notes(item: Json) -> Iterable[str]:
    between = "between: the client's wait less the server's CPU time: network and scheduling"
    if item["between"]["value_ns"] < 0:
        between = "between, below zero: the server computed while the client did not wait"
    yield between
    if item["latency_added"] is not None:
        yield f"TLS adds {texts.change(item['latency_added'])} to a {item['operation']}"
    for part in item["beside"]:
        time = quantities.time(part["cost"]["value_ns"])
        yield f"not in the bars: {part['lane']} {part['label']} {time}"
    shakes = item["handshake_counts"]
    yield (
        f"{quantities.count(item['process_count'])} client "
        f"{'process' if item['process_count'] == 1 else 'processes'} "
        f"({', '.join(item['libraries'])}), handshakes "
        f"{quantities.count(shakes['client'])} at the client and "
        f"{quantities.count(shakes['server'])} at the server; closure of the client's threads "
        f"{quantities.share(item['closure'])}, probes in the client "
        f"{quantities.time(item['probe_ns'])} per {item['operation']}"
    )
    yield from item["notes"]
