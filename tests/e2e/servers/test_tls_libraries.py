# SPDX-License-Identifier: GPL-2.0-only
"""Real servers with other TLS libraries, real clients: counted exactly, closed, and named.

MariaDB and MySQL 5.6 by default; TLSTAX_SERVERS names others of the catalogue, which make
test-servers does.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.analysis.classify.composition import Stacks, count_samples
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.document.closing import close
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Handshake, Loss, SampleStack, Stack, Target
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

# Server, its TLS library and linkage, and the least that its RSA operation with 2048 bits takes.
LIBRARIES = {
    "mysql56": ("yaSSL", "static", 1_000_000),
    "mysql57": ("yaSSL", "static", 1_000_000),
    "mariadb102": ("yaSSL", "static", 1_000_000),
    "mariadb1011": ("wolfSSL", "static", 500_000),
    "mysql80": ("OpenSSL", "shared", 100_000),
    "mysql97": ("OpenSSL", "shared", 100_000),
    "mariadb": ("OpenSSL", "shared", 100_000),
    "mariadb118": ("OpenSSL", "shared", 100_000),
}
SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb mysql56").split()
CONNECTIONS_COUNT, QUERIES_S, HANDSHAKES_WITHOUT_COUNT = 40, 3, 10
NETWORK_BITS, NETWORK = (24, 48), "127.0.0.0/24"  # of the clients
# Of all on-CPU samples in the phases of TLS; the bound is 5 %, 10 % for stripped builds.
UNKNOWN_SHARE_MAX = 0.05
TLS_PHASES = (
    *("handshake", "sign", "keygen", "derive", "verify", "certificate"),
    *("record_read", "record_write"),
)
STORM, SELECT = SCENARIOS["connect"], SCENARIOS["point_select"]


@pytest.fixture(params=SERVERS)
def server_name(request: pytest.FixtureRequest) -> str:
    """Each of the servers that are asked for."""
    return str(request.param)


@pytest.fixture
def server(server_name: str, npm: None, lab_directory: Path) -> Iterator[PrivateServer]:
    """A running server of the catalogue; an unavailable one fails in one line."""
    try:
        ready = open_server(find_kind(server_name))
    except TlstaxError as error:
        pytest.fail(str(error), pytrace=False)
    with ready as running:
        yield running


def library_counts(name: str) -> bool:
    """Whether the server's own counter works: it asks the library, and yaSSL counts nothing."""
    return LIBRARIES[name][0] != "yaSSL"


def counted_by_server(server: PrivateServer) -> int:
    """Handshakes since the server started, by its own counter; 0 with libraries that count none."""
    with server.open_status() as status:
        return status.read()["Ssl_finished_accepts"]


def record(server: PrivateServer, capture: Path) -> int:
    """Record TLS connects, TLS queries and plaintext connects; how many connections spoke TLS."""
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    request = Request(server.pid, capture, sample_hz=499, network_bits=NETWORK_BITS)
    with Recorder(request) as recorder:
        runs = [
            driver.run(Load(STORM, 2, 0, CONNECTIONS_COUNT), "tls", recorder.poll),
            driver.run(Load(SELECT, 2, QUERIES_S), "tls", recorder.poll),
        ]
        driver.run(Load(STORM, 2, 0, HANDSHAKES_WITHOUT_COUNT), "plaintext", recorder.poll)
        recorder.poll(0.5)
    return sum(run.connection_count for run in runs)


def categories(reader: CaptureReader, phases: tuple[str, ...]) -> Counter[str]:
    """CPU samples of some phases by category."""
    stacks = Stacks(reader.rows(Frame), reader.rows(Stack))
    found: Counter[str] = Counter()
    for counts in count_samples(reader.rows(SampleStack), stacks, builtin()).values():
        for (phase, category), count in counts.items():
            if phase in phases:
                found[category] += count
    return found


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.needs("uprobes", "btf")
def test_handshakes_are_counted_and_time_is_attributed(
    server: PrivateServer, server_name: str, tmp_path: Path
) -> None:
    capture = tmp_path / "server.tlstax"
    connection_count = record(server, capture)
    # Only these clients spoke TLS since it started.
    assert counted_by_server(server) == (connection_count if library_counts(server_name) else 0)
    with server.open_status() as status:
        ((said_version,),) = status.query("SELECT VERSION()")
    with CaptureReader.open(capture) as reader:
        (target,) = reader.rows(Target)
        handshakes = list(reader.rows(Handshake))
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
        closure = close(load(reader))
        tls, writing = categories(reader, TLS_PHASES), categories(reader, ("record_write",))

    library, linkage, sign_ns = LIBRARIES[server_name]
    assert (target.tls_library, target.tls_linkage) == (library, linkage)
    assert target.server == ("mariadb" if "mariadb" in server_name else "mysql")
    # The server's own word: what a registry's package of a rolling suite holds changes.
    assert said_version.startswith(target.server_version), said_version
    assert connection_count == CONNECTIONS_COUNT + 2
    assert len(handshakes) == connection_count
    assert {entry.outcome for entry in handshakes} == {"success"}
    assert {entry.client_network for entry in handshakes} == {NETWORK}
    # MariaDB's socket does not block with OpenSSL: the server calls again after each wait.
    may_repeat = library == "OpenSSL" and target.server == "mariadb"
    assert all(entry.call_count == 1 or may_repeat for entry in handshakes)
    # One RSA operation with the private key in each.
    assert all(sign_ns < entry.sign_ns < entry.end_ns - entry.start_ns for entry in handshakes)
    assert not [figure for figure in closure.figures if figure.verdict == "failed"]
    assert closure.ok
    assert not losses & {"handshake_ring_full", "handshake_map_full", "unmatched_exit", "healed"}
    assert tls["unknown"] <= UNKNOWN_SHARE_MAX * tls.total()
    assert writing["cipher"] + writing["record_crypto"] > writing["certificate"]
