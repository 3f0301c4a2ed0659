# SPDX-License-Identifier: GPL-2.0-only
"""Faults that only the server's own counters show: commands and handshakes that are not recorded.

They are checked on a real server: its counters are the reference, read by `--collect status`.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tlstax.analysis.document.closing import close
from tlstax.analysis.rows.tables import Tables, load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.status import ServerStatus
from tlstax.tests.safe_programs import safe_programs
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.needs("btf", "uprobes")]

MUTANTS = {
    "UNCOUNTED-PHASE_COMMAND": ("commands", "point_select"),
    "DROP_HANDSHAKES-2": ("handshakes", "connect"),
}
"""Fault: the figure that must notice it, and a load. Each loses every second one."""
SECONDS = 6
COUNTERS, STEP_MOST = {"commands": "Questions", "handshakes": "Ssl_finished_accepts"}, 0.35
TABLE_ROWS = 1000
Verdicts = Callable[[str, list[str]], dict[str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        Sysbench.of_server(server, table_rows=TABLE_ROWS).prepare()
        yield server


@pytest.fixture
def verdicts(
    server: PrivateServer, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Verdicts:
    """The verdict of each figure over some loads, by a mutant or by the programs that ship ("")."""

    def record(mutant: str, loads: list[str]) -> dict[str, str]:
        kind = "-guarded" if safe_programs() else ""
        mutants = repository / "tests/truth/mutants/bin"
        monkeypatch.setenv("TLSTAX_PROGRAMS", str(mutants / f"{mutant}{kind}.bpf.o"))
        recorder = mutants / "tlstax-recorder" if mutant else None
        status = ServerStatus(option_file=server.directory.client / "status.cnf")
        capture = tmp_path / "capture"
        request = Request(server.pid, capture, sources=SourceSet([status]), recorder=recorder)
        with Recorder(request) as recording:
            driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
            for name in loads:
                driver.run(Load(SCENARIOS[name], 2, SECONDS), "tls", recording.poll)
        with CaptureReader.open(capture) as reader:
            tables = load(reader)
        if mutant:
            assert _is_read_often(tables, COUNTERS[MUTANTS[mutant][0]])
        return {figure.key: figure.verdict for figure in close(tables).figures}

    return record


def _is_read_often(tables: Tables, counter: str) -> bool:
    """Whether no two readings are so far apart that what came between may be half of all.

    The bound of a figure allows for that, so on a starved host half can be missing.
    """
    values = {row.time_ns: int(row.value) for row in tables.status if row.name == counter}
    steps = [after - before for before, after in pairwise(values[at] for at in sorted(values))]
    return bool(steps) and max(steps) <= STEP_MOST * sum(steps)


def test_the_programs_that_ship_count_as_the_server_does(verdicts: Verdicts) -> None:
    figures = dict(MUTANTS.values())
    found = verdicts("", list(figures.values()))
    assert {key: found[key] for key in figures} == dict.fromkeys(figures, "ok")


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_turns_its_figure_red(verdicts: Verdicts, mutant: str) -> None:
    figure, load_name = MUTANTS[mutant]
    assert verdicts(mutant, [load_name])[figure] == "failed"
