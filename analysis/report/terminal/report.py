# SPDX-License-Identifier: GPL-2.0-only
"""Print a document on the terminal: what can be trusted, the answer, the numbers behind it.

Every number is one of the document's, written as in the HTML page. Readable from 80 columns on.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from rich.console import RenderableType
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.terminal import (
    both_sides,
    command_split,
    composition,
    console,
    findings,
    handshakes,
    intermediaries,
    ledger,
    primitives,
    roles,
    sources,
    trust,
    waterfall,
)

Json = Mapping[str, Any]


def print_report(
    document: Json, html_path: str | None = None, stream: TextIO | None = None
) -> None:
    """Print the report of a document; the last line says where its HTML page is."""
    screen = console.screen(stream)
    for part in _parts(document, screen.width):
        screen.print(part)
    screen.print(_last_line(html_path), soft_wrap=True)


def _parts(document: Json, width: int) -> Iterable[RenderableType]:
    yield trust.render(document["health"], width)
    yield Text()
    yield console.sentence(document["answer"]["sentence"], width, style="bold")
    for detail in document["answer"]["details"]:
        yield console.sentence(detail, width, mark="· ")
    yield console.sentence(_subject(document["capture"]), width, style="dim")
    yield from findings.render(document, width)
    minimum = layout.minimum_sample_count(document)
    for comparison in document["comparisons"]:
        yield waterfall.render(comparison, width, minimum)
    if not document["comparisons"]:
        yield from (ledger.render(item, width) for item in document["ledgers"] if item["segments"])
        yield from (
            roles.render(item, width, ledger.estimate_mark(item))
            for item in document["ledgers"]
            if item["roles"]
        )
    yield from (command_split.render(item, width) for item in document["splits"])
    both = [item for item in document["end_to_end"] if both_sides.is_of_interest(item)]
    yield from (both_sides.render(item, width) for item in both)
    yield from (intermediaries.render(item, width) for item in document["between"])
    yield from (handshakes.render(item, width) for item in document["handshakes"])
    compositions = [item for item in document["compositions"] if composition.is_of_interest(item)]
    yield from (composition.render(item, width) for item in compositions)
    for item in both:
        yield composition.render(
            {"label": f"client, {item['label']}", "phases": item["phases"], "estimate": ""}, width
        )
    yield from (primitives.render(item, width) for item in document["primitives"])
    for flame in document["flames"]:
        if flame["repair"]:
            yield Text()
            yield console.sentence(f"flame graph: {flame['repair']}", width)
    if document["sources"]:
        yield from sources.render(document["sources"], width)
    yield trust.observer(document["health"], width)
    yield from trust.gaps(document["health"], width)


def _subject(capture: Json) -> str:
    """What was measured, in one line."""
    targets = [
        f"{target['server']}, {target['tls']}, "
        + quantities.process(target["pid"], target["own_pid"], target["later_pids"])
        for target in capture["targets"]
    ]
    host = [capture["meta"][key] for key in ("hostname", "kernel") if key in capture["meta"]]
    start = quantities.moment(capture["recorded_at"])
    length = quantities.time(capture["duration_ns"])
    return texts.clean(" · ".join([*targets, *host, f"recorded {start} for {length}"]))


def _last_line(html_path: str | None) -> Text:
    if html_path is None:
        return Text("Add --html FILE for charts and flame graphs.", style="dim")
    return Text(f"Report: {texts.clean(html_path)}", style="bold")
