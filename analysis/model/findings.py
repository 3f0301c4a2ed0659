# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report: findings, each a cause with its size, its evidence and advice."""

from dataclasses import dataclass
from typing import Annotated

from tlstax.analysis.model.tables import Interval, Measure, Ratio, UnitCount


@dataclass(frozen=True)
class Evidence:
    """A number or a name that supports a finding."""

    name: Annotated[str, "stable id of the metric, for example sign_ns"]
    label: Annotated[str, "what it is, for people"]
    unit: Annotated[str, "ns, share, count, bytes or text"]
    value: Annotated[float | None, "estimate; null for a text"]
    low: Interval
    high: Interval
    text: Annotated[str, "the value of a text; else ''"]
    section: Annotated[str, "section of the report in which the number is broken down"]
    unit_count: UnitCount = None
    at_least: Annotated[bool, "a lower bound: it contains what was not over"] = False


@dataclass(frozen=True)
class Finding:
    """A cause whose metrics exceed their bounds with their whole intervals or ranges."""

    id: Annotated[str, "stable id of the rule, see analysis/findings"]
    title: Annotated[str, "the cause in a few words"]
    question: Annotated[str, "the question that the rule asks"]
    name: Annotated[str, "name of the ledger bar that it refers to"]
    label: Annotated[str, "the ledger bar, for people"]
    sentence: Annotated[str, "the cause with its size, in one sentence"]
    operation: Annotated[str, "what one operation is"]
    size: Annotated[Measure, "time of it per operation"]
    share: Annotated[Ratio, "share of the time that the server spent on connections"]
    evidence: Annotated[list[Evidence], "the numbers that support it"]
    advice: Annotated[str, "what to do"]
    source: Annotated[str, "reference for the advice"]
