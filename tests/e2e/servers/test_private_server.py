# SPDX-License-Identifier: GPL-2.0-only
"""A private server comes up by itself and leaves nothing behind, whatever ends it."""

import getpass
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import (
    ServerDirectory,
    ServerUser,
    process_start_ticks,
    server_directories,
)
from tlstax.workloads.tls import TlsChoice

PATIENCE_S = 120.0


pytestmark = pytest.mark.usefixtures("lab_directory")


def await_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def is_running(pid: int) -> bool:
    """A process that ended but was not yet collected by its parent does not run."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def tls_facts(server: PrivateServer) -> dict[str, str]:
    """What the stock client negotiates with the certificates of this server."""
    options = server.option_file(configuration.USER_TLS).read_text()
    password = re.search(r"^mysql-password=(\w+)$", options, re.MULTILINE)
    assert password
    client = server.client_directory
    own = client / "tls.cnf"
    own.touch(mode=0o600)
    own.write_text(
        f"[client]\nuser={configuration.USER_TLS}\npassword={password[1]}\n"
        f"host=127.0.0.1\nport={server.port}\nssl-ca={client}/cacert.pem\n"
        f"ssl-cert={client}/client-cert.pem\nssl-key={client}/client-key.pem\n"
        "ssl-verify-server-cert\n"
    )
    statement = "SHOW STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')"
    done = subprocess.run(
        ["mariadb", f"--defaults-file={own}", "-BNe", statement],
        env=dict(os.environ) | dict(server.client_environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "kind", ["rsa:1024", "rsa:2048", "rsa:4096", "ec:p256", "ec:p384", "ed25519"]
)
def test_a_real_server_and_client_accept_every_key_kind(kind: str) -> None:
    with PrivateServer(ServerRequest(key=KeyKind.parse(kind))) as server:
        assert tls_facts(server)["Ssl_version"] == "TLSv1.3"


@pytest.mark.parametrize(
    ("version", "cipher"),
    [("TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256"), ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256")],
)
def test_an_asked_version_and_cipher_is_what_clients_get(version: str, cipher: str) -> None:
    with PrivateServer(ServerRequest(tls=TlsChoice(version, cipher))) as server:
        assert tls_facts(server) == {"Ssl_version": version, "Ssl_cipher": cipher}


def test_it_is_private_and_tells_no_secret() -> None:
    with PrivateServer() as server:
        root = server.directory.root
        secrets = set(re.findall(r"[0-9a-f]{32}", _all_text(server.client_directory)))
        assert len(secrets) == 3
        for pid in (server.pid, os.getpid(), *server.directory.living().values()):
            command_line = Path(f"/proc/{pid}/cmdline").read_text()
            environment = Path(f"/proc/{pid}/environ").read_text()
            assert not any(secret in command_line + environment for secret in secrets)
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
        assert {modes[path] for path in modes if path.is_file()} == {0o600}
        assert {modes[path] for path in modes if path.is_dir()} == {0o700}
        assert stat.S_IMODE(root.stat().st_mode) & 0o007 == 0
        for path in (*server.client_directory.iterdir(), *server.directory.certificates.iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert (server.directory.server / "server-key.pem").stat().st_mode & 0o077 == 0
        assert not any(secret in server.directory.log.read_text() for secret in secrets)
        status = Path(f"/proc/{server.pid}/status").read_text()
        assert re.search(r"^Uid:\s+[1-9]", status, re.MULTILINE), "the server must not be root"
    assert not root.exists()
    assert not is_running(server.pid)


def _all_text(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.glob("*.cnf"))


def test_counters_are_read_without_tls_and_without_new_connections() -> None:
    with PrivateServer() as server, server.open_status() as status:
        # The administrator's session may still be ending.
        assert await_true(lambda: status.read()["Threads_connected"] == 1)
        before, after = status.read(), status.read()
        assert status.tls_cipher() == ""
        assert after.since(before, "Connections") == 0
        assert after.since(before, "Ssl_accepts") == 0
        assert after.since(before, "Questions") == 2
        assert after["Threads_connected"] == 1


Lab = tuple[subprocess.Popen[str], ServerDirectory, int]


@pytest.fixture
def start_lab(spawn: Callable[..., "subprocess.Popen[str]"]) -> Callable[[], Lab]:
    """Starts `tlstax lab server` in a process of its own: (process, directory, mariadbd's pid)."""

    def run() -> Lab:
        process = spawn(
            [sys.executable, "-m", "tlstax", "lab", "server"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout
        first = process.stdout.readline()
        found = re.match(r"mariadbd (\d+) listens on 127\.0\.0\.1:\d+", first)
        assert found, first
        (directory,) = [
            one for one in server_directories() if one.living().get("owner") == process.pid
        ]
        return process, directory, int(found[1])

    return run


def collect(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=PATIENCE_S)
    return process.returncode


@pytest.mark.parametrize(
    ("number", "exit_status"),
    [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_nothing_stays_when_tlstax_is_ended(
    start_lab: Callable[[], Lab], number: signal.Signals, exit_status: int
) -> None:
    process, directory, server_pid = start_lab()
    process.send_signal(number)
    assert collect(process) == exit_status
    assert await_true(lambda: not directory.root.exists())
    assert not is_running(server_pid)


@pytest.mark.parametrize(
    ("number", "exit_status"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_nothing_stays_when_a_run_is_cut_short(number: signal.Signals, exit_status: int) -> None:
    command = [sys.executable, "-m", "tlstax", "lab", "demo", "--unwatched", "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            while not process.stdout.readline().startswith("server "):
                assert process.poll() is None
            (directory,) = [
                one for one in server_directories() if one.living().get("owner") == process.pid
            ]
            belongings = directory.living()
            assert await_true(lambda: bool(drivers_of(directory)))
            process.send_signal(number)
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()  # else the test would wait for the end of the demo
    assert process.returncode == exit_status
    assert await_true(lambda: not directory.root.exists())
    assert not is_running(belongings["server"])
    assert await_true(lambda: not drivers_of(directory))


def drivers_of(directory: ServerDirectory) -> list[int]:
    """The sysbench processes that use an option file of this lab."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "sysbench" in words[0] and any(str(directory.root) in word for word in words):
            found.append(int(path.parent.name))
    return found


def test_clean_removes_what_a_killed_supervisor_leaves(start_lab: Callable[[], Lab]) -> None:
    process, directory, server_pid = start_lab()
    assert clean() == f"in use  {directory.root}\n"
    assert is_running(server_pid), "clean must leave a running lab alone"
    os.kill(directory.living()["supervisor"], signal.SIGKILL)
    assert await_true(lambda: not is_running(server_pid)), "the kernel ends it with its supervisor"
    process.kill()
    collect(process)
    assert directory.root.exists()
    assert clean() == f"removed {directory.root}\n"
    assert not directory.root.exists()
    assert clean().startswith("nothing to remove below ")


def clean() -> str:
    return subprocess.run(
        [sys.executable, "-m", "tlstax", "lab", "clean"], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has nothing to do with a server."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_clean_ends_a_server_that_is_still_there(bystander: "subprocess.Popen[bytes]") -> None:
    directory = ServerDirectory.create(ServerUser.choose())
    directory.write_state({"server": bystander.pid})
    assert clean() == f"removed {directory.root}\n"
    assert bystander.wait(timeout=PATIENCE_S) == -signal.SIGKILL


def test_clean_does_not_trust_a_pid_that_was_given_to_another_process(
    bystander: "subprocess.Popen[bytes]",
) -> None:
    directory = ServerDirectory.create(ServerUser.choose())
    ticks = process_start_ticks(bystander.pid)
    assert ticks is not None
    fact = {"pid": bystander.pid, "start_ticks": ticks - 1}
    directory.state.write_text(json.dumps({"server": fact}))
    assert clean() == f"removed {directory.root}\n"
    assert bystander.poll() is None


@pytest.mark.root
def test_clean_ignores_a_directory_that_somebody_else_made(lab_directory: Path) -> None:
    foreign = lab_directory / "tlstax-lab-foreign"
    foreign.mkdir()
    os.chown(foreign, 65534, -1)
    assert clean().startswith("nothing to remove below ")
    foreign.rmdir()


def test_a_busy_port_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(TlstaxError, match=f"port {port}: another process") as caught:
            PrivateServer(ServerRequest(port=port))
    assert caught.value.exit_code == ExitCode.HOST


def test_a_port_that_is_taken_at_the_last_moment_shows_the_servers_own_words() -> None:
    server = PrivateServer()
    with (
        socket.create_server(("127.0.0.1", server.port)),
        pytest.raises(TlstaxError, match="mariadbd ended; the end of its log") as caught,
    ):
        server.__enter__()
    assert "Address already in use" in str(caught.value)
    assert caught.value.exit_code == ExitCode.TARGET


def test_a_missing_program_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="apt-get install mariadb-server-core") as caught:
        Binaries.find(str(tmp_path))
    assert caught.value.exit_code == ExitCode.HOST


def test_a_broken_install_program_shows_its_words(tmp_path: Path) -> None:
    found = Binaries.find()
    broken = tmp_path / "install"
    for folder in (tmp_path, *tmp_path.parents):  # pytest keeps them from the server's user
        if folder.owner() == getpass.getuser() and folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    broken.write_text("#!/bin/sh\necho 'no space for tables' >&2\nexit 3\n")
    broken.chmod(0o755)
    server = PrivateServer(binaries=Binaries(found.server, broken, found.client))
    with pytest.raises(TlstaxError, match="cannot make a data directory") as caught:
        server.__enter__()
    assert "no space for tables" in str(caught.value)


def test_a_temporary_directory_with_a_long_name_is_refused(
    lab_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = lab_directory / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(TlstaxError, match="would exceed 107 bytes"):
        ServerDirectory.create(ServerUser.choose())
    long.rmdir()
