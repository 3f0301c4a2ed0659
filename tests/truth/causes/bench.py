# SPDX-License-Identifier: GPL-2.0-only
"""A real server under a real load, recorded by tlstax: what every injected cause is made of.

Server, clients and whatever stands between run ahead of everything else on the host (autogroup and
nice), so that a busy test machine is not the cause that is found.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tlstax.certs.generate import Certificates, KeyKind, generate
from tlstax.collectors.recording.by_recorder.recording import StaticRecording
from tlstax.collectors.recording.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.status import ServerStatus
from tlstax.workloads.drivers.sysbench import Caller, Sysbench
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.resources import Resources
from tlstax.workloads.results import Arm
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import SEARCH_PATH, Binaries, find_program
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.transports import make_transport
from tlstax.workloads.transports.namespaces import new_namespace

WINDOW_S = 0.5
SAMPLE_HZ = 499
SETTLE_S = 0.4
"""From the clients' start to the recording, so that it sees the load and not its beginning."""
AHEAD = -19
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Injection:
    """One load with one cause in it."""

    script: str = "oltp_point_select"
    """Of sysbench, or of this directory."""
    sysbench: tuple[str, ...] = ()
    threads: int = 2
    seconds: float = 4.0
    tls: bool = True
    server_key: str = "ec:p256"
    client_key: str = "ec:p256"
    kind: str = "mariadb"
    options: tuple[str, ...] = ()
    """Further lines of the server's option file."""
    rtt_ms: float = 0.0
    """Round trip between clients and server, which are in network namespaces of their own then."""
    split_bytes: int = 0
    """What clients send goes on in two parts, the first of so many bytes, by splitter.py."""
    stranger: str = ""
    """Another client that finishes no handshake: untrusting or leaving, see stranger.py."""
    record_client: bool = False
    big_ca: int = 0
    """How many times the host's CA certificates stand before the right one in the clients' file."""
    busy_loops: int = 0
    """Programs that compete with the server for its one CPU."""
    locked: tuple[float, float] | None = None
    """Seconds for which another session locks the table, and then does not, again and again."""
    functions: tuple[str, ...] = ()
    rows: int = 1000
    budget: float | None = None
    """Limit of the overhead, as `attach` has one by default; None: the ledger is always kept."""


def record(injection: Injection, capture: Path, directory: Path) -> None:
    """Start all of it, record for a while, end all of it."""
    with ExitStack() as stack:
        server, endpoint = stack.enter_context(_reachable(injection, directory))
        _ahead(server.pid)
        if injection.kind == "mariadb":
            caller = Caller.of_account(server.account(), endpoint, "plaintext")
            Sysbench(lambda _: caller, table_rows=injection.rows).prepare()
        if injection.split_bytes:
            port = stack.enter_context(_splitting(injection.split_bytes, server.port))
            endpoint = replace(endpoint, port=port)
        if injection.busy_loops:
            stack.enter_context(_starved(server.pid, injection.busy_loops))
        if injection.locked:
            stack.enter_context(_locking(server, *injection.locked))
        if injection.stranger:
            stack.enter_context(_ready("stranger.py", server.port, injection.stranger))
        client = stack.enter_context(_load(injection, server, endpoint))
        time.sleep(SETTLE_S)
        sources = SourceSet([ServerStatus(option_file=server.directory.client / "status.cnf")])
        request = Request(
            server.pid, capture, window_s=WINDOW_S, sample_hz=SAMPLE_HZ, sources=sources,
            clients=(client.pid,) if injection.record_client else (),
            functions=injection.functions, overwrite=True, budget=injection.budget,
        )  # fmt: skip
        stack.enter_context(_ahead_ourselves())
        with (Recorder if injection.record_client else StaticRecording)(request) as recorder:
            recorder.poll(injection.seconds)
            assert client.poll() is None, "the load ended before the recording"


# ---- server and accounts ----


@contextmanager
def _reachable(injection: Injection, directory: Path) -> Iterator[tuple[PrivateServer, Endpoint]]:
    """The server, and where its clients connect: here, or at the other end of a delay line."""
    if not injection.rtt_ms:
        with _server(injection, directory, None) as server:
            yield server, Endpoint("127.0.0.1", server.port)
        return
    with (
        Resources() as resources,
        new_namespace(resources, "server") as namespace,
        _server(injection, directory, namespace) as server,
        make_transport("wan", resources, {"rtt_ms": injection.rtt_ms}).open(server) as route,
    ):
        yield server, route.endpoint


