# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report: findings, each a cause with its size, its evidence and what helps."""

from dataclasses import dataclass
from typing import Annotated

from tlstax.analysis.model.tables import Interval, Measure, Ratio


@dataclass(frozen=True)
class Evidence:
    """A number, or a name, on which a finding rests."""

    name: Annotated[str, "stable id of the fact, for example sign_ns"]
    label: Annotated[str, "what it is, for people"]
    unit: Annotated[str, "ns, share, count, bytes or text"]
    value: Annotated[float | None, "estimate; null for a text"]
    low: Interval
    high: Interval
    text: Annotated[str, "the value of a text; else ''"]
    section: Annotated[str, "section of the report in which the number is broken down"]


@dataclass(frozen=True)
class Finding:
    """A cause that the capture shows beyond doubt."""

    id: Annotated[str, "stable id of the rule, see analysis/findings"]
    title: Annotated[str, "the cause in a few words"]
    question: Annotated[str, "the question that the rule asks"]
    name: Annotated[str, "ledger bar that it is about"]
    label: Annotated[str, "the same for people"]
    sentence: Annotated[str, "the cause with its size, in one sentence"]
    operation: Annotated[str, "what one operation is"]
    size: Annotated[Measure, "time of it per operation"]
    share: Annotated[Ratio, "of the time that the server spent on connections"]
    evidence: Annotated[list[Evidence], "the numbers that it rests on"]
    advice: Annotated[str, "what helps"]
    source: Annotated[str, "where that is written"]
