# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax whatif --no-tls`: bounds from the ledger, and refusals where they cannot be had."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.report.terminal import whatif as whatif_terminal
from tlstax.analysis.rows import ledger, tables
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats, blocks
from tlstax.analysis.whatif import no_tls, refusals
from tlstax.analysis.whatif.forecast import RECORDING
from tlstax.analysis.whatif.refusals import Whole
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, PhaseCount
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES
from tlstax.tests.unit.findings.loads import S, as_flow, dense, storm

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"


@pytest.fixture(scope="module")
def rows() -> tables.Tables:
    with CaptureReader.open(DEMO) as reader:
        return tables.load(reader)


def part(rows: tables.Tables, name: str) -> RecordingSelection:
    return RecordingSelection("demo", rows, selections.matching(rows, name)[0])


def cpu_per_operation(side: RecordingSelection, *, handshakes_only: bool = False) -> float:
    cpu = ledger.on_cpu(ledger.served(ledger.totals(side.tables.ledger, side.group.window_ids)))
    phases = HANDSHAKE_PHASES if handshakes_only else cpu
    return sum(cpu.get(phase, 0) for phase in phases) / side.group.operation_count


@pytest.mark.parametrize("name", ["connect", "point_select", "read_only"])
def test_the_plaintext_arm_lies_within_the_bounds(rows: tables.Tables, name: str) -> None:
    """The shares of the model were seen in this capture: a test of the arithmetic, not of them."""
    line = no_tls.without_tls(part(rows, f"{name}/tls")).forecasts[0]
    assert line.then is not None
    assert line.then.low_ns is not None
    assert line.then.high_ns is not None
    assert line.then.low_ns < cpu_per_operation(part(rows, f"{name}/plaintext")) < line.then.high_ns


def test_handshakes_are_the_least_that_tls_costs(rows: tables.Tables) -> None:
    side = part(rows, "connect/tls")
    made = no_tls.without_tls(side)
    line = made.forecasts[0]
    assert line.then is not None
    assert line.then.high_ns is not None
    shakes = cpu_per_operation(side, handshakes_only=True)
    assert line.now.value_ns - line.then.high_ns > 0.9 * shakes
    assert "TLS takes at least 1.3" in made.sentence
    assert not line.is_wide


def test_waits_while_disconnecting_are_no_cpu_time(rows: tables.Tables) -> None:
    """The waterfall has one step for the end of a connection, waits included."""
    side = part(rows, "connect/tls")
    expected = no_tls.without_tls(side)
    waits = [
        Ledger(window_id, rows.ledger[0].thread_id, "disconnect", "blocked_futex", 5_000_000_000)
        for window_id in side.group.window_ids
    ]
    waiting = no_tls.without_tls(part(replace(rows, ledger=[*rows.ledger, *waits]), "connect/tls"))
    now = waiting.forecasts[0].now
    assert now.value_ns == pytest.approx(cpu_per_operation(side), rel=0.02), "rounds differ"
    assert waiting.forecasts == expected.forecasts


def test_the_bounds_follow_the_handshakes(rows: tables.Tables) -> None:
    """Twice the signatures, and the cost without TLS is nearly the same."""
    side = part(rows, "connect/tls")
    longer = [
        row._replace(time_ns=2 * row.time_ns) if row.phase == "sign" else row for row in rows.ledger
    ]
    other = part(replace(rows, ledger=longer), "connect/tls")
    lines = [no_tls.without_tls(one).forecasts[0] for one in (side, other)]
    assert lines[1].now.value_ns > 1.1 * lines[0].now.value_ns
    highs = [line.then.high_ns for line in lines if line.then and line.then.high_ns]
    assert highs[1] == pytest.approx(highs[0], rel=0.05)


def test_a_plaintext_arm_is_refused(rows: tables.Tables) -> None:
    with pytest.raises(TlstaxError, match="shows no TLS"):
        no_tls.without_tls(part(rows, "connect/plaintext"))


def test_too_few_samples_of_records_are_refused_in_words(rows: tables.Tables) -> None:
    few = replace(rows, samples=rows.samples[::100])
    with pytest.raises(TlstaxError, match="do not tell encrypting from copying"):
        no_tls.without_tls(part(few, "read_only/tls"))


def test_a_level_without_records_is_refused(rows: tables.Tables) -> None:
    records = ("record_read", "record_write")
    flow = replace(rows, phase_counts=[r for r in rows.phase_counts if r.phase not in records])
    with pytest.raises(TlstaxError, match="boundaries of records"):
        no_tls.without_tls(part(flow, "read_only/tls"))


