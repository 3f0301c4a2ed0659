# SPDX-License-Identifier: GPL-2.0-only
"""Scores of findings over cases whose causes are known: precision, recall, and what was confused.

Each finding of each case is judged, not the first alone. A finding is true if the case was made for
it or if its load has that cause, too (`also`); both are written down before the case is recorded.
Every control counts, also one of which something is true: only what is not true of it is false.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

JUDGES = (
    "analysis/findings", "analysis/classify", "analysis/statistics", "analysis/rows",
    "collectors/capture",
)  # fmt: skip
"""Folders with the rules, their metrics, and what these are made of."""
CASES = ("tests/truth/causes",)
"""The folder that says what is injected, and what is true of it."""
PRECISION, RECALL, FIRED = 0.98, 0.90, 0.01
"""Least share of true findings and of named causes; most of the controls with a false finding."""


@dataclass(frozen=True)
class Scored:
    """What was found in one case, and what is true of it."""

    name: str
    """CASE:PARAMETER, or a control's name."""
    expected: tuple[str, ...]
    """Findings of which one must be there, and lead; none: a load in which nothing must lead."""
    also: tuple[str, ...]
    """Further findings that are true of the load."""
    found: tuple[str, ...]
    """Ids of findings, the first one first."""
    is_control: bool = False
    """A healthy load: nothing was injected into it."""
    every: bool = False
    """All of `expected` must be there, and one of them lead."""

    @property
    def cause(self) -> str:
        """The case without its parameter."""
        return self.name.partition(":")[0]

    @property
    def wrong(self) -> tuple[str, ...]:
        """Findings that are not true of the load."""
        return tuple(one for one in self.found if one not in {*self.expected, *self.also})

    @property
    def is_named(self) -> bool:
        """Whether the cause is among the findings, or all causes of a case that must have all."""
        named = {*self.found} & {*self.expected}
        return named == {*self.expected} if self.every else bool(named)

    @property
    def is_right(self) -> bool:
        """Whether the cause leads; of a load without one, whether nothing false was found."""
        return self.is_named and self.found[0] in self.expected if self.expected else not self.wrong


@dataclass(frozen=True)
class LeftOut:
    """A case without a recording: it is in no score, and named beside them."""

    name: str
    is_control: bool
    why: str
    """One of the sentences below."""


FAILED = "could not be recorded"
UNKEPT = "not among the recordings that were kept"
UNPRICED = "with probes that no budget is kept for"


@dataclass(frozen=True)
class Share:
    """A count of a count; there is no share of nothing."""

    hits: int
    count: int

    def __str__(self) -> str:
        return f"{self.hits}/{self.count} ({self.hits / self.count:.0%})" if self.count else "none"


def precision(scored: Iterable[Scored]) -> Share:
    """True findings of all findings."""
    cases = list(scored)
    count = sum(len(one.found) for one in cases)
    return Share(count - sum(len(one.wrong) for one in cases), count)


def recall(scored: Iterable[Scored]) -> Share:
    """Cases whose cause is among the findings, of those that have one."""
    cases = [one for one in scored if one.expected]
    return Share(sum(one.is_named for one in cases), len(cases))


def leading(scored: Iterable[Scored]) -> Share:
    """Cases whose cause is the first finding, of those that have one."""
    cases = [one for one in scored if one.expected]
    return Share(sum(one.is_right for one in cases), len(cases))


def healthy(scored: Iterable[Scored]) -> Share:
    """Controls with a finding that is not true of them, of all controls."""
    controls = [one for one in scored if one.is_control]
    return Share(sum(bool(one.wrong) for one in controls), len(controls))


def below_wanted(scored: Sequence[Scored]) -> list[str]:
    """What is worse than it has to be, in sentences."""
    found = [
        (precision(scored), PRECISION, "findings are true"),
        (recall(scored), RECALL, "causes are named"),
    ]
    sentences = [
        f"{share} of all {what}, and {least:.0%} must be"
        for share, least, what in found
        if share.hits < least * share.count
    ]
    fired = healthy(scored)
    if fired.hits > FIRED * fired.count:
        sentences.append(f"{fired} of healthy loads have a false finding, and {FIRED:.0%} may")
    return sentences


def frozen(root: Path) -> str:
    """Digests of what findings depend on, and of the cases: a table is of those that have them."""
    return f"rules {_digest(root, JUDGES)}, cases {_digest(root, CASES)}"


def _digest(root: Path, folders: Iterable[str]) -> str:
    made = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".lua", ".c"):
                made.update(path.relative_to(root).as_posix().encode() + b"\0")
                made.update(path.read_bytes() + b"\0")
    return made.hexdigest()[:12]


def left_out_text(left_out: Sequence[LeftOut], why: str) -> str:
    """How many were left out for a reason, and which; "" if none was."""
    parts = []
    for is_control, kind in ((False, "case"), (True, "control")):
        names = [one.name for one in left_out if one.why == why and one.is_control == is_control]
        if names:
            count = f"{len(names)} {kind}{'s' * (len(names) > 1)}"
            parts.append(f"{count} ({', '.join(names)})")
    return f"{' and '.join(parts)} {why}" if parts else ""


def page(scored: Sequence[Scored], left_out: Sequence[LeftOut] = ()) -> str:
    """All of it as Markdown: a line per cause with what was found, totals, what has no score."""
    causes = list(dict.fromkeys(one.cause for one in scored))
    lines = [
        "| case | named | leads | true findings | found (times), false in bold |",
        "|---|---|---|---|---|",
    ]
    for cause in causes:
        mine = [one for one in scored if one.cause == cause]
        wrong = Counter(name for one in mine for name in one.wrong)
        found = Counter(name for one in mine for name in one.found)
        texts = [
            f"**{name}** ({count})" if name in wrong else f"{name} ({count})"
            for name, count in found.most_common()
        ]
        lines.append(
            f"| {cause} | {recall(mine)} | {leading(mine)} | {precision(mine)} |"
            f" {', '.join(texts) or 'nothing'} |"
        )
    totals = (
        f"Precision {precision(scored)} of all findings; recall {recall(scored)}; the cause leads"
        f" in {leading(scored)}; healthy loads with a false finding {healthy(scored)}."
    )
    missing = [text for why in (FAILED, UNKEPT, UNPRICED) if (text := left_out_text(left_out, why))]
    if missing:
        totals += f" In none of these numbers: {'; '.join(missing)}."
    return "\n".join([*lines, "", totals])
