# SPDX-License-Identifier: GPL-2.0-only
"""One recorder, several processes at once: each has exactly what it did, and nothing of others."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.stream.frames import targets_of
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.probes.model import Level
from tlstax.tests.figures import note
from tlstax.tests.safe_programs import is_guarded
from tlstax.tests.truth.books import Measured
from tlstax.tests.truth.by_recorder import record_all
from tlstax.tests.truth.conftest import lines_until, measured_of, running

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

LETTERS = ("s" * 23, "s" * 11 + "n", "s" * 40)
OUTCOMES = ({"success": 23}, {"success": 11, "failure": 1}, {"success": 40})
Measure = Callable[..., list[Measured]]


@pytest.fixture(params=[Level.RECORD, Level.FLOW])
def measure_all(
    request: pytest.FixtureRequest, truth_program: Path, repository: Path,
    real_losses: Callable[..., Any], tmp_path: Path,
) -> Measure:  # fmt: skip
    """Run some programs at the same time under one recorder."""
    level: Level = request.param

    def run(*runs: tuple[object, ...]) -> list[Measured]:
        with ExitStack() as stack:
            started = [
                stack.enter_context(running(truth_program, *map(str, arguments)))
                for arguments in runs
            ]
            plans: dict[int, str] = {}
            said: list[list[dict[str, Any]]] = []
            for process in started:
                lines_until(process, "ready")
                planned = plan_in_child(process.pid, level, repository / "tests/testprogs")
                plans[process.pid] = plan_file_text(*planned, Safety(guarded=is_guarded()))

            def go() -> None:
                for process in started:
                    assert process.stdin is not None
                    process.stdin.write(b"g")
                said.extend(lines_until(process, "done", level) for process in started)

            recorded = record_all(plans, tmp_path, go)
            with (tmp_path / "truth.stream").open("rb") as stream:
                assert list(targets_of(stream)) == list(plans)
            return [
                measured_of(pid, lines, one, level, real_losses)
                for pid, lines, one in zip(plans, said, recorded, strict=True)
            ]

    return run


def test_each_has_its_own_handshakes(
    measure_all: Measure, outcome_counts: Callable[..., Any]
) -> None:
    for run, letters, outcomes in zip(
        measure_all(*(("tls", letters) for letters in LETTERS)), LETTERS, OUTCOMES, strict=True
    ):
        note("records", len(letters), len(run.records))
        assert outcome_counts(run.records) == outcomes
        assert run.losses == {}
        assert len(run.books) == len(letters)
        tids = {books["tid"] for books in run.books}
        assert {record.tid for record in run.records} == tids
        assert tids | {run.pid} == set(run.ledgers), "its threads, and no others"
        for tid in tids:
            counts = run.ledger(tid).counts
            assert (counts["handshake"], counts["connect"]) == (1, 1)


def test_commands_of_one_are_not_those_of_another(measure_all: Measure, tmp_path: Path) -> None:
    """They wait at the same time for other things, and as often as they say."""
    rounds = (1, 3)
    runs = measure_all(*(("states", tmp_path / f"disk{count}", count, 5) for count in rounds))
    for run in runs:
        (books,) = run.books
        counts = run.ledger(books["tid"]).counts
        note("commands", books["counts"]["command"], counts["command"])
        assert counts["command"] == books["counts"]["command"]
        assert counts["connect"] == books["counts"]["connect"]
        assert run.losses == {}
    first, second = (run.books[0]["counts"]["command"] for run in runs)
    assert first < second
