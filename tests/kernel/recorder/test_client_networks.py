# SPDX-License-Identifier: GPL-2.0-only
"""From which networks handshakes came: no bit more than was asked for, and none unless asked."""

import ipaddress
import json
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tlstax.certs.generate import KeyKind, generate
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.recording.handshake_rows import handshake_row
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.probes.model import Level
from tlstax.tests.kernel.recorder_runs import OK, PROGRAM, USAGE, await_attached

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SERVER: Final = """
import json, select, socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:3])
both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
plain = socket.create_server(("0.0.0.0", 0))
local = socket.socket(socket.AF_UNIX)
local.bind(sys.argv[3])
local.listen()
sockets = both, plain, local
print(json.dumps([both.getsockname()[1], plain.getsockname()[1]]), flush=True)
while True:
    for listener in select.select(sockets, [], [])[0]:
        with listener.accept()[0] as accepted:
            try:
                with context.wrap_socket(accepted, server_side=True) as session:
                    session.recv(1)
            except OSError:
                pass
"""
PATIENCE_S: Final = 30
ADDRESSES: Final = ("127.77.1.99", "127.77.2.98", "127.78.1.97")
Records = list[tuple[str, bool]]
"""Network, and whether the handshake was successful."""


class Server:
    """A TLS server of each family; sockets for both answer IPv4 with mapped addresses."""

    def __init__(self, folder: Path) -> None:
        files = generate(folder, KeyKind.parse("ec:p256"))
        self._context = ssl.create_default_context(cafile=str(files.ca))
        self._context.check_hostname = False
        self._local = folder / "socket"
        command = ["/usr/bin/python3", "-c", SERVER]
        command += [str(files.server), str(files.server_key), str(self._local)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self._both, self._plain = json.loads(self.process.stdout.readline())

    def visit(self) -> None:
        """A handshake from each address, by each kind of socket; the last client is refused."""
        for address in ADDRESSES:
            for port in (self._both, self._plain):
                self._handshake(socket.create_connection(("127.0.0.1", port), 10, (address, 0)))
        self._handshake(socket.create_connection(("::1", self._both), 10))
        local = socket.socket(socket.AF_UNIX)
        local.connect(str(self._local))
        self._handshake(local)
        broken = socket.create_connection(("127.0.0.1", self._plain), 10, (ADDRESSES[0], 0))
        broken.sendall(b"this is no client hello")
        with suppress(ConnectionResetError):
            broken.recv(100)
        broken.close()

    def _handshake(self, connection: socket.socket) -> None:
        with self._context.wrap_socket(connection) as session:
            session.send(b"x")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.fixture
def record_visit(server: Server, tmp_path: Path) -> Callable[..., bytes]:
    """The stream of a recorder with these options, attached before the clients came."""

    def run(level: Level, *options: str, networks: bool = True) -> bytes:
        plan, stream = tmp_path / "a.plan", tmp_path / "a.stream"
        target, planned = plan_in_child(server.process.pid, level, networks=networks)
        plan.write_text(plan_file_text(target, planned, Safety()))
        command = [str(PROGRAM), "--plan", str(plan), "--pid", str(server.process.pid)]
        command += ["--output", str(stream), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as recorder:
            try:
                await_attached(recorder)
                server.visit()
            finally:
                recorder.terminate()
            assert recorder.wait(PATIENCE_S) == OK
        return stream.read_bytes()

    return run


def networks_of(stream: bytes, folder: Path) -> Records:
    path = folder / "read.stream"
    path.write_bytes(stream)
    found: Records = []
    with path.open("rb") as file:
        replay = Replay(file)
        while replay.next_window():
            for record in replay.handshake_records():
                row = handshake_row(1, 1, record, replay.network_bits)
                found.append((row.client_network, row.outcome == "success"))
    return found


@pytest.mark.parametrize("level", ["handshake", "flow", "record"])
def test_each_family_is_told(
    record_visit: Callable[..., bytes], tmp_path: Path, level: str
) -> None:
    stream = record_visit(Level[level.upper()], "--client-networks", "16,128")
    found = Counter(networks_of(stream, tmp_path))
    assert found == {
        ("127.77.0.0/16", True): 4,
        ("127.78.0.0/16", True): 2,
        ("::1/128", True): 1,
        ("unix", True): 1,
        ("127.77.0.0/16", False): 1,
    }
    for address in ADDRESSES:
        assert ipaddress.ip_address(address).packed not in stream, "all bits of an address"


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        ("32,1", {*(f"{address}/32" for address in ADDRESSES), "::/1", "unix"}),
        ("8,64", {"127.0.0.0/8", "::/64", "unix"}),
        ("1,127", {"0.0.0.0/1", "::/127", "unix"}),
        ("15,128", {"127.76.0.0/15", "127.78.0.0/15", "::1/128", "unix"}),
    ],
)
def test_as_many_bits_as_asked_for(
    record_visit: Callable[..., bytes], tmp_path: Path, bits: str, expected: set[str]
) -> None:
    stream = record_visit(Level.HANDSHAKE, "--client-networks", bits)
    assert {network for network, _ in networks_of(stream, tmp_path)} == expected


@pytest.mark.parametrize("networks", [False, True])
def test_no_address_unless_asked_for(
    record_visit: Callable[..., bytes], tmp_path: Path, networks: bool
) -> None:
    """Also where the plan has the probe that would tell them."""
    stream = record_visit(Level.FLOW, networks=networks)
    found = networks_of(stream, tmp_path)
    assert len(found) == 9
    assert {network for network, _ in found} == {""}
    for address in ADDRESSES:
        packed = ipaddress.ip_address(address).packed
        assert packed not in stream
        assert packed[:3] + b"\0" not in stream


def test_without_the_probe_networks_are_unknown(
    record_visit: Callable[..., bytes], tmp_path: Path
) -> None:
    stream = record_visit(Level.FLOW, "--client-networks", "24,48", networks=False)
    assert {network for network, _ in networks_of(stream, tmp_path)} == {"unknown"}


@pytest.mark.parametrize("text", ["24", "0,48", "33,48", "24,129", "24,0", "24,", "x", "24,48,1"])
def test_other_lengths_are_refused(text: str) -> None:
    command = [str(PROGRAM), "--plan", "x", "--pid", "1", "--client-networks", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "is out of range or unknown" in done.stderr) == (USAGE, True)