@pytest.mark.parametrize("name", ["connect", "point_select", "read_only"])
def test_level_flow_tells_it_by_the_samples_of_commands(rows: tables.Tables, name: str) -> None:
    exact = no_tls.parts_of(part(rows, f"{name}/tls"))
    side = part(as_flow(rows), f"{name}/tls")
    split = no_tls.parts_of(side)
    assert float(split.now[0]) == pytest.approx(float(exact.now[0]), rel=0.01)
    if name != "connect":  # of which records are little
        assert (1 - no_tls.SPLIT_LESS) * float(split.records[0]) < float(exact.records[0])
        assert float(exact.records[0]) < (1 + no_tls.SPLIT_MORE) * float(split.records[0])
    assert float(split.handshake[0]) == pytest.approx(float(exact.handshake[0]))
    made = no_tls.without_tls(side)
    assert no_tls.OF_SAMPLES in made.assumptions
    then = made.forecasts[0].then
    assert then is not None
    assert then.low_ns is not None
    assert then.high_ns is not None
    assert then.low_ns < cpu_per_operation(part(rows, f"{name}/plaintext")) < then.high_ns


def test_it_is_asked_for_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(DEMO), "--no-tls", "--pool", "20"]) == ExitCode.USAGE
    assert "Ask for --no-tls alone" in capsys.readouterr().err


def test_the_command_prints_bounds_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "no-tls.json"
    assert main(["whatif", str(DEMO), "--no-tls", "--json", str(out)]) == ExitCode.OK
    assert "TLS takes at least" in " ".join(capsys.readouterr().out.split())
    document = json.loads(out.read_text())
    assert document["wishes"] == ["no TLS"]
    assert document["forecasts"][0]["then"]["high_ns"] < document["forecasts"][0]["now"]["value_ns"]


def test_bounds_that_are_wide_are_measured_by_what_tls_costs(rows: tables.Tables) -> None:
    """The note was "not predicted within ±20 %" beside bounds of ±15 % of the figure."""
    screen = io.StringIO()
    made = no_tls.without_tls(part(rows, "read_only/tls"))
    assert made.forecasts[0].is_wide
    whatif_terminal.print_prediction(to_plain(made), screen)
    text = " ".join(screen.getvalue().split())
    assert "not predicted within ±20 % of what TLS costs, because what TLS costs" in text
    assert "± of TLS cost" in text
    assert "now predicted" not in text, "the middle of two bounds is no prediction"


def test_bursts_are_refused() -> None:
    """All handshakes in two of thirty blocks: the middle block has none, nor have its bounds."""
    sources = ErrorSources({RECORDING: blocks(30)})

    def judge(shake_ns: Floats) -> None:
        now_ns = shake_ns + 100_000.0
        shakes, now = (
            sources.rows_of(RECORDING, np.append([values.mean()], values))
            for values in (shake_ns, now_ns)
        )
        whole = Whole(float(shake_ns.mean()), float(now_ns.mean()))
        refusals.refuse_bursts("cannot tell", whole, now, shakes, sources)

    judge(np.linspace(50_000.0, 60_000.0, 30))
    burst = np.zeros(30)
    burst[3:5] = 1_000_000.0
    with pytest.raises(TlstaxError, match="TLS comes in bursts"):
        judge(burst)


@pytest.mark.parametrize(("count", "is_told"), [(1, False), (3, False), (4, True)])
def test_too_few_windows_say_nothing(count: int, is_told: bool) -> None:
    """One dense window of a budget was a range, and "at least" of it a claim."""
    rows = storm("budget")
    kept = {window.window_id for window in dense(rows)[:count]}
    rows.windows = [w for w in rows.windows if w.window_id in kept or w.level == "connection"]
    rows.ledger = [row for row in rows.ledger if row.window_id in kept]
    ids = {window.window_id for window in rows.windows}
    rows.handshakes = [row for row in rows.handshakes if row.window_id in ids]
    rows.phase_counts = [row for row in rows.phase_counts if row.window_id in ids]
    rows.phase_counts += [PhaseCount(number, "record_write", 5) for number in kept]
    assert sum(w.end_ns - w.start_ns for w in rows.windows) > 10 * S
    text = " ".join(explain.explain(rows).answer.details)
    why = f"too few windows: the recording has {count}, and a prediction needs 4"
    assert (f"What it would cost without TLS is not told: {why}" in text) == (not is_told)
    assert ("Without TLS, a connection would cost" in text) == is_told
