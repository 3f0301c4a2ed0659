# SPDX-License-Identifier: GPL-2.0-only
"""Drivers against real servers: every client counted to the last connection, and found out.

The host's MariaDB by default; TLSTAX_SERVERS names others (make test-drivers does).
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers import DRIVERS, make_driver
from tlstax.workloads.drivers.model import Driver, DriveRequest, DriveResult, Tick
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.results import ARMS, Arm
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.connections import await_quiet, socket_count
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.status import Status, StatusSession
from tlstax.workloads.tls import TlsChoice

SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb").split()
LIBRARIES = [name for name in DRIVERS if name != "sysbench"]
RESUMING = [name for name, kind in DRIVERS.items() if kind.resumes]
MANY = "TLSTAX_SERVERS" in os.environ
YASSL = ("mysql56", "mysql57", "mariadb102")
ROWS, PROCESSES_COUNT, OPERATIONS_COUNT = 500, 2, 9


@dataclasses.dataclass
class Lab:
    """A running server with the tables of every driver, and a view of its counters."""

    name: str
    server: PrivateServer
    status: StatusSession
    baseline_count: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(host="127.0.0.1", port=self.server.port)

    def request(self, scenario: str, arm: Arm, **further: object) -> DriveRequest:
        request = DriveRequest(
            self.endpoint,
            self.server.account(),
            arm,
            TlsChoice(),
            scenario,
            PROCESSES_COUNT,
            seconds=1,
            operation_count=OPERATIONS_COUNT,
        )
        return dataclasses.replace(request, **further)  # type: ignore[arg-type]

    def drive(self, driver: Driver, request: DriveRequest) -> tuple[DriveResult, Status, Status]:
        """One run, and the server's counters at the gate and at its end."""
        seen: list[Status] = []

        def at_gate(pids: Sequence[int]) -> None:
            await_quiet(self.server.pid, self.baseline_count)
            seen.append(self.status.read())

        result = driver.run(request, Tick(at_gate=at_gate))
        await_quiet(self.server.pid, self.baseline_count)
        return result, seen[0], self.status.read()


@pytest.fixture(scope="module", params=SERVERS)
def lab(request: pytest.FixtureRequest, npm: None) -> Iterator[Lab]:
    with open_server(find_kind(request.param)) as server, server.open_status() as status:
        baseline_count = socket_count(server.pid)
        found = Lab(request.param, server, status, baseline_count)
        made("pymysql").prepare(server, found.endpoint, server.account())
        yield found


def made(name: str) -> Driver:
    """A driver that can work here."""
    driver = make_driver(name, {"table_rows": ROWS})
    driver.check()
    return driver


def require_fit(name: str, server: str) -> None:
    """The one pair that cannot speak TLS: it has its own OpenSSL, and asks for TLS 1.2 or more."""
    if name == "connector-python-c" and server in YASSL:
        pytest.xfail("the C extension of Connector/Python speaks no TLS 1.1")


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_connections_and_handshakes_are_exact(name: str, arm: Arm, lab: Lab) -> None:
    if arm == "tls":
        require_fit(name, lab.name)
    result, before, after = lab.drive(made(name), lab.request("connect_insert_select", arm))
    assert result.operation_count == result.connection_count == OPERATIONS_COUNT
    assert after.since(before, "Connections") == OPERATIONS_COUNT
    counts = lab.name not in YASSL  # yaSSL counts nothing
    handshakes = OPERATIONS_COUNT if arm == "tls" and counts else 0
    assert after.since(before, "Ssl_finished_accepts") == handshakes
    assert (result.negotiated is not None) == (arm == "tls")
    assert result.latency_includes_connect
    assert len(result.pids) == PROCESSES_COUNT
    latencies = result.latencies
    assert len(latencies.samples_ns) == OPERATIONS_COUNT
    assert latencies.mean_ns * OPERATIONS_COUNT == pytest.approx(sum(latencies.samples_ns), rel=0.1)
    assert 0 < latencies.p95_ns <= latencies.max_ns <= result.elapsed_ns
    assert 0 < result.client_cpu_ns <= result.elapsed_ns * PROCESSES_COUNT
    with lab.server.open_administrator() as session:
        ((count,),) = session.query("SELECT COUNT(*) FROM tlstax_bench.tlstax_short")
    assert int(count) >= OPERATIONS_COUNT


