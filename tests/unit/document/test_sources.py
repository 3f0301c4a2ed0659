# SPDX-License-Identifier: GPL-2.0-only
"""Readings of the sources become rates on the recording's axis; resets and gaps are no growth."""

from pathlib import Path

import pytest

from tlstax.analysis.document import sources
from tlstax.analysis.model.sources import SeriesLine, SeriesPanel, Sources
from tlstax.analysis.report.terminal.sources import sparkline
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture import known_sources, series
from tlstax.collectors.capture.schema import Collector, Metric, Row, Series, Status, Window
from tlstax.collectors.capture.vocabulary import SERIES_LINES_MAX
from tlstax.tests.golden.capture import sources as golden

ROOT = Path(__file__).resolve().parents[3]
START = 7_000_000_000
SECOND = 1_000_000_000


def tabulate(rows: list[Row], seconds: int = 12) -> Sources:
    made = sources.tabulate(
        Tables(
            windows=[Window(1, None, START, START + seconds * SECOND)],
            metrics=[row for row in rows if isinstance(row, Metric)],
            status=[row for row in rows if isinstance(row, Status)],
            collectors=[row for row in rows if isinstance(row, Collector)],
            series=[row for row in rows if isinstance(row, Series)],
        )
    )
    assert made is not None
    return made


@pytest.fixture(scope="module")
def made() -> Sources:
    return tabulate(golden.rows(START))


def panel(made: Sources, name: str) -> SeriesPanel:
    return next(one for one in made.panels if one.name == name)


def line(made: Sources, name: str, label: str) -> SeriesLine:
    return next(one for one in panel(made, name).lines if one.label == label)


def test_nothing_recorded_is_no_section() -> None:
    assert sources.tabulate(Tables()) is None
    of_runs = [Status(5, 1, "Ssl_accepts", "3")]  # what an experiment proves its arms with
    assert sources.tabulate(Tables(status=of_runs)) is None


def test_rates_shares_and_means_of_the_host(made: Sources) -> None:
    assert line(made, "procfs/cpu", "user").mean == 1.5
    softirq = line(made, "procfs/cpu", "interrupts")
    assert softirq.mean == pytest.approx(0.1)
    assert (softirq.lowest, softirq.highest) == (0.0, 0.2)  # what is not said did not move
    assert line(made, "procfs/pressure", "cpu").mean == 0.25
    assert line(made, "procfs/vda/bytes", "read").mean == 200 * 4096
    assert line(made, "procfs/vda/wait", "read").mean == 80_000
    assert panel(made, "procfs/cpu").start_ns[:2] == [0, SECOND]
    assert panel(made, "procfs/vda/operations").title == "operations: vda"


def test_a_mean_of_nothing_is_not_known(made: Sources) -> None:
    write = line(made, "iostat/vda/wait", "write")
    assert write.mean == 2.5e6
    assert write.values[:3] == [2.5e6, None, 2.5e6]


def test_a_counter_that_fell_has_no_rate_there(made: Sources) -> None:
    questions = line(made, "status/statements", "all")
    assert questions.mean == golden.QUESTIONS_PER_S
    assert questions.lowest == questions.highest == golden.QUESTIONS_PER_S
    assert [at for at, value in enumerate(questions.values) if value is None] == [3]
    assert any("were reset before 4.00" in note.replace("\u00a0", " ") for note in made.notes)


def test_a_long_interval_is_a_mean_and_said_to_be(made: Sources) -> None:
    shown = panel(made, "status/statements")
    long = [end - start for start, end in zip(shown.start_ns, shown.end_ns, strict=True)]
    assert max(long) == 3 * SECOND
    assert line(made, "status/statements", "all").values[long.index(max(long))] == 5000
    late = tabulate([row for row in golden.rows(START) if not _is_between(row, 6, 11)])
    assert any("status was read only once in the 5" in note for note in late.notes)


def _is_between(row: Row, low: int, high: int) -> bool:
    return isinstance(row, Status) and START + low * SECOND < row.time_ns < START + high * SECOND