def _server(injection: Injection, directory: Path, namespace: str | None) -> PrivateServer:
    request = ServerRequest(certificates=_certificates(injection, directory), namespace=namespace)
    options = injection.options
    if injection.kind != "mariadb":
        request = ServerRequest(key=KeyKind.parse("rsa:2048"))
    return open_server(find_kind(injection.kind), replace(request, options=options))


def _certificates(injection: Injection, directory: Path) -> Certificates:
    """Server and client with keys of their own kinds, each known to the other."""
    server = generate(directory / "of-server", KeyKind.parse(injection.server_key))
    client = generate(directory / "of-client", KeyKind.parse(injection.client_key))
    both = server.ca.read_bytes() + client.ca.read_bytes()
    known, known_to_client = directory / "ca.pem", directory / "cacert.pem"
    known.write_bytes(both)
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    strangers = bundle.read_bytes() * injection.big_ca if injection.big_ca else b""
    known_to_client.write_bytes(strangers + both)
    return replace(
        server,
        ca=known,
        sysbench_ca=known_to_client,
        client=client.client,
        client_key=client.client_key,
    )


def _administrator(server: PrivateServer) -> StatusSession:
    return StatusSession(Binaries.find().client, server.directory.client / "administrator.cnf")


def _ahead(pid: int) -> None:
    """Let a process, and all that it will start, run before others; where the host allows it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(AHEAD))
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), AHEAD)


@contextmanager
def _ahead_ourselves() -> Iterator[None]:
    """The recorder too: it shares two CPUs with what it records, and must cut its windows."""
    group = Path("/proc/self/autogroup")
    before = group.read_text().rpartition("nice ")[2].strip() if group.exists() else "0"
    _ahead(os.getpid())
    try:
        yield
    finally:
        with suppress(OSError):
            group.write_text(before)
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), 0)


@contextmanager
def _started(command: Sequence[str], **how: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A program in a session of its own, for as long as the context."""
    process = subprocess.Popen(command, start_new_session=True, **how)  # type: ignore[call-overload]
    try:
        _ahead(process.pid)
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


# ---- load, and what is in its way ----


@contextmanager
def _load(
    injection: Injection, server: PrivateServer, endpoint: Endpoint
) -> Iterator["subprocess.Popen[bytes]"]:
    """sysbench, for longer than it is recorded."""
    arm: Arm = "tls" if injection.tls else "plaintext"
    caller = Caller.of_account(server.account(), endpoint, arm)
    script = HERE / f"{injection.script}.lua"
    command = [
        *caller.prefix,
        str(find_program("sysbench", "sysbench")), f"--config-file={caller.option_file}",
        f"--threads={injection.threads}", "--events=0", "--time=120", "--mysql-ignore-errors=all",
        *([] if script.exists() else ["--tables=1", f"--table-size={injection.rows}"]),
        *injection.sysbench,
        str(script) if script.exists() else injection.script, "run",
    ]  # fmt: skip
    environment = {"PATH": os.defpath, "LC_ALL": "C"} | dict(caller.environment)
    with (
        (server.client_directory / "load.log").open("wb") as log,
        _started(command, cwd=server.client_directory, env=environment, stdout=log,
                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process,
    ):  # fmt: skip
        time.sleep(SETTLE_S)
        if process.poll() is not None:
            raise AssertionError((server.client_directory / "load.log").read_text()[-2000:])
        yield process


@contextmanager
def _splitting(first_bytes: int, server_port: int) -> Iterator[int]:
    """splitter.py in front of the server; the port that clients connect to."""
    port = free_port()
    with _ready("splitter.py", port, server_port, first_bytes):
        yield port


@contextmanager
def _ready(name: str, *arguments: object) -> Iterator[None]:
    """A program of this directory that has said that it is ready."""
    command = ["python3", "-I", str(HERE / name), *map(str, arguments)]
    with _started(command, env={"PATH": SEARCH_PATH}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield


@contextmanager
def _starved(pid: int, count: int) -> Iterator[None]:
    """The server on one CPU, which it shares with programs that never wait.

    All of them in the server's own session, so that the scheduler weighs them one by one.
    """
    cpu = min(os.sched_getaffinity(0))
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpu})
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(_started(["sh", "-c", "while :; do :; done"]))
            os.sched_setaffinity(process.pid, {cpu})
        yield


@contextmanager
def _locking(server: PrivateServer, held_s: float, free_s: float) -> Iterator[None]:
    """Another session that locks the table for writing again and again."""
    over = threading.Event()

    def work() -> None:
        with _administrator(server) as session:
            while not over.is_set():
                session.query(f"LOCK TABLES {configuration.DATABASE}.sbtest1 WRITE")
                over.wait(held_s)
                session.query("UNLOCK TABLES")
                over.wait(free_s)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
