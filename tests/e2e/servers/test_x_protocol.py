# SPDX-License-Identifier: GPL-2.0-only
"""The X protocol of MySQL 8 and later over TLS: roles and phases of its own workers.

Only for servers of TLSTAX_SERVERS that have it (make test-servers). The client speaks just enough:
frames of length, type and a protobuf message.
"""

import os
import socket
import ssl
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tlstax.analysis.document.closing import close
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import load
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Ledger, Loss, PhaseCount, Thread, Window
from tlstax.collectors.host.features import HOST
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.probes.model import Level
from tlstax.tests.e2e.levels.both_levels import watched
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.configuration import USER_TLS
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import free_port

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SPEAKERS: Final = ("mysql80", "mysql97")
SERVERS: Final = [name for name in os.environ.get("TLSTAX_SERVERS", "").split() if name in SPEAKERS]
CONNECTIONS_COUNT, STATEMENTS_COUNT, PAUSE_S = 5, 20, 0.2
# Message types of mysqlx.proto.
SET_CAPABILITIES, CLOSE, AUTHENTICATE, CLOSE_SESSION, EXECUTE = 2, 3, 4, 7, 12
OK, ERROR, AUTHENTICATED, EXECUTED = 0, 1, 4, 17


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A protobuf message of small integers, texts and messages."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += bytes((number << 3, value))
            continue
        content = value.encode() if isinstance(value, str) else value
        out += bytes((number << 3 | 2, len(content)))
        out += content
    return bytes(out)


class Client:
    """One connection, authenticated over TLS."""

    def __init__(self, port: int, password: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        true = message((1, 1), (2, message((1, 7), (8, 1))))
        capability = message((1, message((1, "tls"), (2, true))))
        self.ask(SET_CAPABILITIES, message((1, capability)), OK)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = context.wrap_socket(self._socket)
        who = message((1, "PLAIN"), (2, f"\0{USER_TLS}\0{password}"))
        self.ask(AUTHENTICATE, who, AUTHENTICATED)

    def ask(self, kind: int, content: bytes, wanted: int) -> None:
        """Send a message, and read up to the answer that is wanted."""
        self._socket.sendall(struct.pack("<IB", len(content) + 1, kind) + content)
        while True:
            length, answer = struct.unpack("<IB", self._receive(5))
            said = self._receive(length - 1)
            assert answer != ERROR, said
            if answer == wanted:
                return

    def _receive(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            part = self._socket.recv(count - len(got))
            assert part, "the server hung up"
            got += part
        return got

    def close(self) -> None:
        """Say goodbye, and hang up."""
        self.ask(CLOSE_SESSION, b"", OK)
        self._socket.close()


def use(server: PrivateServer, port: int) -> None:
    """Some connections with some statements and a pause in each."""
    text = server.option_file(USER_TLS).read_text()
    password = dict(line.split("=", 1) for line in text.split())["mysql-password"]
    for _ in range(CONNECTIONS_COUNT):
        client = Client(port, password)
        for _ in range(STATEMENTS_COUNT):
            client.ask(EXECUTE, message((3, "sql"), (1, "SELECT REPEAT('x', 3000)")), EXECUTED)
        time.sleep(PAUSE_S)
        client.close()


def x_options(port: int) -> tuple[str, ...]:
    """Lines of an option file that open the protocol's port."""
    return ("mysqlx = ON", f"mysqlx_port = {port}", "mysqlx_bind_address = 127.0.0.1")


@pytest.mark.alone
@pytest.mark.parametrize("level", [Level.RECORD, Level.FLOW], ids=["record", "flow"])
@pytest.mark.parametrize("name", SERVERS)
def test_x_workers_have_roles_and_phases(
    name: str, level: Level, lab_directory: Path, tmp_path: Path
) -> None:
    if level == Level.FLOW and not HOST.socket_events:
        pytest.skip("this kernel lacks events of sockets")
    path, port = tmp_path / "capture", free_port()
    with (
        open_server(find_kind(name), ServerRequest(options=x_options(port))) as server,
        Recorder(Request(server.pid, path, level=level)) as recorder,
    ):
        use(server, port)
        recorder.poll(0.5)
    with CaptureReader.open(path) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        mine = ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows)["x_plugin"]
        handshakes = list(reader.rows(Handshake))
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
        ended: Counter[str] = Counter()
        for row in reader.rows(PhaseCount):
            ended[row.phase] += row.ended_count
        closure = close(load(reader))
    assert [entry.outcome for entry in handshakes] == ["success"] * CONNECTIONS_COUNT
    assert ended["connect"] == CONNECTIONS_COUNT
    # At level flow the message that closes a session is a command: it has an answer.
    messages_count = STATEMENTS_COUNT + (level == Level.FLOW)
    assert ended["command"] == CONNECTIONS_COUNT * messages_count
    assert mine["idle", "blocked_network"] > 0.9e9 * PAUSE_S * CONNECTIONS_COUNT
    assert mine["command", "on_cpu"] > 0
    assert mine.get(("command", "blocked_network"), 0) == 0
    records = {phase for phase, state in mine if state == "on_cpu"} & {
        "record_read",
        "record_write",
    }
    assert records == (set() if level == Level.FLOW else {"record_read", "record_write"})
    assert not losses & {"healed", "unmatched_exit"}
    assert closure.ok, closure


@pytest.mark.timing
@pytest.mark.skipif(not HOST.socket_events, reason="this kernel lacks events of sockets")
@pytest.mark.parametrize("name", SERVERS)
def test_both_levels_see_the_same_of_a_run(name: str, lab_directory: Path) -> None:
    port = free_port()
    with (
        open_server(find_kind(name), ServerRequest(options=x_options(port))) as server,
        watched(server.pid, {"x_plugin"}) as observe,
    ):
        both = observe(lambda: use(server, port))
    both.record.counts["command"] += CONNECTIONS_COUNT  # closing a session
    assert both.flow.told == both.record.told
    assert both.flow.latencies["command"].total() == both.flow.counts["command"]
    assert both.flow.handshakes_count == both.record.handshakes_count == CONNECTIONS_COUNT
    assert not {"healed", "unmatched_exit", "phase_stack_overflow"} & both.flow.losses.keys()
    assert both.differences() == {}
