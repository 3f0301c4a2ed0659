# SPDX-License-Identifier: GPL-2.0-only
"""Print a prediction: the sentence, both figures, what was measured, what is assumed."""

from collections.abc import Mapping
from typing import Any, TextIO

from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.model.whatif import NO_TLS
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]


def print_prediction(document: Json, stream: TextIO | None = None) -> None:
    """Print it; readable from 80 columns on."""
    screen = console.screen(stream)
    width = screen.width
    screen.print(console.sentence(document["sentence"], width, style="bold"))
    screen.print(
        console.sentence(texts.side_text(document["side"]), width, mark="from  ", style="dim")
    )
    found, write = texts.bounds_column(
        line["then"] for line in document["forecasts"] if line["then"]
    )
    # Models add to the interval, so it is more than one of 95 %.
    bounds = "interval" if found == texts.INTERVAL else found
    # Without TLS there are bounds only: their middle is no prediction.
    is_bounded = NO_TLS in document["wishes"]
    middle, half, whole = (
        ((), "± of TLS cost", " of what TLS costs") if is_bounded else (("predicted",), "±", "")
    )
    table = console.table("predicted", "", "now", *middle, bounds, half)
    for line in document["forecasts"]:
        then = line["then"]
        predicted = quantities.time(then["value_ns"]) if then and not line["is_wide"] else "–"
        table.add_row(
            texts.clean(line["label"]),
            quantities.time(line["now"]["value_ns"]),
            *(predicted for _ in middle),
            write(then) if then else "",
            quantities.share(line["half_width_share"]) if then else "",
        )
    notes = [
        f"{line['label']}: not predicted within ±20 %{whole}, because {line['reason']}."
        for line in document["forecasts"]
        if line["reason"]
    ]
    screen.print(console.titled(table, console.WIDTH, *notes))
    if document["costs"]:
        title = "measured here, CPU time"
        now = ", ".join(document[name] for name in ("key", "cipher") if document[name])
        table = console.table(title, "operation", f"{now} (now)", "interval", "predicted")
        for cost in document["costs"]:
            table.add_row(
                cost["name"],
                _time(cost["before"]),
                texts.interval(cost["before"]) if cost["before"] else "",
                _time(cost["after"]),
            )
        screen.print(console.titled(table, console.WIDTH))
    screen.print(Text("\nassumed", style="bold"))
    for text in document["assumptions"]:
        screen.print(console.sentence(text, width, mark="- "))


def _time(measure: Json | None) -> str:
    return quantities.time(measure["value_ns"] if measure else None)
