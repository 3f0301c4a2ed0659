# SPDX-License-Identifier: GPL-2.0-only
"""The whole report: the model of a synthetic capture is found again, and nothing breaks it."""

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlstax.analysis.classify import profiles
from tlstax.analysis.document import explain
from tlstax.analysis.document.field_reference import report_markdown
from tlstax.analysis.model.report import Document, to_json
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import TABLES, Run, columns
from tlstax.collectors.capture.vocabulary import CATEGORIES, PHASES, STATES
from tlstax.tests.golden.capture import synthetic
from tlstax.tests.golden.capture.workload import ARMS

ROOT = Path(__file__).resolve().parents[3]


def rows_of(path: Path) -> tables.Tables:
    with CaptureReader.open(path) as reader:
        return tables.load(reader)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> tables.Tables:
    path = tmp_path_factory.mktemp("capture") / "a"
    synthetic.build(str(path))
    return rows_of(path)


@pytest.fixture(scope="module")
def document(experiment: tables.Tables) -> Document:
    return explain.explain(experiment)


def as_json(made: Document) -> dict[str, Any]:
    """The document through JSON: no NaN, nothing but JSON in it."""
    text = json.dumps(to_json(made), allow_nan=False)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_the_cells_are_those_of_the_model(document: Document) -> None:
    for comparison, pair in zip(document.comparisons, (ARMS[:2], ARMS[2:]), strict=True):
        plaintext, tls = pair
        found = {cell.name: cell for cell in comparison.cells}
        for phase in ("sign", "keygen", "derive"):
            truth = tls.costs.get((phase, "on_cpu"), 0)
            assert found[f"handshake_{phase}"].difference.value_ns == pytest.approx(truth, rel=0.03)
        waits = sum(ns for (_, state), ns in tls.costs.items() if state == "runnable")
        waits -= sum(ns for (_, state), ns in plaintext.costs.items() if state == "runnable")
        assert found["scheduling"].difference.value_ns == pytest.approx(waits, rel=0.03)
        assert comparison.difference is not None
        truth = tls.latency_ns - plaintext.latency_ns
        assert comparison.difference.value_ns == pytest.approx(truth, rel=0.1)
        assert comparison.verdict == "more"
        total = sum(cell.difference.value_ns for cell in comparison.cells)
        assert total == pytest.approx(comparison.difference.value_ns)


def test_the_ledger_bars_are_those_of_the_model(document: Document) -> None:
    for bar, arm in zip(document.ledgers, ARMS, strict=True):
        assert bar.name == f"{arm.driver}/{arm.scenario}/{arm.arm}"
        assert sum(part.time_ns for part in bar.segments) == bar.total_ns
        for part in bar.segments:
            assert part.per_operation_ns == pytest.approx(
                arm.costs[part.phase, part.state], rel=0.03
            )


def test_the_composition_is_that_of_the_model(document: Document) -> None:
    by_phase = {part.phase: part for part in document.compositions[3].phases}
    shares = {share.category: share for share in by_phase["handshake"].shares}
    for category, truth in {"provider_fetch": 0.25, "digest": 0.18, "unknown": 0.02}.items():
        assert shares[category].low is not None
        assert shares[category].share == pytest.approx(truth, abs=0.03)
    assert by_phase["handshake"].enough


def test_closure_losses_and_observer_effect_are_told(document: Document) -> None:
    assert document.health.closure.ok
    assert document.health.closure.worst == "samples"
    assert "8 figures hold" in document.health.closure.summary
    assert [line.kind for line in document.health.losses] == ["healed"]
    assert document.health.observer.uncosted_hits_count == 9000
    assert document.health.observer.probe_ns == 2 * 900_000 * 690
    assert document.health.warnings == []


def test_the_answer_leads_with_the_connection(document: Document) -> None:
    assert document.answer.sentence.startswith("With TLS, a new connection takes")
    assert "unexplained" in document.answer.details[0]


def test_names_are_unique_and_from_the_vocabulary(document: Document) -> None:
    for parts in (document.ledgers, document.compositions, document.flames, document.latencies):
        names = [part.name for part in parts]
        assert len(set(names)) == len(names) > 0
    for bar in document.ledgers:
        assert {part.phase for part in bar.segments} <= set(PHASES)
        assert {part.state for part in bar.segments} <= set(STATES)
    for made in document.compositions:
        assert {share.category for share in made.total} <= set(CATEGORIES)


def test_the_document_is_json(document: Document) -> None:
    made = as_json(document)
    assert set(made) == {field.name for field in dataclasses.fields(Document)}
    assert len(json.dumps(made)) < 1_000_000


def test_the_same_rows_give_the_same_document(
    experiment: tables.Tables, document: Document
) -> None:
    assert as_json(explain.explain(experiment)) == as_json(document)


def test_folded_stacks_of_a_group_sum_to_its_flame_graph(
    experiment: tables.Tables, document: Document
) -> None:
    for part in tables.groups(experiment):
        for kind in ("on_cpu", "off_cpu"):
            graph = next(g for g in document.flames if g.name == f"{part.name}/{kind}")
            made = profiles.fold(part, kind, experiment)
            assert made.count == graph.sample_count
            assert sum(made.folded.values()) == pytest.approx(graph.total_ns)


