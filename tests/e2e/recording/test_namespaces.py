# SPDX-License-Identifier: GPL-2.0-only
"""A real server in a chroot, with mount, pid and user namespaces of its own, by its host pid."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tlstax.certs.generate import KeyKind, generate
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame, Handshake, Probe, Target, Thread
from tlstax.workloads.servers.programs import Binaries
from tlstax.workloads.servers.server_directory import free_port

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

PATIENCE_S = 120.0
CONNECTS = 8
OWN_MOUNTS_AND_PIDS = ("--mount", "--pid", "--fork", "--kill-child")
OWN_USERS = ("--user", "--map-root-user", *OWN_MOUNTS_AND_PIDS)


@dataclass(frozen=True)
class Jailed:
    """A running server that sees `root` as its root directory."""

    root: Path
    pid: int  # on the host
    port: int
    libssl: str  # path in the root
    build_id: str  # of that libssl, which no file of the host has


@pytest.mark.parametrize("namespaces", [(), OWN_MOUNTS_AND_PIDS, OWN_USERS])
def test_a_server_in_a_place_of_its_own(lab_directory: Path, namespaces: tuple[str, ...]) -> None:
    capture = lab_directory / "a.tlstax"
    try:
        with jailed(lab_directory / "root", namespaces) as server:
            threads = _record(server, capture)
            _check_capture(server, capture, threads, own_pid=1 if namespaces else server.pid)
        assert str(lab_directory) not in Path("/proc/self/mountinfo").read_text()
    finally:
        capture.unlink(missing_ok=True)


def _record(server: Jailed, capture: Path) -> set[int]:
    """Attach, connect CONNECTS times over TLS; the host's ids of the server's threads."""
    command = [sys.executable, "-m", "tlstax", "attach", str(server.pid), "-o", str(capture)]
    with subprocess.Popen(
        [*command, "--quiet", "--sample-hz", "999", "--window", "200ms"],
        stderr=subprocess.PIPE,
        text=True,
    ) as recorder:
        assert recorder.stderr is not None
        line = recorder.stderr.readline()
        assert "attached to" in line, line + recorder.stderr.read()
        before = _accepts(server)
        for _ in range(CONNECTS):
            _query(server, "SELECT BENCHMARK(200000, SHA2('tlstax', 512))")
        assert _accepts(server) - before == CONNECTS + 1
        threads = {int(entry.name) for entry in Path(f"/proc/{server.pid}/task").iterdir()}
        recorder.terminate()
        _, errors = recorder.communicate(timeout=60)
        assert recorder.returncode == 0, errors
    return threads


def _check_capture(server: Jailed, capture: Path, threads: set[int], own_pid: int) -> None:
    with CaptureReader.open(capture) as reader:
        (target,) = reader.rows(Target)
        shakes = list(reader.rows(Handshake))
        probed = {row.object: row.build_id for row in reader.rows(Probe) if row.hits_count}
        seen = {row.tid for row in reader.rows(Thread)}
        frames = list(reader.rows(Frame))
    assert (target.pid, target.own_pid) == (server.pid, own_pid)
    assert target.exe == str(Binaries.find().server), "as the server calls it"
    assert len(shakes) == CONNECTS + 2, "the queries, and the counter read before and after them"
    assert {shake.outcome for shake in shakes} == {"success"}
    assert {shake.tls_version for shake in shakes} == {"TLSv1.3"}
    assert probed[server.libssl] == server.build_id
    assert threads <= seen, "threads go by their ids on the host"
    _check_names(server, frames)
    report = subprocess.run(
        [sys.executable, "-m", "tlstax", "report", str(capture)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    if own_pid != server.pid:
        assert f"{server.pid} ({own_pid} in its own namespace)" in re.sub(r"\s+", " ", report)


def _check_names(server: Jailed, frames: list[Frame]) -> None:
    """Names of libcrypto's functions, beside what the file in the server's root says itself."""
    library = next(path for path in server.root.rglob("libcrypto.so*") if path.is_file())
    inside = f"/{library.relative_to(server.root)}"
    named = [frame for frame in frames if (frame.object, frame.source) == (inside, "dynsym")]
    with Elf(library) as elf:
        functions = {symbol.name: symbol for symbol in elf.find(re.compile(r"\w+"))}
        for frame in named:
            if frame.symbol.endswith("@plt"):
                continue
            symbol, address = functions[frame.symbol], elf.to_address(frame.offset_bytes)
            assert address == symbol.address + frame.symbol_offset_bytes
            assert frame.symbol_offset_bytes < symbol.size
    assert named, "nothing of libcrypto was sampled"
    program = str(Binaries.find().server)
    assert any(frame.object == program and frame.source != "none" for frame in frames)


@contextmanager
def jailed(root: Path, namespaces: tuple[str, ...]) -> Iterator[Jailed]:
    """Make a root directory with the host's own MariaDB and run it there; nothing is left."""
    program = Binaries.find().server
    process: subprocess.Popen[bytes] | None = None
    port = free_port()
    log = root.with_name("server.log")
    try:
        libssl = _furnish(root, program)
        build_id = _rebuild(root / libssl.relative_to("/"))
        command = ["chroot", str(root), str(program), *_options(port)]
        if namespaces:  # the mounts go with the namespace
            script = f"mount -t proc proc {root}/proc && exec " + " ".join(command)
            command = ["unshare", *namespaces, "sh", "-c", script]
        with log.open("wb") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=stream)
        _await_ready(process, log)
        pid = _child(process.pid) if namespaces else process.pid
        yield Jailed(root, pid, port, str(libssl), build_id)
        os.kill(pid, signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        if process is not None:
            process.kill()  # with --kill-child, its child too
            process.wait()
        log.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)