@pytest.mark.parametrize("name", LIBRARIES)
def test_persistent_connections_stay(name: str, lab: Lab) -> None:
    require_fit(name, lab.name)
    result, before, after = lab.drive(made(name), lab.request("point_select", "tls"))
    assert after.since(before, "Connections") == result.connection_count == PROCESSES_COUNT
    assert result.operation_count == OPERATIONS_COUNT
    assert not result.latency_includes_connect


@pytest.mark.parametrize("name", [name for name in DRIVERS if name not in RESUMING])
def test_who_cannot_resume_says_so(name: str, lab: Lab) -> None:
    with pytest.raises(TlstaxError, match="resume TLS sessions") as caught:
        made(name).run(lab.request("connect", "tls", resume=True), Tick())
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
@pytest.mark.parametrize("name", RESUMING if MANY else RESUMING[:1])
def test_a_resumed_session_needs_no_private_key(name: str, lab: Lab, tmp_path: Path) -> None:
    signed: dict[bool, list[int]] = {}
    for resume in (False, True):
        path = tmp_path / f"{resume}.tlstax"
        with Recorder(Request(lab.server.pid, path)) as recorder:
            starts: list[int] = []

            def at_gate(pids: Sequence[int], starts: list[int] = starts) -> None:
                await_quiet(lab.server.pid, lab.baseline_count)
                recorder.poll(0.2)
                starts.append(time.monotonic_ns())

            request = lab.request("connect", "tls", resume=resume, threads_count=1)
            result = made(name).run(request, Tick(recorder.poll, at_gate))
            recorder.poll(0.5)
        assert result.reused_count == (OPERATIONS_COUNT if resume else 0)
        with CaptureReader.open(path) as reader:
            signed[resume] = [
                handshake.sign_ns
                for handshake in reader.rows(Handshake)
                if handshake.start_ns >= starts[0]
            ]
    assert len(signed[False]) == len(signed[True]) == OPERATIONS_COUNT
    assert all(sign_ns > 0 for sign_ns in signed[False])
    assert all(sign_ns == 0 for sign_ns in signed[True]), signed


# ---- those below need one server only ----


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Lab]:
    with PrivateServer() as server, server.open_status() as status:
        lab = Lab("mariadb", server, status, socket_count(server.pid))
        made("sysbench").prepare(server, lab.endpoint, server.account())
        yield lab


SCENARIOS = [kind.name for kind in DRIVERS["sysbench"].scenarios]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_of_sysbench(scenario: str, mariadb: Lab) -> None:
    driver = made("sysbench")
    driver.prepare(mariadb.server, mariadb.endpoint, mariadb.server.account())
    count = 400 if scenario == "bulk_insert" else 60
    result, before, after = mariadb.drive(
        driver, mariadb.request(scenario, "tls", operation_count=count)
    )
    assert result.operation_count == count
    assert after.since(before, "Connections") == result.connection_count
    assert after.since(before, "Ssl_finished_accepts") == result.connection_count
    assert result.latencies.sampled_count == pytest.approx(count, abs=2)


def test_tables_that_lost_their_rows_are_made_anew(mariadb: Lab) -> None:
    driver = made("sysbench")
    driver.prepare(mariadb.server, mariadb.endpoint, mariadb.server.account())
    driver.run(mariadb.request("delete", "plaintext", operation_count=4 * ROWS), Tick())

    def rows_count() -> int:
        with mariadb.server.open_administrator() as session:
            ((count,),) = session.query("SELECT COUNT(*) FROM tlstax_bench.sbtest1")
        return int(count)

    assert rows_count() < ROWS * 0.9
    driver.run(mariadb.request("point_select", "plaintext"), Tick())
    assert rows_count() == ROWS


@pytest.mark.timing
@pytest.mark.parametrize("name", ["sysbench", *(LIBRARIES if MANY else ["perl-dbd-mysql"])])
def test_a_fixed_rate_is_kept(name: str, mariadb: Lab) -> None:
    rate_per_s, seconds = 300.0, 1
    request = mariadb.request(
        "point_select", "plaintext", operation_count=None, seconds=seconds, rate_per_s=rate_per_s
    )
    result = made(name).run(request, Tick())
    expected = rate_per_s * seconds
    # A Poisson process, and on a busy host late at its end.
    assert expected * 0.6 < result.operation_count < expected + 6 * expected**0.5


