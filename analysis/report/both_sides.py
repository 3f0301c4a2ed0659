# SPDX-License-Identifier: GPL-2.0-only
"""Client and server of one operation on the terminal: two lanes, and what lies between them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from tlstax.analysis.report import console, quantities

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
    """Both lanes of one operation."""
    title = f"both sides: {item['label']}, per {item['operation']}"
    table = console.table(title, "part", "time", "95 % interval", "share", "")
    table.columns[-1].justify = "left"
    whole = max([item["latency"]["value_ns"], *(part["end_ns"] for part in item["parts"])])
    lane = ""
    for part in item["parts"]:
        if part["share"] < SMALLEST_PART and part["kind"] != "between":
            continue
        if part["lane"] != lane:
            lane = part["lane"]
            if lane != "between":
                table.add_row(Text(console.name(lane), style="bold"), *_total(item, lane))
        table.add_row(
            f"  {console.clean(part['label'])}" if lane != "between" else "between",
            quantities.time(part["cost"]["value_ns"]),
            console.interval(part["cost"]),
            quantities.share(part["share"]),
            Text(
                console.bar(part["start_ns"], part["end_ns"], whole),
                style=_STYLES.get(part["kind"], "bright_black"),
            ),
        )
    return console.titled(table, width, *_notes(item))


def _total(item: Json, lane: str) -> tuple[Text, Text]:
    """The sum of the client's lane is the operation's time; the server's has none of its own."""
    if lane == "server":
        return Text(""), Text("")
    latency = item["latency"]
    return (
        Text(quantities.time(latency["value_ns"]), style="bold"),
        Text(console.interval(latency)),
    )


def _notes(item: Json) -> Iterable[str]:
    between = "between: the client's wait less the server's CPU time: network and scheduling"
    if item["between"]["value_ns"] < 0:
        between = "between, below zero: the server computed while the client did not wait"
    yield between
    for part in item["beside"]:
        time = quantities.time(part["cost"]["value_ns"])
        yield f"beside it: {part['lane']} {part['label']} {time}"
    shakes = item["handshake_counts"]
    yield (
        f"{quantities.count(item['process_count'])} client processes "
        f"({', '.join(item['libraries'])}), handshakes "
        f"{quantities.count(shakes['client'])} at the client and "
        f"{quantities.count(shakes['server'])} at the server; closure of the client's threads "
        f"{quantities.share(item['closure'])}, probes in the client "
        f"{quantities.time(item['probe_ns'])} per {item['operation']}"
    )
    yield from item["notes"]
