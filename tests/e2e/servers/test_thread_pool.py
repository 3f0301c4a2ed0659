# SPDX-License-Identifier: GPL-2.0-only
"""A thread pool: its threads serve whichever connection is ready, and no phase is misfiled."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.analysis.document.closing import close
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Loss, PhaseCount, Thread, Window
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

POOL = ("thread_handling = pool-of-threads", "thread_pool_size = 2")
CACHE = ("thread_cache_size = 2",)
STORM, SELECT = SCENARIOS["connect"], SCENARIOS["point_select"]
TLS_CONNECTS_COUNT, PLAINTEXT_CONNECTS_COUNT, CLIENTS_COUNT = 60, 10, 6
PAUSE_S = 1.0
WAITING = ("blocked_network", "blocked_futex")


@pytest.fixture(params=[POOL, CACHE], ids=["pool", "cache"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """How the server uses its threads: more clients than threads, or threads used again."""
    return tuple(request.param)


@pytest.fixture
def capture(options: tuple[str, ...], tmp_path: Path) -> Iterator[Path]:
    """Connects over TLS, queries over TLS on more connections than threads, plaintext connects."""
    path = tmp_path / "server.tlstax"
    with PrivateServer(ServerRequest(options=options)) as server:
        driver = Sysbench.of_server(server, table_rows=100)
        driver.prepare()
        with Recorder(Request(server.pid, path)) as recorder:
            driver.run(Load(STORM, 3, 0, TLS_CONNECTS_COUNT), "tls", recorder.poll)
            recorder.poll(PAUSE_S)  # nothing to do: all of it must be idle
            queries = driver.run(Load(SELECT, CLIENTS_COUNT, 2), "tls", recorder.poll)
            driver.run(Load(STORM, 2, 0, PLAINTEXT_CONNECTS_COUNT), "plaintext", recorder.poll)
            recorder.poll(0.3)
        assert queries.connection_count == CLIENTS_COUNT
        yield path


@pytest.mark.alone
def test_no_phase_is_misfiled(capture: Path, options: tuple[str, ...]) -> None:
    with CaptureReader.open(capture) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        roles = ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows)
        handshakes = list(reader.rows(Handshake))
        losses = Counter({loss.kind: loss.lost_count for loss in reader.rows(Loss)})
        ended: Counter[str] = Counter()
        for row in reader.rows(PhaseCount):
            ended[row.phase] += row.ended_count
        closure = close(load(reader))

    mine = roles["pool_worker" if options == POOL else "connection"]
    time_ns = Counter({phase: ledger.phase_time(mine, (phase,)) for phase, _ in mine})
    waits = {phase: sum(mine.get((phase, state), 0) for state in WAITING) for phase in time_ns}
    assert len(handshakes) == TLS_CONNECTS_COUNT + CLIENTS_COUNT
    assert {(entry.outcome, entry.side) for entry in handshakes} == {("success", "server")}
    assert ended["handshake"] == len(handshakes)
    connections_count = len(handshakes) + PLAINTEXT_CONNECTS_COUNT
    assert ended["connect"] == ended["disconnect"] == connections_count
    assert closure.ok, closure
    assert not losses.keys() & {"healed", "unmatched_exit", "handshake_map_full"}
    assert ended["command"] > 1000 < ended["record_read"]
    # The pause alone was a second for each thread.
    assert waits["idle"] > PAUSE_S * 1e9
    assert waits["command"] < 0.02 * time_ns["idle"], waits
    assert waits.get("record_read", 0) + waits.get("record_write", 0) < 0.01 * time_ns["idle"]
    assert time_ns["unknown"] < 0.05 * time_ns.total()
    if options == POOL:
        assert "connection" not in roles, "no thread has a connection of its own"