def test_hits_levels_and_waits_of_the_server(made: Sources) -> None:
    hits = line(made, "status/buffer_pool_hits", "page requests that it served")
    assert hits.mean == pytest.approx(1 - golden.SHARE_MISSED)
    running = line(made, "status/threads", "running")
    assert (running.lowest, running.highest) == (1.0, 2.0)
    wait = line(made, "status/waits", "wait/synch/mutex/sql/LOCK")
    # Not listed before its first occurrence, which is growth from 0.
    assert wait.values[:3] == [0.0, 0.5, 0.5]


def test_what_stayed_at_zero_is_named_and_what_is_absent_is_not(made: Sources) -> None:
    assert panel(made, "status/tls_handshakes").still == ["begun"]
    assert panel(made, "status/row_locks").still == ["begun"]
    names = {one.name for one in made.panels}
    assert "status/binlog" not in names
    assert len(names) == len(made.panels)


def test_a_long_recording_is_put_together_and_keeps_its_mean() -> None:
    short, long = tabulate(golden.rows(START)), tabulate(golden.rows(START, 1000), 1000)
    shown = panel(long, "procfs/cpu")
    assert len(shown.start_ns) <= sources.MOST_INTERVALS
    assert shown.readings_per_interval == 4
    for name, label in (("procfs/cpu", "user"), ("status/statements", "all")):
        assert line(long, name, label).mean == line(short, name, label).mean


def test_only_the_busiest_devices_have_series() -> None:
    rows: list[Row] = [
        Metric(START + SECOND, SECOND, "procfs", f"sd{n}", "read_bytes", 100.0 * n)
        for n in range(1, 10)
    ]
    made = tabulate(rows)
    named = {one.name.split("/")[1] for one in made.panels}
    assert named == {f"sd{n}" for n in range(4, 10)}
    assert any(note.startswith("3 of 9 objects that procfs read") for note in made.notes)


def test_numbers_without_a_course_are_listed(made: Sources) -> None:
    assert [(one.name, one.value) for one in made.readings] == [
        ("waited_ns count", 41.0),
        ("waited_ns total", 3.25e6),
    ]


def test_hardware_counters_by_phase(made: Sources) -> None:
    handshake, write = made.counters
    assert (handshake.phase, handshake.instructions_per_cycle) == ("handshake", 2.5)
    assert handshake.cycles_per_byte is None
    assert write.size_source == "the server's Bytes_sent"
    assert write.cycles_per_byte == pytest.approx(2e9 / (8 * 3 * 2**20))


def test_every_panel_has_an_id_of_its_own_and_few_enough_lines() -> None:
    for panels in known_sources.PANELS.values():
        assert len({one.name for one in panels}) == len(panels)
        assert max(len(one.lines) for one in panels) <= SERIES_LINES_MAX


def test_panels_of_the_capture_are_those_of_captures_without_them(made: Sources) -> None:
    declared = [
        row for name, panels in known_sources.PANELS.items() for row in series.to_rows(name, panels)
    ]
    assert tabulate([*golden.rows(START), *declared]) == made


def test_what_a_capture_says_of_its_panels_counts() -> None:
    panel = series.Panel("run", "Läufe: *", "number", series.levels(mean_of="load"), "cpu *")
    each = panel._replace(name="*/run")
    rows: list[Row] = [
        Metric(START + at * SECOND, SECOND, "loadavg", thing, "load", float(at))
        for at in (1, 2, 3)
        for thing in ("cpu 0", "cpu 1", "else")
    ]
    one, two = (
        tabulate([*rows, *series.to_rows("loadavg", [shape])]).panels for shape in (panel, each)
    )
    assert [(shown.name, [line.mean for line in shown.lines]) for shown in one] == [
        ("loadavg/run", [2.0, 2.0])
    ]
    assert [(shown.name, shown.title) for shown in two] == [
        ("loadavg/0/run", "Läufe: 0"),
        ("loadavg/1/run", "Läufe: 1"),
    ]


def test_the_course_of_a_series() -> None:
    assert sparkline([0.0, None, 4.0, 8.0], 8.0) == "▁ ▅█"
    assert len(sparkline([1.0] * 300, 1.0)) == 16