def _furnish(root: Path, program: Path) -> Path:
    """Copy the server and all that it loads; the path of its libssl."""
    found = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    libraries = [Path(word) for word in found.split() if word.startswith("/")]
    messages = Path("/usr/share/mysql/english/errmsg.sys")
    for path in (program, messages, *libraries):
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in ("proc", "tmp", "var/lib/mysql", "etc/tls"):
        (root / name).mkdir(parents=True, exist_ok=True)
    generate(root / "etc/tls", KeyKind.parse("rsa:2048"))
    return next(path for path in libraries if path.name.startswith("libssl.so"))


def _rebuild(library: Path) -> str:
    """Give a library another build-id, so that it differs from the host's; the new one."""
    with Elf(library) as elf:
        build_id = bytes.fromhex(elf.build_id)
    other = bytes(byte ^ 0xFF for byte in build_id)
    library.write_bytes(library.read_bytes().replace(build_id, other))
    return other.hex()


def _options(port: int) -> list[str]:
    return [
        "--no-defaults",
        "--user=root",
        "--skip-grant-tables",
        "--datadir=/var/lib/mysql",
        "--tmpdir=/tmp",
        "--socket=/tmp/server.sock",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        "--ssl-ca=/etc/tls/ca.pem",
        "--ssl-cert=/etc/tls/server-cert.pem",
        "--ssl-key=/etc/tls/server-key.pem",
        "--innodb-buffer-pool-size=8M",
        "--innodb-log-file-size=4M",
    ]


def _await_ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while b"ready for connections" not in (text := log.read_bytes()):
        assert process.poll() is None, text.decode(errors="replace")
        assert time.monotonic() < deadline, text.decode(errors="replace")
        time.sleep(0.1)


def _child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _query(server: Jailed, statement: str) -> str:
    """Ask over a new TLS connection."""
    return subprocess.run(
        [
            Binaries.find().client,
            "--no-defaults",
            "--ssl",
            "--host=127.0.0.1",
            f"--port={server.port}",
            "--user=root",
            "-BNe",
            statement,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    ).stdout


def _accepts(server: Jailed) -> int:
    """Connections that the server itself counted as accepted over TLS, with this one."""
    return int(_query(server, "SHOW STATUS LIKE 'Ssl_accepts'").split()[1])
