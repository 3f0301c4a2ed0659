# SPDX-License-Identifier: GPL-2.0-only
"""TLS libraries that no server of the lab has, from the Python packages that bundle them.

OpenSSL 1.1.1 (shared, stripped) as a server, BoringSSL (linked in, with its symbols) as a client.
The packages are fetched by pip with their hashes; nothing of them is installed.
"""

import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tlstax.certs.generate import Certificates, KeyKind, generate
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Loss, Target
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes", "btf")]

# Package, version, what pip is told of the interpreter that the wheel is for, SHA-256.
WITH_OPENSSL11 = (
    ("psycopg2-binary", "2.9.3", "38"),
    "280b0bb5cbfe8039205c7981cceb006156a675362a00fe29b16fbc264e242834",
)
WITH_BORINGSSL = (
    ("curl_cffi", "0.16.3", "311"),
    "a875a661e2f9a949be29454880bbb9553307a487c4c08819738298cf5c1622e2",
)
ITS_AUTHORITIES = (
    ("certifi", "2026.10.18", "311"),
    "73191c47aaa79da394e8fee2dbc2ec827432cab56311122c9e47abf79e390f62",
)
CONNECTIONS_COUNT = 23
RSA_2048_NS_MIN = 100_000
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def fetch(wheel: tuple[tuple[str, str, str], str], directory: Path) -> Path:
    """Unpack a wheel below `directory`."""
    (package, version, python), digest = wheel
    needed = directory / f"{package}.txt"
    needed.write_text(f"{package}=={version} --hash=sha256:{digest}\n")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
    pip += ["--only-binary=:all:", f"--python-version={python}", "-d", str(directory)]
    for tag in ("manylinux2014_x86_64", "manylinux_2_17_x86_64"):
        pip.append(f"--platform={tag}")
    subprocess.run([*pip, "-r", str(needed)], check=True)
    (archive,) = directory.glob(f"{package.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(archive) as file:
        file.extractall(directory / "unpacked")
    return directory / "unpacked"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """RSA with 2048 bits."""
    return generate(tmp_path_factory.mktemp("certificates") / "made", KeyKind("rsa", "2048"))


@contextmanager
def running(*command: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python program with pipes, killed at the end."""
    program = [sys.executable, *command]
    environ = os.environ | environment
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, env=environ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    """The next line that a program prints."""
    assert process.stdout
    return process.stdout.readline().strip()


def echo(context: ssl.SSLContext, port: int) -> None:
    """One connection and one message."""
    plain = socket.create_connection(("127.0.0.1", port))
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
        connection.sendall(b"echo")
        assert connection.recv(10) == b"echo"


def test_openssl_11_is_counted_named_and_timed(
    certificates: Certificates,
    repository: Path,
    tmp_path: Path,
    real_losses: Callable[..., dict[str, int]],
) -> None:
    libraries = fetch(WITH_OPENSSL11, tmp_path) / "psycopg2_binary.libs"
    objects = [str(next(libraries.glob(pattern))) for pattern in ("libcrypto-*", "libssl-*")]
    program = str(repository / "tests/testprogs/openssl11_server.py")
    keys = (str(certificates.server), str(certificates.server_key))
    context = ssl.create_default_context(cafile=str(certificates.ca))
    capture = tmp_path / "openssl11.tlstax"
    with running(program, *objects, *keys) as server:
        port = int(line(server))
        assert not plan_in_child(server.pid)[1].missing
        with Recorder(Request(server.pid, capture)) as recorder:
            for number in range(CONNECTIONS_COUNT):
                context.maximum_version = VERSIONS[number % 2]
                echo(context, port)
            recorder.poll(0.3)
    with CaptureReader.open(capture) as reader:
        (target,) = reader.rows(Target)
        handshakes = list(reader.rows(Handshake))
        assert not real_losses({loss.kind: loss.lost_count for loss in reader.rows(Loss)})
    assert (target.tls_library, target.tls_version) == ("OpenSSL", "1.1.1l")
    assert len(handshakes) == CONNECTIONS_COUNT
    seen = {(entry.outcome, entry.tls_version, entry.resumed) for entry in handshakes}
    assert seen == {("success", "TLSv1.2", 0), ("success", "TLSv1.3", 0)}
    assert all(entry.cipher != "unknown" for entry in handshakes)
    assert all(entry.sign_ns > RSA_2048_NS_MIN for entry in handshakes)
    assert all(entry.keygen_ns and entry.derive_ns for entry in handshakes)


class Answer(http.server.BaseHTTPRequestHandler):
    """Says that all is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *unused: object) -> None:
        """Be quiet."""


@pytest.fixture
def https_port(certificates: Certificates) -> Iterator[int]:
    """A server for BoringSSL to talk to, on this interpreter's OpenSSL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_boringssl_is_recognised_and_its_boundaries_hold(
    certificates: Certificates, https_port: int, repository: Path, tmp_path: Path
) -> None:
    site = fetch(WITH_BORINGSSL, tmp_path)
    fetch(ITS_AUTHORITIES, tmp_path)
    program = str(repository / "tests/testprogs/boringssl_client.py")
    arguments = (str(https_port), str(CONNECTIONS_COUNT), str(certificates.ca))
    capture = tmp_path / "boringssl.tlstax"
    with running(program, *arguments, PYTHONPATH=str(site)) as client:
        assert line(client) == "ready"
        _, plan = plan_in_child(client.pid)
        # What does not hold is said: this compiler made SSL_want more than loads.
        assert [missing.boundary for missing in plan.missing] == ["ssl_rwstate"]
        with Recorder(Request(client.pid, capture)) as recorder:
            assert client.stdin
            client.stdin.write("go\n")
            client.stdin.flush()
            recorder.poll(3.0)
            assert line(client) == "done"
    with CaptureReader.open(capture) as reader:
        (target,) = reader.rows(Target)
        handshakes = list(reader.rows(Handshake))
    assert target.tls_library == "BoringSSL/AWS-LC"
    assert len(handshakes) == CONNECTIONS_COUNT
    assert {entry.outcome for entry in handshakes} == {"success"}
    for entry in handshakes:
        assert all((entry.keygen_ns, entry.derive_ns, entry.verify_ns, entry.certificate_ns))