def test_a_capture_without_runs_has_no_waterfall(tmp_path: Path) -> None:
    synthetic.build(str(tmp_path / "a"), attach=True)
    made = explain.explain(rows_of(tmp_path / "a"))
    as_json(made)
    assert made.comparisons == []
    assert [bar.name for bar in made.ledgers] == ["all"]
    assert made.handshakes[0].count > 1000
    assert any("Without a plaintext arm" in text for text in made.answer.details)
    assert {graph.kind for graph in made.flames} == {"on_cpu", "off_cpu"}


def test_an_empty_capture_says_so() -> None:
    made = explain.explain(tables.Tables())
    as_json(made)
    assert "nothing to explain" in made.answer.sentence
    assert any("no complete window" in text for text in made.health.warnings)


def test_one_arm_alone_is_not_compared(experiment: tables.Tables) -> None:
    alone = dataclasses.replace(experiment, runs=[r for r in experiment.runs if r.arm == "tls"])
    made = explain.explain(alone)
    as_json(made)
    assert {line.refusal for line in made.comparisons} == {"there is no plaintext run"}
    assert len(made.ledgers) == 2
    assert "not compared" in made.answer.sentence


def test_an_older_capture_says_that_closure_was_not_checked(experiment: tables.Tables) -> None:
    older = dataclasses.replace(experiment, process_clocks=[], cpu_clocks=[])
    closure = explain.explain(older).health.closure
    assert closure.ok is None
    assert "not checked in this capture" in closure.summary
    assert {figure.verdict for figure in closure.figures} == {"not checked"}


def test_a_figure_beyond_its_bound_says_what_the_report_is_not_for(
    experiment: tables.Tables,
) -> None:
    seen = [row._replace(seen_switch_count=row.switch_count // 2)
            for row in experiment.process_clocks]  # fmt: skip
    health = explain.explain(dataclasses.replace(experiment, process_clocks=seen)).health
    assert health.closure.ok is False
    assert health.closure.worst == "switches"
    assert health.warnings[0] == health.closure.forbidden[0]
    assert "Do not use this report for any time of the ledger" in health.warnings[0]


def test_rows_that_refer_to_nothing_do_no_harm(experiment: tables.Tables) -> None:
    broken = dataclasses.replace(experiment, frames=[], stacks=[], threads=[], windows=[])
    as_json(explain.explain(broken))


def test_the_rows_of_a_client_leave_the_server_s_report_as_it_is(
    experiment: tables.Tables,
) -> None:
    client = experiment.targets[0]._replace(target_id=2, role="client")
    both = dataclasses.replace(
        experiment,
        targets=[*experiment.targets, client],
        windows=[
            *experiment.windows,
            *(w._replace(window_id=-w.window_id, target_id=2) for w in experiment.windows),
        ],
        ledger=[
            *experiment.ledger,
            *(r._replace(window_id=-r.window_id) for r in experiment.ledger),
        ],
        threads=[*experiment.threads, *(t._replace(target_id=2) for t in experiment.threads)],
    )
    server = tables.by_target(both)
    alone = dataclasses.replace(server, clients=None)
    assert as_json(explain.explain(alone)) == as_json(explain.explain(experiment))
    assert server.clients is not None
    assert server.clients.targets == [client]
    assert len(server.clients.ledger) == len(experiment.ledger)
    assert not server.clients.samples


def test_a_proof_that_is_no_json_is_kept(experiment: tables.Tables) -> None:
    for text in ("", "[1]", "{", "[" * 100_000):
        run = experiment.runs[0]._replace(proof=text)
        made = explain.explain(dataclasses.replace(experiment, runs=[run]))
        assert made.runs[0].proof == {"text": text}


FIELDS = {
    name: get_args(hint)[0]
    for name, hint in get_type_hints(tables.Tables).items()
    if get_origin(hint) is list and get_args(hint)[0] in TABLES
}
WORDS = st.one_of(
    st.sampled_from((*PHASES, *STATES, "plaintext", "tls", "connection", "success", "1 2", "{}")),
    st.text(max_size=5),
)
NUMBERS = st.one_of(st.integers(-2, 3), st.integers(-(2**63), 2**63 - 1))


def any_row(table: type[Any]) -> st.SearchStrategy[Any]:
    """Any row that the reader would let pass."""
    kinds = {str: WORDS, int: NUMBERS, float: st.floats(-(2.0**62), 2.0**62)}
    values = [
        st.one_of(st.none(), kinds[column.kind]) if column.nullable else kinds[column.kind]
        for column in columns(table)
    ]
    return st.builds(table, *values)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_rows_end_in_a_traceback(data: st.DataObject) -> None:
    rows = {name: data.draw(st.lists(any_row(table), max_size=4)) for name, table in FIELDS.items()}
    meta = data.draw(st.dictionaries(WORDS, WORDS, max_size=2))
    all_tables = tables.Tables(meta=meta)
    for name, values in rows.items():
        setattr(all_tables, name, values)
    made = explain.explain(tables.by_target(all_tables))
    as_json(made)


def test_the_documentation_is_current() -> None:
    text = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8")
    assert text == report_markdown()


def test_runs_are_told_in_order_of_time(experiment: tables.Tables) -> None:
    lines = explain.explain(dataclasses.replace(experiment, runs=experiment.runs[::-1])).runs
    assert [line.run_id for line in lines] == sorted(run.run_id for run in experiment.runs)
    assert all(isinstance(run, Run) for run in experiment.runs)
