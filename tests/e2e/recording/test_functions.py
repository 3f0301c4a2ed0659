# SPDX-License-Identifier: GPL-2.0-only
"""`--functions` on real servers: each point select costs a whole number of AES blocks, SHA blocks
and records, and the bytes are those that the server itself counted.

MySQL 5.6 and Debian's MariaDB by default; TLSTAX_SERVERS names others (make test-servers does).
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.document.primitives import COMMAND_PHASES
from tlstax.analysis.model.primitives import PrimitiveLine, PrimitiveTable
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Loss
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.connections import await_quiet, socket_count
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb mysql56").split()
FEW, MANY = 300, 1300
# 4 SHA-1 transforms check the query, 7 sign the answer.
YASSL = {"aes_record_decrypt": 1, "aes_record_encrypt": 1, "mac_record": 2, "sha1_block": 11}
# What a point select costs, by primitive. From TLS 1.1 on a record begins with a block of its own.
# A record of TLS 1.3 with OpenSSL is two updates: its header, which is only authenticated, and what
# it carries.
OPENSSL3 = {"encrypt_update": 2, "decrypt_update": 2}
EXPECTED = {
    "mysql56": YASSL | {"aes_block_decrypt": 3, "aes_block_encrypt": 15},
    "mysql57": YASSL | {"aes_block_decrypt": 4, "aes_block_encrypt": 16},
    "mariadb102": YASSL | {"aes_block_decrypt": 4, "aes_block_encrypt": 16},
    "mariadb1011": {
        "aes_gcm_decrypt": 1,
        "aes_gcm_encrypt": 1,
        "ghash": 2,
        "aes_block_encrypt": 14,
    },
    "mysql80": {"gcm_record": 2},
    "mysql97": OPENSSL3,
    "mariadb": OPENSSL3,
    "mariadb118": OPENSSL3,
}


@dataclass(frozen=True)
class Recorded:
    """A recording of some point selects."""

    query_count: int
    received_bytes: int  # by the server's own counter
    table: PrimitiveTable
    losses: set[str]

    def line(self, name: str) -> PrimitiveLine | None:
        """A primitive, if it was called."""
        return next((line for line in self.table.lines if line.name == name), None)

    def calls(self) -> Counter[str]:
        """Calls by primitive within commands and their records.

        A handshake's own vary: a random generator that is due for a reseed encrypts, too.
        """
        return Counter(
            {
                line.name: sum(line.phases.get(phase, 0) for phase in COMMAND_PHASES)
                for line in self.table.lines
            }
        )


@pytest.fixture(params=SERVERS)
def server_name(request: pytest.FixtureRequest) -> str:
    """Each of the servers that are asked for."""
    return str(request.param)


@pytest.fixture
def server(server_name: str, npm: None, lab_directory: Path) -> Iterator[PrivateServer]:
    """A running server of the catalogue."""
    with open_server(find_kind(server_name)) as running:
        yield running


def record(server: PrivateServer, driver: Sysbench, query_count: int, capture: Path) -> Recorded:
    """Count ciphers and digests while one TLS connection asks its questions."""
    request = Request(server.pid, capture, functions=("cipher", "digest"))
    with server.open_status() as status, Recorder(request) as recorder:
        before, baseline_count = status.read(), socket_count(server.pid)
        load = Load(SCENARIOS["point_select"], 1, 0, query_count)
        assert driver.run(load, "tls", recorder.poll).operation_count == query_count
        await_quiet(server.pid, baseline_count, recorder.poll)
        received_bytes = status.read().since(before, "Bytes_received")
    with CaptureReader.open(capture) as reader:
        (table,) = explain.explain(tables.load(reader)).primitives
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
    return Recorded(query_count, received_bytes, table, losses)


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_a_point_select_costs_a_whole_number_of_calls(
    server: PrivateServer, server_name: str, tmp_path: Path
) -> None:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    few = record(server, driver, FEW, tmp_path / "few.tlstax")
    many = record(server, driver, MANY, tmp_path / "many.tlstax")
    assert not {kind for kind in few.losses | many.losses if kind.startswith("function_")}
    # What begins and ends a session is the same both times, so that the difference is the queries'.
    slopes = {
        name: (count - few.calls()[name]) / (MANY - FEW) for name, count in many.calls().items()
    }
    assert {name: slopes.get(name) for name in EXPECTED[server_name]} == EXPECTED[server_name]
    assert_blocks_make_up_records(many, slopes)
    assert_bytes_agree(server_name, few, many)


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_what_the_probes_cost_is_said(server: PrivateServer, tmp_path: Path) -> None:
    driver = Sysbench.of_server(server, table_rows=100)
    driver.prepare()
    many = record(server, driver, MANY, tmp_path / "many.tlstax")
    assert many.table.probe_share is not None
    assert 0 < many.table.probe_share < 1
    # A block takes a tenth of a microsecond, the probes on it eight times as much.
    for name in ("aes_block_encrypt", "sha1_block"):
        if line := many.line(name):
            assert line.timing.verdict == "not measurable"


def assert_blocks_make_up_records(many: Recorded, slopes: dict[str, float]) -> None:
    """In yaSSL's CBC mode every byte of a record went through one of the blocks."""
    for direction in ("encrypt", "decrypt"):
        record, block = many.line(f"aes_record_{direction}"), many.line(f"aes_block_{direction}")
        if record and block:
            assert block.size_bytes == record.size_bytes
            assert slopes[f"aes_block_{direction}"].is_integer()


def assert_bytes_agree(server_name: str, few: Recorded, many: Recorded) -> None:
    """What the records of the additional queries carried is what the server received."""
    if server_name != "mariadb":
        return
    before, after = few.line("decrypt_update"), many.line("decrypt_update")
    assert before is not None
    assert after is not None
    queries = MANY - FEW
    # A record is 5 bytes of header, what the server receives, and a byte that says what it is.
    carried_bytes = after.size_bytes - before.size_bytes - queries * (5 + 1)
    assert carried_bytes == many.received_bytes - few.received_bytes
