# SPDX-License-Identifier: GPL-2.0-only
"""The same truths read out of a capture that `tlstax attach` cut into many windows."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Thread, ThreadClock
from tlstax.tests.figures import note
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Compare = Callable[..., dict[str, tuple[float, float]]]
Record = Callable[..., list[dict[str, Any]]]
COUNT = 23


@pytest.fixture
def record(
    run_watched: Callable[..., list[dict[str, Any]]],
    spawn: Callable[..., "subprocess.Popen[str]"],
    repository: Path,
) -> Record:
    """Run the truth program under `tlstax attach`; what it says."""

    def run(capture: Path, *arguments: object) -> list[dict[str, Any]]:
        started: list[subprocess.Popen[str]] = []

        def attach(pid: int) -> None:
            command = [sys.executable, "-m", "tlstax", "attach", str(pid), "-o", str(capture)]
            command += ["--definitions", str(repository / "tests/testprogs"), "--quiet"]
            process = spawn([*command, "--window", "100ms"], stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "attached" in line, line + process.stderr.read()
            started.append(process)

        def detach() -> None:
            (process,) = started
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=COMMAND_S)
            assert process.returncode == 0, errors

        return run_watched(attach, detach, *arguments)

    return run


class States(NamedTuple):
    """A recording of every state, and the program's own books."""

    capture: Path
    books: dict[str, Any]


@pytest.fixture
def states(record: Record, measured: Callable[..., States], tmp_path: Path) -> States:
    def measure() -> States:
        lines = record(tmp_path / "capture", "states", tmp_path / "disk", 2, 20)
        (books,) = (line for line in lines if line["kind"] == "thread")
        return States(tmp_path / "capture", books)

    return measured("states", measure)


def test_the_thread_that_serves_is_a_connection_s_in_every_window(states: States) -> None:
    with CaptureReader.open(states.capture) as reader:
        (thread,) = (row for row in reader.rows(Thread) if row.tid == states.books["tid"])
        rows = [row for row in reader.rows(Ledger) if row.thread_id == thread.thread_id]
    assert thread.role == "connection"
    assert len({row.window_id for row in rows}) >= 5


@pytest.mark.timing(emulated=True)
def test_windows_add_up_to_what_the_program_did(states: States, disagreements: Compare) -> None:
    books = states.books
    with CaptureReader.open(states.capture) as reader:
        (thread,) = (row for row in reader.rows(Thread) if row.tid == books["tid"])
        cells: Counter[str] = Counter()
        for row in reader.rows(Ledger):
            if row.thread_id == thread.thread_id:
                cells[f"{row.phase}/{row.state}"] += row.time_ns
        clocks = [row for row in reader.rows(ThreadClock) if row.thread_id == thread.thread_id]
    uncounted_ns = sum(row.steal_ns + row.handed_ns for row in clocks)
    found = {cell: ns for cell, ns in cells.items() if not cell.startswith("background/")}
    assert disagreements(books["cells"], found, uncounted_ns) == {}


@pytest.mark.timing(emulated=True)
def test_the_cells_of_a_span_of_windows_are_the_thread_s_life_in_it(states: States) -> None:
    books = states.books
    with CaptureReader.open(states.capture) as reader:
        (thread,) = (row for row in reader.rows(Thread) if row.tid == books["tid"])
        spent: Counter[int] = Counter()
        for row in reader.rows(Ledger):
            if row.thread_id == thread.thread_id:
                spent[row.window_id] += row.time_ns
        clocks = [row for row in reader.rows(ThreadClock) if row.thread_id == thread.thread_id]
    covered: list[int] = []
    for clock in clocks:
        windows = range(clock.window_id - clock.window_count + 1, clock.window_id + 1)
        lived_ns = sum(spent[window] for window in windows)
        assert lived_ns == pytest.approx(clock.lifetime_ns, rel=0.01, abs=1_000_000), windows
        covered += windows
    assert len(covered) == len(set(covered)), "no window is in two spans"
    assert spent.keys() <= set(covered)


def test_23_handshakes_are_23_rows(record: Record, tmp_path: Path) -> None:
    lines = record(tmp_path / "capture", "tls", "m" * COUNT)
    told = {line["tid"]: line for line in lines if line["kind"] == "handshake"}
    with CaptureReader.open(tmp_path / "capture") as reader:
        rows = list(reader.rows(Handshake))
    note("rows", COUNT, len(rows))
    assert len(rows) == COUNT
    for row in rows:
        line = told[row.tid]
        assert (row.outcome, row.tls_version, row.cipher) == (
            line["outcome"],
            line["tls_version"],
            line["cipher"],
        )
        assert row.group_name.lower() == line["group_name"]
        assert row.resumed == 0
        assert min(row.sign_ns, row.keygen_ns, row.derive_ns, row.verify_ns) > 0
