# SPDX-License-Identifier: GPL-2.0-only
"""Level `flow` on real servers, beside `record` on the same run: counts are equal, times agree.

Each scenario is exact, or it is named what it becomes. MariaDB by default; TLSTAX_SERVERS names
others.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, PhaseCount, Window
from tlstax.collectors.host.features import HOST
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.programs.ledger_layout import bucket_bounds
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.e2e.levels.both_levels import Both, watched
from tlstax.tests.e2e.recording.test_statements import POOL, connected
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.results import Arm
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("btf", "uprobes"),
    pytest.mark.skipif(not HOST.socket_events, reason="no events of sockets"),
]

SERVERS: Final = os.environ.get("TLSTAX_SERVERS", "mariadb").split()
YASSL: Final = ("mysql56", "mysql57", "mariadb102")
THREADS: Final = 2
ARMS: Final[tuple[Arm, ...]] = ("tls", "plaintext")
LOADS: Final = {"point_select": 2000, "read_write": 60, "bulk_result": 30, "connect": 20}
STATEMENTS: Final = {"point_select": 1, "read_write": 10, "bulk_result": 0, "connect": 0}
"""Statements that each thread of sysbench closes at its end, which has no answer."""
TIMES: Final = 100
ROWS_COUNT: Final = 20_000
FIRST_COUNT: Final = 2000
FILE_LATE_S: Final = 0.6

Observe = Callable[[Callable[[], object]], Both]


def agree(both: Both) -> None:
    """Counts are equal, each command is in the histogram, and large cells agree."""
    assert both.flow.told == both.record.told
    assert both.flow.latencies["command"].total() == both.flow.counts["command"]
    assert both.flow.handshakes_count == both.record.handshakes_count
    assert not {"healed", "unmatched_exit", "phase_stack_overflow"} & both.flow.losses.keys()
    assert both.differences() == {}


@pytest.mark.timing
@pytest.mark.parametrize("name", SERVERS)
def test_sysbench_is_the_same_at_both_levels(name: str, npm: None, lab_directory: Path) -> None:
    with open_server(find_kind(name), ServerRequest()) as server:
        driver = Sysbench.of_server(server, table_rows=1000)
        driver.prepare()
        with watched(server.pid) as observe:
            for arm, (scenario, count) in product(ARMS, LOADS.items()):
                load = Load(SCENARIOS[scenario], THREADS, 0, count)
                both = observe(partial(driver.run, load, arm, time.sleep))
                if name in YASSL and arm == "tls":  # it does not read heads first:
                    merged_count = THREADS * STATEMENTS[scenario]  # with the next command
                    both.record.counts["command"] -= merged_count
                agree(both)
                assert both.flow.counts["command"] >= count


@pytest.fixture(scope="module", params=[(), POOL], ids=["thread", "pool"])
def server(request: pytest.FixtureRequest) -> Iterator[PrivateServer]:
    """One thread for each connection, or a pool."""
    options = ("local_infile = ON", *request.param)
    with PrivateServer(ServerRequest(options=options)) as running:
        yield running


@pytest.fixture(scope="module")
def observe(server: PrivateServer) -> Iterator[Observe]:
    """Both engines on the server."""
    with watched(server.pid) as observing:
        yield observing


@pytest.mark.timing
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("SELECT 1", id="short"),
        pytest.param("SELECT 1; SELECT REPEAT('x', 20000); DO SLEEP(0.001)", id="several"),
        pytest.param("SELECT REPEAT('x', 1000000)", id="many-sends"),
        pytest.param(f"SELECT LENGTH('{'x' * 200_000}')", id="many-receives"),
    ],
)
def test_a_query_is_one_command(server: PrivateServer, observe: Observe, text: str) -> None:
    with connected(server) as client:
        client.query("SELECT 1")
        both = observe(lambda: [client.query(text) for _ in range(TIMES)])
    agree(both)
    assert both.flow.counts["command"] == TIMES


@pytest.mark.timing
def test_closing_a_statement_is_a_command_without_an_answer(
    server: PrivateServer, observe: Observe
) -> None:
    def work() -> None:
        for _ in range(TIMES):
            client.execute_prepared("SELECT REPEAT('x', 2000)", 3)

    with connected(server) as client:
        client.query("SELECT 1")
        both = observe(work)
    agree(both)
    assert both.flow.counts["command"] == TIMES * 5


FETCHES: Final = "SHOW GLOBAL STATUS LIKE 'Com_stmt_fetch'"


@pytest.mark.timing
@pytest.mark.parametrize("columns", ["seq", "seq, REPEAT('x', 5000)"], ids=["small", "many-sends"])
def test_each_fetch_from_a_cursor_is_a_command(
    server: PrivateServer, observe: Observe, columns: str
) -> None:
    counted = []

    def fetches_count() -> int:
        with server.open_status() as session:
            ((_, count),) = session.query(FETCHES)
        return int(count)

    def work() -> None:
        for _ in range(TIMES // 10):
            counted.append(client.fetch_by_cursor(f"SELECT {columns} FROM seq_1_to_60", 20))

    with connected(server) as client:
        client.query("SELECT 1")
        before_count = fetches_count()
        both = observe(work)
        fetched_count = fetches_count() - before_count
    agree(both)
    assert set(counted) == {60}
    assert fetched_count >= 3 * len(counted)
    # Besides, each is prepared, executed and closed.
    assert both.flow.counts["command"] == fetched_count + 3 * len(counted)


@pytest.mark.timing
def test_waiting_for_a_client_s_file_is_no_idling(
    server: PrivateServer, observe: Observe, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    os.mkfifo(file)

    def write() -> None:
        """Rows, most of them late."""
        rows = [f"{row}\t{'x' * 200}\n" for row in range(ROWS_COUNT)]
        with file.open("w") as pipe:
            pipe.writelines(rows[:FIRST_COUNT])
            pipe.flush()
            time.sleep(FILE_LATE_S)
            pipe.writelines(rows[FIRST_COUNT:])

    def load() -> None:
        writer = threading.Thread(target=write)
        writer.start()
        client.query(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE loaded")
        writer.join()

    with connected(server) as client:
        client.query("CREATE TABLE loaded (id INT PRIMARY KEY, text VARCHAR(300))")
        both = observe(load)
        client.query("DROP TABLE loaded")
    agree(both)
    assert both.flow.counts["command"] == 1
    assert both.flow.cells["command", "blocked_network"] > 0.5e9 * FILE_LATE_S


@pytest.mark.timing
def test_a_change_of_user_is_one_command_and_connects_again(
    server: PrivateServer, observe: Observe
) -> None:
    def work() -> None:
        for _ in range(TIMES):
            client.change_user()

    with connected(server) as client:
        client.query("SELECT 1")
        both = observe(work)
    # What is read and answered within it is part of `connect` here, and of records there.
    assert both.flow.told == both.record.told
    assert both.flow.counts["connect"] == both.flow.counts["command"] == TIMES
    idle = both.record.cells["idle", "blocked_network"]
    assert both.flow.cells["idle", "blocked_network"] == pytest.approx(idle, rel=0.02)


@pytest.mark.timing
def test_compressed_results_are_the_same(server: PrivateServer, observe: Observe) -> None:
    with connected(server, compressed=True) as client:
        client.query("SELECT 1")
        text = "SELECT REPEAT('abcdefg', 20000)"
        agree(observe(lambda: [client.query(text) for _ in range(TIMES)]))


@pytest.mark.timing
def test_connecting_and_leaving_are_the_same(server: PrivateServer, observe: Observe) -> None:
    def work() -> None:
        for _ in range(20):
            with connected(server) as client:
                client.query("SELECT 1")

    both = observe(work)
    agree(both)
    assert both.flow.counts["connect"] == both.flow.handshakes_count == 20
    assert both.flow.counts["command"] == 40  # one each is the goodbye


@pytest.mark.timing
def test_the_latency_of_a_command_lacks_the_wait_for_the_next_one(
    server: PrivateServer, observe: Observe
) -> None:
    def work() -> None:
        for _ in range(10):
            client.query("DO SLEEP(0.02)")
            time.sleep(0.05)

    with connected(server) as client:
        client.query("SELECT 1")
        both = observe(work)
    ((low_ns, _), *_), ((_, high_ns), *_) = (
        [bucket_bounds(bucket) for bucket in sorted(both.flow.latencies["command"], reverse=last)]
        for last in (False, True)
    )
    assert low_ns > 0.018e9, "the sleep is part of it"
    assert high_ns < 0.05e9, "waiting for the next command is not"


def test_a_report_says_what_level_flow_does_not_tell(
    server: PrivateServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "capture"
    with Recorder(Request(server.pid, capture, level=Level.FLOW)) as recorder:
        with connected(server) as client:
            for _ in range(TIMES):
                client.query("SELECT 1")
        recorder.poll(1.5)
    assert main(["report", str(capture)]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "one phase, `command`" in text
    assert "the recording has no calibration stretch" in " ".join(text.split())
    with CaptureReader.open(capture) as reader:
        assert {row.level for row in reader.rows(Window)} == {"flow"}
        phases = {row.phase for row in reader.rows(Ledger)}
        commands = sum(row.ended_count for row in reader.rows(PhaseCount) if row.phase == "command")
    assert not phases & {"record_read", "record_write"}
    assert commands == TIMES + 1
