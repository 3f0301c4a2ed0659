# SPDX-License-Identifier: GPL-2.0-only
"""The steps from plaintext to TLS on the terminal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]

FEW_MARK: Final = " °"
"""Behind steps that rest on too few samples for a share."""
SMALLEST_STEP: Final = 0.005
"""Steps below this share of the difference are in the JSON and the HTML only."""


def render(comparison: Json, width: int, minimum: int) -> RenderableType:
    """The waterfall of one driver."""
    title = f"{texts.name(comparison['driver'])}: {texts.name(comparison['scenario'])}"
    if comparison["refusal"] is not None:
        return Group(
            Text(),
            Text(texts.clean(title), style="bold"),
            Text(texts.clean(comparison["refusal"])),
        )
    bounds, write = texts.bounds_column(cell["difference"] for cell in comparison["cells"])
    table = console.table(
        f"{title}, per {comparison['operation']}", "step", "difference", bounds, "share", ""
    )
    table.columns[-1].justify = "left"
    ends = [cell[key] for cell in comparison["cells"] for key in ("start_ns", "end_ns")]
    latencies = comparison["latency"]
    whole = max([*ends, *(latency["value_ns"] for latency in latencies.values())], default=0.0)
    for arm in ("plaintext", "tls"):
        if arm == "tls":
            _add_cells(table, comparison["cells"], whole, minimum, write)
        if arm in latencies:
            latency = latencies[arm]
            table.add_row(
                Text(texts.name(arm), style="bold"),
                Text(quantities.time(latency["value_ns"]), style="bold"),
                write(latency),
                "",
                Text(console.bar(0, latency["value_ns"], whole), style="bright_black"),
            )
    return console.titled(table, width, *_comparison_notes(comparison, minimum))


def _add_cells(
    table: Table, cells: Sequence[Json], whole: float, minimum: int, write: Callable[[Json], str]
) -> None:
    """The steps that matter, and what is left unexplained; the HTML has them all."""
    for cell in cells:
        # Without a difference to explain there are no shares of it: judge by the whole then.
        share = cell["share"]
        if share is None:
            share = cell["difference"]["value_ns"] / whole if whole else 0.0
        if cell["name"] != "unexplained" and abs(share) < SMALLEST_STEP:
            continue
        is_few = layout.rests_on_few(cell, minimum)
        is_seen = cell["verdict"] in ("more", "less")
        style = "" if is_seen and not is_few else "dim"
        table.add_row(
            Text(f"  {texts.clean(cell['label'])}{FEW_MARK * is_few}", style=style),
            Text(quantities.time_change(cell["difference"]["value_ns"]), style=style),
            Text(write(cell["difference"]), style=style),
            Text("" if is_few else quantities.share(cell["share"]), style=style),
            Text(
                console.bar(cell["start_ns"], cell["end_ns"], whole),
                style="cyan" if is_seen else "dim",
            ),
        )


def _comparison_notes(comparison: Json, minimum: int) -> Iterable[str]:
    difference, ratio = comparison["difference"], comparison["ratio"]
    if difference is not None and ratio is not None:
        yield (
            f"TLS less plaintext {texts.change(difference)}, {quantities.ratio(ratio['value'])} "
            f"the plaintext latency: {comparison['verdict']}"
        )
    arms = {texts.name(arm): one for arm, one in comparison["unexplained"].items()}
    if arms:
        yield texts.unexplained(arms, comparison["operation"])
    for cell in comparison["beside"]:
        yield f"not part of the sum: {cell['label']} {texts.change(cell['difference'])}"
    if any(layout.rests_on_few(cell, minimum) for cell in comparison["cells"]):
        yield f"{FEW_MARK.strip()} fewer than {quantities.count(minimum)} samples"
    yield comparison["note"]
