# SPDX-License-Identifier: GPL-2.0-only
"""What every question needs: the span of time, the tier, an open engine, links to reports."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns, location
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, TIERS, Row
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.engines.retrying import RetryingEngine, open_retrying
from tlstax.analysis.fleet.figures import hosts_text
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.location import Location
from tlstax.analysis.fleet.metrics import Metric
from tlstax.analysis.model.fleet import FleetScope, MetricFacts

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")
_LATEST_S: Final = 4_102_444_800
"""2100: nothing was recorded later."""
_SAFE: Final = re.compile(r"[\w.:-]{1,200}")
"""Names of hosts that can be the name of a file."""


@dataclass(frozen=True)
class Question:
    """Where and how to look."""

    data: Location
    engine: str = "duckdb"
    tier: str = ""
    start_wall_ns: int | None = None
    end_wall_ns: int | None = None
    hosts: tuple[str, ...] = ()
    """Conditions, see host_sums.chosen."""
    reports: str = ""
    """Folder, or address, of the hosts' own reports."""

    def span(self) -> Span:
        """The span asked for, else all that the data set has. Raises TlstaxError (USAGE)."""
        hours = location.hours_of(self.data)
        first = min(hours, default=0) if self.start_wall_ns is None else self.start_wall_ns
        last = max(hours, default=0) + HOUR_NS if self.end_wall_ns is None else self.end_wall_ns
        if last <= first:
            raise TlstaxError(
                "the span of time is empty",
                f"it goes from {moment(first)} to {moment(last)}",
                "Give an end that is later than the start",
                ExitCode.USAGE,
            )
        return Span(first, last)

    def tier_for(self, span: Span) -> str:
        """The tier asked for; else whole hours, where the span has them at both ends."""
        whole = span.start_wall_ns % HOUR_NS == 0 and span.end_wall_ns % HOUR_NS == 0
        if self.tier:
            return self.tier
        return "1h" if whole else "1m" if not _seconds_in(span) else "10s"

    @contextmanager
    def ask(
        self, span: Span, tier: str, tables: Sequence[type[Row]]
    ) -> Iterator[tuple[Engine, list[str]]]:
        """An engine with views of these tables, and which files were left out.

        Raises TlstaxError (USAGE) where only other tiers have intervals in the span.
        """
        if columns.Interval in tables:
            self._require_intervals(span, tier)
        with self._open(self.engine, span, tier, tables) as engine:
            yield engine, engine.left_out

    def _open(
        self, name: str, span: Span, tier: str, tables: Sequence[type[Row]]
    ) -> AbstractContextManager[RetryingEngine]:
        return open_retrying(name, lambda: location.select(self.data, tier, tables, span))

    def _require_intervals(self, span: Span, wanted: str) -> None:
        """Raise TlstaxError (USAGE) where the answer would be of no host, only for its tier."""
        known = location.tiers_with(self.data, (span.start_wall_ns, span.end_wall_ns))
        if wanted in known or not known:
            return
        raise TlstaxError(
            f"the data set has no intervals of {wanted} in this time",
            f"from {moment(span.start_wall_ns)} to {moment(span.end_wall_ns)} it has those of "
            f"{' and '.join(known)} only",
            f"Give --tier {known[-1]}{' and times at whole hours' if known[-1] == '1h' else ''}",
            ExitCode.USAGE,
        )

    def lacking(
        self, span: Span, tier: str, known: Collection[str], seen: Collection[str]
    ) -> list[str]:
        """How many of the known hosts the answer lacks since only longer intervals have them.

        As a text; none where `seen` are all of them, or the tier was asked for. Shorter intervals
        are not looked for: reading them may take longer than the question. Raises TlstaxError.
        """
        missing = set(known) - set(seen)
        others = [one for one, seconds in TIERS.items() if seconds > TIERS[tier]]
        if self.tier or not missing or not others:
            return []
        missing -= self._with_intervals(span, tier)
        found = {one: missing & self._with_intervals(span, one) for one in others}
        other = max(others, key=lambda one: len(found[one]))
        if not (count := len(found[other])):
            return []
        whole = " and times at whole hours" if other == "1h" else ""
        text = (
            f"{hosts_text(count)} {'have' if count != 1 else 'has'} no intervals of {tier} from "
            f"{moment(span.start_wall_ns)} to {moment(span.end_wall_ns)}, and no part in this "
            f"answer: give --tier {other}{whole}"
        )
        return [text]

    def _with_intervals(self, span: Span, tier: str) -> set[str]:
        """The hosts that have intervals of a tier in a span, one that began before it, too."""
        step_ns = TIERS[tier] * SECOND_NS
        span = Span(span.start_wall_ns - span.start_wall_ns % step_ns, span.end_wall_ns)
        with self._open("duckdb", span, tier, (columns.Interval,)) as engine:
            found = engine.query(f"SELECT DISTINCT host FROM interval WHERE {span.condition}")
        return set(found["host"].to_pylist())

    def scope(self, span: Span, tier: str, host_count: int, left_out: list[str]) -> FleetScope:
        """What was asked, for the answer."""
        return FleetScope(
            str(self.data),
            tier,
            self.engine,
            moment(span.start_wall_ns),
            moment(span.end_wall_ns),
            host_count,
            left_out,
        )

    def report(self, host: str) -> str:
        """The link to a host's report: REPORTS/HOST.html, where that file exists."""
        if not self.reports or not _SAFE.fullmatch(host) or host.startswith("."):
            return ""
        if re.match(r"https?://", self.reports):
            return f"{self.reports.rstrip('/')}/{quote(host)}.html"
        page = Path(self.reports) / f"{host}.html"
        return page.resolve().as_uri() if page.is_file() else ""


