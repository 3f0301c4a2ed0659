# SPDX-License-Identifier: GPL-2.0-only
"""Counts, times and units of a comparison are of the same windows, whatever recorded them."""

from collections.abc import Iterable

import pytest

from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.compare import difference, replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.model.difference import PairDifference
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.whatif import forecast
from tlstax.collectors.capture.schema import Ledger, PhaseCount, Run, Target, Window
from tlstax.tests.unit.findings.loads import storm

MS = 1_000_000
SECOND_MS = 1000


def side_of(rows: Tables, name: str = "one") -> RecordingSelection:
    return RecordingSelection(name, rows, tables.groups(rows)[0])


def compare(before: Tables, after: Tables, per: str | None) -> PairDifference:
    pair = side_of(before, "old"), side_of(after, "new")
    (line,) = difference.compare_recordings([pair], per).pairs
    return line


@pytest.mark.parametrize("queries", [1, 20])
def test_a_handshake_costs_the_same_when_the_ledger_is_kept_for_a_tenth_of_the_time(
    queries: int,
) -> None:
    """Light time counts handshakes, too, but none of the time that they take."""
    always, budget = (storm(mode, queries=queries) for mode in ("always", "budget"))
    line = compare(always, budget, "handshake")
    assert line.refusals == []
    assert line.ratio is not None
    assert line.ratio.value == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("mode", ["always", "budget"])
def test_a_connection_has_one_handshake(mode: str) -> None:
    base = replicates.of_side(side_of(storm(mode)), "connection", builtin(), by_driver=False)
    state = forecast.present(base, ErrorSources({forecast.RECORDING: base.units}))
    assert state.handshakes == pytest.approx(1.0)


def made(spans_ms: Iterable[int], rounds_count: int = 0) -> Tables:
    """A query a ms, for 0.1 ms of CPU time each; the windows are dealt to rounds, if any."""
    rows = Tables(targets=[Target(1, 1, "/mariadbd", "", "mariadb", "1", "OpenSSL", "3", "shared")])
    spans = list(spans_ms)
    at_ns = 0
    for number, span_ms in enumerate(spans, 1):
        run = 1 + (number - 1) * rounds_count // len(spans) if rounds_count else None
        end_ns = at_ns + span_ms * MS
        rows.windows.append(Window(number, run, at_ns, end_ns))
        rows.phase_counts.append(PhaseCount(number, "command", span_ms))
        rows.ledger.append(Ledger(number, 1, "command", "on_cpu", span_ms * MS // 10 + number))
        at_ns = end_ns + SECOND_MS * MS
    for run in range(1, rounds_count + 1):
        mine = [window for window in rows.windows if window.run_id == run]
        rows.runs.append(
            Run(
                run, "pooled", "point_select", "plaintext", run, mine[0].start_ns, mine[-1].end_ns,
                1, 1000, 1, MS, 0, 0, 0, "{}",
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize(("rounds_count", "units_count"), [(2, 7), (8, 8)])
def test_rounds_stay_the_units_when_the_server_counts(rounds_count: int, units_count: int) -> None:
    """The windows of two rounds are no thirty samples of what servers do."""
    side = side_of(made([SECOND_MS] * 120, rounds_count))
    found = replicates.of_side(side, "query", builtin(), by_driver=False)
    assert found.units.count == units_count
    assert found.units.have_interval == (rounds_count == units_count)
    assert "No driver" not in " ".join(
        compare(side.tables, made([SECOND_MS] * 120, 8), "query").cautions
    )


def test_fragments_are_no_units() -> None:
    """Three windows and two that the budget cut after 20 ms are three."""
    few, enough = made([1000, 20, 1000, 20, 1000]), made([1000] * 5)
    line = compare(few, enough, "query")
    assert ["too few windows" in one for one in line.refusals] == [True]
    assert "old has 3" in line.refusals[0]
    assert compare(enough, made([1000, 20, 1000, 1000, 20, 1000]), "query").refusals == []
