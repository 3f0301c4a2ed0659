# SPDX-License-Identifier: GPL-2.0-only
"""Which clients never resume: asked of the rollups of a watch, of a real server."""

import ipaddress
import json
import socket
import ssl
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake
from tlstax.tests.e2e.recording.watch_runs import WatchRun, copied_server, rows_of, server_of
from tlstax.tests.testprogs.waiting_client import BYTES, REQUEST, packet
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

RESUMES: Final = "127.90.1.7"
NEVER: Final = "127.91.1.9"
COUNT: Final = 25
"""More than the least number that a share needs."""
QUERY: Final = (
    "SELECT network FROM client_net GROUP BY network "
    "HAVING SUM(resumed_count) = 0 AND SUM(full_count) >= 20"
)


class Client:
    """Connects from an address, keeps its session or not, and does not log in."""

    def __init__(self, server: PrivateServer, address: str, *, keeps: bool) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._context.maximum_version = ssl.TLSVersion.TLSv1_2  # the ticket comes in the handshake
        self._from, self._to = (address, 0), ("127.0.0.1", server.port)
        self._session: ssl.SSLSession | None = None
        self._keeps = keeps

    def visit(self) -> bool:
        """One connection; whether it was resumed."""
        with socket.create_connection(self._to, 10, self._from) as connection:
            assert connection.recv(BYTES)
            connection.sendall(packet(1, REQUEST))
            with self._context.wrap_socket(connection, session=self._session) as session:
                session.sendall(packet(2, REQUEST + b"nobody\0\0"))
                session.recv(BYTES)
                if self._keeps:
                    self._session = session.session
                return bool(session.session_reused)


def visits(server: PrivateServer) -> tuple[int, int]:
    """So many connections from each address; how many of each were resumed."""
    clients = Client(server, RESUMES, keeps=True), Client(server, NEVER, keeps=False)
    resumed = [sum(client.visit() for _ in range(COUNT)) for client in clients]
    return resumed[0], resumed[1]


def watched(folder: Path, data: Path, *options: str) -> tuple[int, int]:
    """Watch a server while the clients come."""
    program = copied_server(folder, f"tlstax-{folder.name[-6:]}")
    with server_of(program) as server:
        watch = WatchRun(data.parent / "said", data, "--pid", str(server.pid), *options)
        watch.await_said("recording process")
        resumed = visits(server)
        assert watch.end() == 0, watch.said
    program.unlink()
    return resumed


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["fleet", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def test_which_clients_never_resume(
    lab_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    resumed, never = watched(lab_directory, data, "--client-networks", "16")
    assert (resumed, never) == (COUNT - 1, 0), "the server does not resume"
    found = {row["network"]: row for row in rows_of(data, columns.ClientNet)}
    mine = found["127.90.0.0/16"]
    assert (mine["connection_count"], mine["resumed_count"]) == (COUNT, COUNT - 1)
    other = found["127.91.0.0/16"]
    assert (other["full_count"], other["resumed_count"]) == (COUNT, 0)
    place = "--data", str(data)
    assert answer(capsys, "sql", QUERY, *place) == [{"network": "127.91.0.0/16"}]
    lines = answer(capsys, "explain", "db1", *place)["networks"]
    assert [line["network"] for line in lines if line["never_resumes"]] == ["127.91.0.0/16"]
    (raw,) = data.glob("raw/db1/*.tlstax")
    added = tmp_path / "added"
    assert main(["fleet", "add", str(raw), "--data", str(added), "--host", "db2"]) == 0
    capsys.readouterr()
    assert answer(capsys, "sql", QUERY, "--data", str(added)) == [{"network": "127.91.0.0/16"}]
    for address in (RESUMES, NEVER):
        assert_nowhere(data, address)


def assert_nowhere(data: Path, address: str) -> None:
    """Neither as text nor as bytes, in no order, in no file."""
    packed = ipaddress.ip_address(address).packed
    needles = address.encode(), packed, packed[::-1]
    for path in [path for path in data.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        assert not [one for one in needles if one in content], path


def test_no_address_is_kept_unless_asked_for(lab_directory: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    watched(lab_directory, data)
    assert rows_of(data, columns.ClientNet) == []
    (raw,) = data.glob("raw/db1/*.tlstax")
    with CaptureReader.open(raw) as reader:
        kept = [row.client_network for row in reader.rows(Handshake)]
    assert len(kept) >= 2 * COUNT
    assert set(kept) == {""}
    for address in (RESUMES, NEVER):
        assert_nowhere(data, address)
        assert_nowhere(data, address.rpartition(".")[0] + ".0")