def _seconds_in(span: Span) -> bool:
    minute = 60 * SECOND_NS
    return span.start_wall_ns % minute != 0 or span.end_wall_ns % minute != 0


def facts_of(metric: Metric) -> MetricFacts:
    """A metric in an answer."""
    return MetricFacts(metric.name, metric.label, metric.unit)


def moment(wall_ns: int) -> str:
    """A time as ISO 8601, UTC."""
    return datetime.fromtimestamp(wall_ns // SECOND_NS, UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """A time given by the user, ISO 8601; UTC if it names no zone.

    Raises TlstaxError (USAGE).
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        seconds = at.timestamp()
    except (ValueError, OverflowError) as error:
        raise TlstaxError(
            f"cannot read the time {text!r}",
            "it is not of the form 2026-11-22T12:00",
            "Give date and time, in UTC or with a zone such as +01:00",
            ExitCode.USAGE,
        ) from error
    if not 0 <= seconds < _LATEST_S:
        raise TlstaxError(
            f"cannot use the time {text!r}",
            "it lies before 1970 or after 2099",
            "Give the time of a recording",
            ExitCode.USAGE,
        )
    return round(seconds) * SECOND_NS


def parse_duration(text: str) -> int:
    """A duration such as 12h in ns. Raises TlstaxError (USAGE)."""
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise TlstaxError(
            f"cannot read the duration {text!r}",
            "it is not a number with a unit",
            "Give for example 90m, 12h or 7d",
            ExitCode.USAGE,
        )
    return int(found[1]) * _UNITS[found[2]] * SECOND_NS


def parse_span(text: str) -> Span:
    """FROM..TO. Raises TlstaxError (USAGE)."""
    first, dots, last = text.partition("..")
    if not dots:
        raise TlstaxError(
            f"cannot read the span {text!r}",
            "it has no '..' between two times",
            "Give for example 2026-11-22T00:00..2026-11-22T12:00",
            ExitCode.USAGE,
        )
    return Span(parse_time(first), parse_time(last))


def require_sides(before: Span, after: Span) -> None:
    """Raise TlstaxError (USAGE) for two spans of time that cannot be compared."""
    for side in (before, after):
        if side.end_wall_ns <= side.start_wall_ns:
            raise TlstaxError(
                "a side is empty",
                "its end is not later than its start",
                "Give FROM..TO with a later TO",
                ExitCode.USAGE,
            )
        if side.start_wall_ns < 0 or side.end_wall_ns > _LATEST_S * SECOND_NS:
            raise TlstaxError(
                "a side is too long",
                "it begins before 1970 or ends after 2099",
                "Give a shorter --span",
                ExitCode.USAGE,
            )
    if before.start_wall_ns < after.end_wall_ns and after.start_wall_ns < before.end_wall_ns:
        raise TlstaxError(
            "the two sides overlap",
            f"both have the time from {moment(max(before.start_wall_ns, after.start_wall_ns))} to "
            f"{moment(min(before.end_wall_ns, after.end_wall_ns))}, which would be compared with "
            "itself",
            "Give two spans of time that do not",
            ExitCode.USAGE,
        )
