# SPDX-License-Identifier: GPL-2.0-only
"""Write a document as Markdown for a ticket: the answer, the findings, the tables that matter.

Computes nothing; every number is one of the document's, written as everywhere else.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.markdown.escape import plain

Json = Mapping[str, Any]


def render(document: Json) -> str:
    """The whole text."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Json) -> Iterator[str]:
    yield f"**{plain(quantities.typeset(document['answer']['sentence']))}**"
    yield ""
    for detail in document["answer"]["details"]:
        yield f"- {plain(quantities.typeset(detail))}"
    yield ""
    yield from _trust(document)
    if document["findings"]:
        yield from _findings(document)
    for comparison in document["comparisons"]:
        if comparison["refusal"] is None:
            yield from _comparison(comparison)
    if not document["comparisons"]:
        for bar in document["ledgers"]:
            yield from _ledger(bar)
    for split in document["splits"]:
        yield from _split(split)
    if document["sources"]:
        yield from _sources(document["sources"])


def _trust(document: Json) -> Iterator[str]:
    """What stands before the numbers."""
    capture, health = document["capture"], document["health"]
    for target in capture["targets"]:
        yield f"- measured: {plain(target['server'])}, {plain(target['tls'])}"
    yield (
        f"- recorded: {quantities.moment(capture['recorded_at'])}, "
        f"{quantities.time(capture['duration_ns'])}; "
        f"{quantities.count(health['symbols']['sample_count'])} CPU samples"
    )
    yield f"- closure: {plain(quantities.typeset(health['closure']['summary']))}"
    for warning in health["warnings"]:
        yield f"- warning: {plain(warning)}"


def _findings(document: Json) -> Iterator[str]:
    for number, finding in enumerate(document["findings"], start=1):
        size, share = finding["size"], finding["share"]
        yield ""
        yield f"### {number}. {plain(finding['title'])}"
        yield ""
        bounds = texts.interval(size)
        yield (
            f"{plain(finding['sentence'])}: {quantities.time(size['value_ns'])} per "
            f"{finding['operation']} {plain(bounds)}, {quantities.share(share['value'])} of the "
            "time."
        )
        yield ""
        rows = [
            (line["label"], quantities.evidence(line), quantities.evidence_interval(line))
            for line in finding["evidence"]
        ]
        yield from _table(("evidence", "value", texts.bounds_title(finding["evidence"])), rows)
        yield ""
        yield f"{plain(finding['advice'])} ({finding['source']})"


def _comparison(comparison: Json) -> Iterator[str]:
    yield ""
    yield f"### {plain(comparison['driver'])}: {plain(comparison['scenario'])}"
    yield ""
    rows = [
        (
            cell["label"],
            quantities.time_change(cell["difference"]["value_ns"]),
            texts.interval(cell["difference"]),
            texts.verdict(cell),
        )
        for cell in comparison["cells"]
    ]
    bounds = texts.bounds_title(cell["difference"] for cell in comparison["cells"])
    yield from _table(("step", "TLS less plaintext", bounds, "verdict"), rows)
    yield ""
    arms = {quantities.name(arm): one for arm, one in comparison["unexplained"].items()}
    yield plain(texts.unexplained(arms, comparison["operation"]))
    yield ""
    yield plain(comparison["note"])


def _ledger(bar: Json) -> Iterator[str]:
    if not bar["segments"]:
        return
    yield ""
    yield f"### {plain(bar['label'])}"
    yield ""
    rows = [
        (
            quantities.name(segment["phase"]),
            quantities.name(segment["state"]),
            quantities.time(segment["time_ns"]),
            quantities.share(segment["share"]),
        )
        for segment in bar["segments"]
    ]
    yield from _table(("phase", "state", "time", "share"), rows)


def _split(split: Json) -> Iterator[str]:
    """The parts of commands at level `flow`, or why they are not told."""
    yield ""
    yield f"### CPU time of commands, {plain(split['label'])}"
    yield ""
    if split["refusal"]:
        yield plain(split["refusal"])
        return
    rows = [
        (
            texts.part(line["phase"]),
            f"≈ {quantities.time(line['time']['value_ns'])}",
            texts.interval(line["time"]),
            f"≈ {quantities.share(line['share'])}",
            quantities.share(line["exact_share"]),
            quantities.share(line["sampled_share"]),
        )
        for line in split["lines"]
    ]
    head = ("part", "time", texts.INTERVAL, "share", "stretches: exact", "stretches: by samples")
    yield from _table(head, rows)
    yield ""
    yield plain(quantities.typeset(split["note"]))


def _sources(sources: Json) -> Iterator[str]:
    """Series of the host and the server, and counters by phase."""
    rows = [
        (
            f"{panel['title']}: {line['label']}",
            *(
                quantities.reading(line[key], panel["unit"])
                for key in ("mean", "lowest", "highest")
            ),
        )
        for panel in sources["panels"]
        for line in panel["lines"]
    ]
    if rows:
        yield ""
        yield "### The host and the server's own counters"
        yield ""
        yield from _table(("what", "mean", "lowest", "highest"), rows)
    for note in sources["notes"]:
        yield f"- {plain(quantities.typeset(note))}"
    if sources["counters"]:
        yield ""
        yield "### Instructions per cycle"
        yield ""
        rows = [
            (
                quantities.name(line["phase"]),
                quantities.count(line["cycles_count"]),
                quantities.count(line["instructions_per_cycle"]),
                quantities.count(line["cycles_per_byte"]),
            )
            for line in sources["counters"]
        ]
        yield from _table(("phase", "cycles", "instructions a cycle", "cycles a byte"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(plain(text) for text in row)} |"