@pytest.mark.timing
def test_more_than_the_server_can_do_waits_in_the_queue(mariadb: Lab) -> None:
    driver = made("pymysql")
    request = mariadb.request("point_select", "plaintext", operation_count=None, threads_count=1)
    free = driver.run(request, Tick())
    full = driver.run(dataclasses.replace(request, rate_per_s=1e6), Tick())
    assert full.latencies.mean_ns > 20 * free.latencies.mean_ns
    assert full.latencies.max_ns > 0.5e9, "the last ones were due when it began"


@pytest.fixture(scope="module")
def without_tls() -> Iterator[Lab]:
    with (
        PrivateServer(ServerRequest(options=("skip_ssl",))) as server,
        server.open_status() as status,
    ):
        yield Lab("mariadb", server, status, socket_count(server.pid))


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_fallback_to_plaintext_is_found_out(name: str, without_tls: Lab) -> None:
    with pytest.raises(TlstaxError) as caught:
        made(name).run(without_tls.request("connect", "tls"), Tick())
    assert caught.value.exit_code == ExitCode.FAILED


@pytest.mark.parametrize("name", LIBRARIES)
def test_no_password_is_in_a_list_that_others_read(name: str, mariadb: Lab) -> None:
    seen: list[str] = []

    def at_gate(pids: Sequence[int]) -> None:
        for pid in pids:
            process = Path(f"/proc/{pid}")
            seen.extend((process / part).read_text() for part in ("cmdline", "environ"))

    mariadb_request = mariadb.request("connect", "plaintext")
    made(name).run(mariadb_request, Tick(at_gate=at_gate))
    assert len(seen) == 2 * PROCESSES_COUNT
    assert not [text for text in seen if mariadb_request.account.password in text]


def test_an_interrupt_ends_every_process(mariadb: Lab) -> None:
    pids: list[int] = []

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    request = mariadb.request("connect", "plaintext", operation_count=None, seconds=30)
    with pytest.raises(KeyboardInterrupt):
        made("pymysql").run(request, Tick(interrupt, pids.extend))
    assert len(pids) == PROCESSES_COUNT
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_what_a_client_says_is_told(mariadb: Lab) -> None:
    account = dataclasses.replace(mariadb.server.account(), password="wrong")
    for name in LIBRARIES:
        with pytest.raises(TlstaxError, match="Access denied"):
            made(name).run(mariadb.request("connect", "plaintext", account=account), Tick())


@pytest.mark.parametrize(
    ("name", "missing"), [("php-mysqli", "php-cli"), ("perl-dbd-mysql", "perl")]
)
def test_what_is_not_installed_is_named(
    name: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = "tlstax.workloads.servers.programs.find_program.__defaults__"
    monkeypatch.setattr(found, (str(tmp_path),))
    with pytest.raises(TlstaxError, match=f"apt-get install {missing}") as caught:
        make_driver(name).check()
    assert caught.value.exit_code == ExitCode.HOST


def test_connections_through_the_socket(mariadb: Lab) -> None:
    endpoint = Endpoint(socket=mariadb.server.directory.socket)
    for name in LIBRARIES:
        driver = made(name)
        result = driver.run(mariadb.request("connect", "plaintext", endpoint=endpoint), Tick())
        assert result.operation_count == OPERATIONS_COUNT
        request = mariadb.request("connect", "tls", endpoint=endpoint)
        if name in ("pymysql", "perl-dbd-mysql", "perl-dbd-mariadb"):
            assert driver.run(request, Tick()).negotiated
        else:
            with pytest.raises(TlstaxError, match="no TLS through a Unix socket"):
                driver.run(request, Tick())


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_version_that_is_asked_for(name: str, mariadb: Lab) -> None:
    choice = TlsChoice(version="TLSv1.2")
    request = mariadb.request("connect", "tls", tls=choice, account=mariadb.server.account(choice))
    if name == "php-mysqli":
        with pytest.raises(TlstaxError, match=r"asked for TLSv1.2 it spoke TLSv1.3"):
            made(name).run(request, Tick())
        return
    negotiated = made(name).run(request, Tick()).negotiated
    assert negotiated
    assert negotiated[0] == "TLSv1.2"
