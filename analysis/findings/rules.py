# SPDX-License-Identifier: GPL-2.0-only
"""Findings: causes that a capture shows with confidence, by declarative rules.

The rules are `[[finding]]` tables of analysis/findings/*.toml:

- `id` (never reused), `title`, `question`: the cause in a word, in a few, and as a question.
- `when`: conditions that must all hold; `unless`: conditions of which none may. Each names a
  `metric` of finding_metrics.py and a bound: `above` and `below` for numbers, `above_of` for the
  name of a metric that it must exceed, `is` for texts (what they begin with). A bound holds if the
  whole interval of the metric lies beyond it, or the whole range of few rounds or blocks
  (LEAST_RANGE at least); a number without bounds or without a value never meets one. In `unless`
  the estimate alone decides.
- `unless_found`: ids of findings that say the same more exactly: it is left out where one of them
  holds. Between two rules that complement each other no estimate may fall through.
- `size`: the metric, a share of the served time, that says how much of it the cause takes. `time`:
  the metric of its time per operation, where that is no part of the served time.
- `specific`: it names the cause of a larger finding, and precedes it if it explains at least
  SPECIFIC of it. `first`: it makes the others doubtful and precedes all.
- `sentence`: the finding with metrics in braces, and `{share}` for its size. `evidence`: the
  metrics to show. `advice`, `source`: what to do, and a reference. `advice_if`: conditions, each
  with the `text` that precedes the advice where it holds.

Findings are ordered by size; the first one is the sentence at the head of the report.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from tlstax import TlstaxError
from tlstax.analysis.findings.client_metrics import lacking_connections
from tlstax.analysis.findings.conditions import Advice, Condition, advice, condition
from tlstax.analysis.findings.finding_metrics import Judged
from tlstax.analysis.findings.metric_labels import LABELS
from tlstax.analysis.findings.window_metrics import Metric, Metrics
from tlstax.analysis.model.findings import Evidence, Finding
from tlstax.analysis.model.report import Answer
from tlstax.analysis.model.tables import Measure, Ratio
from tlstax.analysis.quantities import bytes_text, number_text, share_text, time_text
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.statistics.units import LEAST_RANGE
from tlstax.collectors.capture.order_statistics import LEAST_UNITS

SPECIFIC: Final = 0.4
"""Share of a larger finding that a specific one must explain to precede it."""


@dataclass(frozen=True)
class Rule:
    """One kind of finding."""

    id: str
    title: str
    question: str
    size: str
    when: tuple[Condition, ...]
    unless: tuple[Condition, ...]
    sentence: str
    evidence: tuple[str, ...]
    advice: str
    source: str
    specific: bool
    first: bool
    unless_found: tuple[str, ...] = ()
    time: str = ""
    advice_if: tuple[Advice, ...] = ()

    def is_near(self, metrics: Metrics) -> bool:
        """Whether the estimates meet all conditions, but some interval does not."""
        return (
            not self.fires(metrics)
            and all(one.may_hold(metrics) for one in self.when)
            and not any(one.may_hold(metrics) for one in self.unless)
        )

    def fires(self, metrics: Metrics) -> bool:
        """Whether all conditions hold."""
        return all(one.holds(metrics) for one in self.when) and not any(
            one.may_hold(metrics) for one in self.unless
        )

    def advise(self, metrics: Metrics) -> str:
        """What to do: what depends on the metrics, then what holds in any case."""
        texts = (one.text for one in self.advice_if if one.condition.holds(metrics))
        return " ".join((*texts, self.advice))


@cache
def rules() -> tuple[Rule, ...]:
    """The rules that tlstax ships."""
    folder = files("tlstax.analysis.findings")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".toml"))
    found = tuple(rule for name in names for rule in parse((folder / name).read_text("utf-8")))
    known = {rule.id for rule in found}
    assert all(known.issuperset(rule.unless_found) for rule in found), "a rule names no other"
    return found


def parse(text: str) -> list[Rule]:
    """The rules of one file. TlstaxError names what is wrong with it."""
    try:
        tables = tomllib.loads(text)["finding"]
        return [_rule(table) for table in tables]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise TlstaxError(
            "cannot read the rules of findings",
            str(error),
            "Correct the file, see analysis/findings/rules.py for its keys",
        ) from error


def _rule(table: Mapping[str, Any]) -> Rule:
    named = {*table["evidence"], table["size"], table.get("time", table["size"])}
    conditions = (*table["when"], *table.get("unless", ()), *table.get("advice_if", ()))
    named |= {row[key] for row in conditions for key in ("metric", "above_of") if key in row}
    if unknown := sorted(named - LABELS.keys()):
        raise KeyError(f"{table['id']}: there is no metric {unknown[0]}")
    return Rule(
        id=table["id"],
        title=table["title"],
        question=table["question"],
        size=table["size"],
        when=tuple(condition(row) for row in table["when"]),
        unless=tuple(condition(row) for row in table.get("unless", ())),
        sentence=table["sentence"],
        evidence=tuple(table["evidence"]),
        advice=table["advice"],
        source=table["source"],
        specific=table.get("specific", False),
        first=table.get("first", False),
        unless_found=tuple(table.get("unless_found", ())),
        time=table.get("time", ""),
        advice_if=tuple(advice(row) for row in table.get("advice_if", ())),
    )


def judge(part: Group, judged: Judged, among: Sequence[Rule] | None = None) -> list[Finding]:
    """The findings of one group, the first one first."""
    fired = [rule for rule in (rules() if among is None else among) if rule.fires(judged.metrics)]
    ids = {rule.id for rule in fired}
    fired = [rule for rule in fired if ids.isdisjoint(rule.unless_found)]
    return [_finding(rule, part, judged) for rule in order(fired, judged.metrics)]


def order(fired: Sequence[Rule], metrics: Metrics) -> list[Rule]:
    """By size; a specific cause before the larger finding; what makes all doubtful first."""

    def size(rule: Rule) -> float:
        return metrics[rule.size].value or 0.0

    ordered = sorted(fired, key=lambda rule: -size(rule))
    general = [rule for rule in ordered if not rule.specific]
    for rule in [rule for rule in ordered if rule.specific]:
        at = ordered.index(rule)
        for larger in general:
            if size(rule) >= SPECIFIC * size(larger) and ordered.index(larger) < at:
                ordered.remove(rule)
                at = ordered.index(larger)
                ordered.insert(at, rule)
    return sorted(ordered, key=lambda rule: not rule.first)


def arrange(found: Sequence[Finding]) -> list[Finding]:
    """The findings of several groups: those that make the others doubtful, then TLS arms first.

    The same cause in several arms of an experiment is printed once, where it is largest.
    """
    doubtful = {rule.id for rule in rules() if rule.first}
    largest: dict[str, Finding] = {}
    for line in found:
        known = largest.get(line.id)
        if known is None or line.share.value > known.share.value:
            largest[line.id] = line
    kept = [line for line in found if largest[line.id] is line]
    return sorted(
        kept, key=lambda line: (line.id not in doubtful, line.name.endswith("/plaintext"))
    )


def note(judged: Iterable[Judged]) -> str:
    """How many rules were applied, what limited them, and what they nearly found, in sentences."""
    groups = list(judged)
    fewest = min((one.block_count for one in groups), default=0)
    kind = "interval" if fewest >= LEAST_UNITS else "interval or range"
    text = f"{len(rules())} rules were applied; each requires the whole {kind} beyond its bounds."
    if fewest < LEAST_RANGE:
        windows = f"{fewest} window{'' if fewest == 1 else 's'}"
        text += (
            f" Part of the recording has {windows} with a ledger, and a range needs "
            f"{LEAST_RANGE}: record longer to apply the rules to it"
        )
        needed_s = math.ceil(max((one.needed_ns for one in groups), default=0.0) / 1e9)
        text += f", at least {needed_s} s like this, or with --budget none." if needed_s else "."
    if untold := {title: None for one in groups for title in _untold(one)}:
        text += f" Level flow does not count what these need: {'; '.join(untold)} (--level record)."
    text += max((lacking_connections(one.metrics) for one in groups), default="")
    near = {title: None for one in groups for title in _near(one.metrics)}
    if near:
        text += f" Not certain, for the estimate is beyond the bound but not all of its {kind}: "
        text += f"{'; '.join(near)}."
        interval_s = math.ceil(max(one.interval_ns for one in groups) / 1e9)
        if fewest < LEAST_UNITS and interval_s:
            text += (
                f" A longer recording narrows the range, and has an interval from {interval_s} s "
                "like this on."
            )
    return text


def _untold(judged: Judged) -> list[str]:
    """Titles of rules that need what the level of the recording cannot count."""
    needed = ((rule, {one.metric for one in rule.when}) for rule in rules())
    return [rule.title for rule, names in needed if not names.isdisjoint(judged.uncounted)]


def _near(metrics: Metrics) -> list[str]:
    """Titles of what was nearly found, and has not yielded to what was found."""
    fired = {rule.id for rule in rules() if rule.fires(metrics)}
    return [
        rule.title
        for rule in rules()
        if rule.is_near(metrics) and fired.isdisjoint(rule.unless_found)
    ]


def lead(answer: Answer, found: Sequence[Finding]) -> Answer:
    """The answer with the first finding at its head.

    The sentence of an experiment, with its difference, precedes the finding's title and share.
    """
    if not found:
        return answer
    top = f"{found[0].sentence}."
    if "/" in found[0].name and found[0].id not in {rule.id for rule in rules() if rule.first}:
        short = f"{found[0].title[0].upper()}{found[0].title[1:]}"
        text = f"{answer.sentence} {short}: {share_text(found[0].share.value)} of the time."
        return Answer(text, answer.details)
    return Answer(top, [answer.sentence, *answer.details])


def _finding(rule: Rule, part: Group, judged: Judged) -> Finding:
    metrics = judged.metrics
    share = metrics[rule.size]
    value = share.value or 0.0
    size, scale = share, judged.served_per_operation_ns
    if rule.time:
        size, scale = metrics[rule.time], 1.0
    texts = {name: metric_text(name, metric) for name, metric in metrics.items()}
    return Finding(
        id=rule.id,
        title=rule.title,
        question=rule.question,
        name=part.name,
        label=part.label,
        sentence=rule.sentence.format_map({**texts, "share": share_text(value)}),
        operation=judged.operation,
        size=Measure(
            (size.value or 0.0) * scale,
            None if size.low is None else size.low * scale,
            None if size.high is None else size.high * scale,
            size.unit_count,
        ),
        share=Ratio(value, share.low, share.high, share.unit_count),
        evidence=[
            _evidence(name, metrics[name]) for name in rule.evidence if _is_known(metrics, name)
        ],
        advice=rule.advise(metrics),
        source=rule.source,
    )


def _is_known(metrics: Metrics, name: str) -> bool:
    return name in metrics and (metrics[name].value is not None or bool(metrics[name].text))


def _evidence(name: str, metric: Metric) -> Evidence:
    label = LABELS[name]
    exact = metric.low == metric.high
    low, high = (None, None) if exact else (metric.low, metric.high)
    return Evidence(
        name,
        label.text,
        label.unit,
        metric.value,
        low,
        high,
        metric.text,
        label.section,
        metric.unit_count,
        metric.at_least,
    )


def metric_text(name: str, metric: Metric) -> str:
    """A metric in a sentence."""
    label = LABELS[name]
    if label.unit == "text" or metric.value is None:
        return metric.text or "unknown"
    if label.unit == "ns":
        return f"{'at least ' if metric.at_least else ''}{time_text(metric.value)}"
    if label.unit == "share":
        return share_text(metric.value)
    if label.unit == "bytes":
        return bytes_text(metric.value)
    return number_text(metric.value)
