# SPDX-License-Identifier: GPL-2.0-only
"""What clients send besides one query after the other: each phase holds what it says.

The client is MariaDB Connector/C, called from here: no command line tool speaks all of this.
"""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tlstax.analysis.rows import ledger
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Loss, PhaseCount, Thread, Window
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.workloads.servers.configuration import DATABASE, USER_TLS
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.request import ServerRequest

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

POOL: Final = ("thread_handling = pool-of-threads", "thread_pool_size = 2")
# From mysql.h.
OPT_COMPRESS, OPT_LOCAL_INFILE = 1, 8
STMT_ATTR_CURSOR_TYPE, STMT_ATTR_PREFETCH_ROWS = 1, 2
CURSOR_TYPE_READ_ONLY, NO_DATA = 1, 100
CLIENT_LOCAL_FILES, CLIENT_MULTI_STATEMENTS = 1 << 7, 1 << 16
TIMES: Final = 40
ROWS_COUNT: Final = 20_000
PAUSE_S: Final = 0.5


class Connection:
    """A TLS connection to a private server."""

    def __init__(self, server: PrivateServer, *, compressed: bool = False) -> None:
        self._library = ctypes.CDLL("libmariadb.so.3")
        for name in ("mysql_init", "mysql_real_connect", "mysql_store_result", "mysql_stmt_init"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.mysql_error.restype = ctypes.c_char_p
        text = server.option_file(USER_TLS).read_text()
        self._password = dict(line.split("=", 1) for line in text.split())["mysql-password"]
        self._handle = ctypes.c_void_p(self._library.mysql_init(None))
        folder = server.client_directory
        names = ("client-key.pem", "client-cert.pem", "cacert.pem")
        files = [ctypes.c_char_p(str(folder / name).encode()) for name in names]
        self._library.mysql_ssl_set(self._handle, *files, None, None)
        if compressed:
            self._library.mysql_options(self._handle, OPT_COMPRESS, None)
        self._library.mysql_options(self._handle, OPT_LOCAL_INFILE, b"\1\0\0\0")
        to = (b"127.0.0.1", USER_TLS.encode(), self._password.encode(), DATABASE.encode())
        flags = ctypes.c_ulong(CLIENT_LOCAL_FILES | CLIENT_MULTI_STATEMENTS)
        self._check(not self._library.mysql_real_connect(
            self._handle, *map(ctypes.c_char_p, to), server.port, None, flags
        ))  # fmt: skip

    def _check(self, failed: object) -> None:
        assert not failed, self._library.mysql_error(self._handle)

    def query(self, text: str) -> int:
        """Send one or more statements at once; the number of their results."""
        self._check(self._library.mysql_query(self._handle, text.encode()))
        count = 0
        while True:
            result = self._library.mysql_store_result(self._handle)
            self._library.mysql_free_result(ctypes.c_void_p(result))
            count += 1
            if self._library.mysql_next_result(self._handle):
                return count

    def change_user(self) -> None:
        """Authenticate again on the same connection."""
        to = (USER_TLS, self._password, DATABASE)
        self._check(self._library.mysql_change_user(self._handle, *(t.encode() for t in to)))

    def execute_prepared(self, text: str, times: int) -> None:
        """COM_STMT_PREPARE, some COM_STMT_EXECUTE, COM_STMT_CLOSE."""
        statement = ctypes.c_void_p(self._library.mysql_stmt_init(self._handle))
        size = ctypes.c_ulong(len(text))
        self._check(self._library.mysql_stmt_prepare(statement, text.encode(), size))
        for _ in range(times):
            self._check(self._library.mysql_stmt_execute(statement))
            self._check(self._library.mysql_stmt_store_result(statement))
            self._library.mysql_stmt_free_result(statement)
        self._library.mysql_stmt_close(statement)

    def fetch_by_cursor(self, text: str, rows_at_once: int) -> int:
        """Open a cursor on the server and fetch all of its rows; how many there were.

        COM_STMT_PREPARE, COM_STMT_EXECUTE, COM_STMT_FETCH for some rows each, COM_STMT_CLOSE.
        """
        statement = ctypes.c_void_p(self._library.mysql_stmt_init(self._handle))
        for attribute, value in (
            (STMT_ATTR_CURSOR_TYPE, CURSOR_TYPE_READ_ONLY),
            (STMT_ATTR_PREFETCH_ROWS, rows_at_once),
        ):
            number = ctypes.byref(ctypes.c_ulong(value))
            self._check(self._library.mysql_stmt_attr_set(statement, attribute, number))
        size = ctypes.c_ulong(len(text))
        self._check(self._library.mysql_stmt_prepare(statement, text.encode(), size))
        self._check(self._library.mysql_stmt_execute(statement))
        count = 0
        while not (ended := self._library.mysql_stmt_fetch(statement)):
            count += 1
        assert ended == NO_DATA
        self._library.mysql_stmt_close(statement)
        return count

    def close(self) -> None:
        """Say goodbye."""
        self._library.mysql_close(self._handle)


@contextmanager
def connected(server: PrivateServer, *, compressed: bool = False) -> Iterator[Connection]:
    """A connection that is closed at the end."""
    connection = Connection(server, compressed=compressed)
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture(scope="module", params=[(), POOL], ids=["thread", "pool"])
def server(request: pytest.FixtureRequest) -> Iterator[PrivateServer]:
    """One thread for each connection, or a pool."""
    options = ("local_infile = ON", *request.param)
    with PrivateServer(ServerRequest(options=options)) as running:
        yield running


class Seen(NamedTuple):
    """What a recording holds of the threads that serve clients."""

    on_cpu: dict[str, int]
    waits: Counter[tuple[str, str]]
    ended: Counter[str]


def seen(path: Path, server: PrivateServer, work: Callable[[], object]) -> Seen:
    """Record the work and a pause; nothing may have been healed or missed."""
    with Recorder(Request(server.pid, path)) as recorder:
        work()
        recorder.poll(PAUSE_S)
    with CaptureReader.open(path) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
        assert not losses & {"healed", "unmatched_exit", "phase_stack_overflow"}
        roles = ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows)
        ended: Counter[str] = Counter()
        for row in reader.rows(PhaseCount):
            ended[row.phase] += row.ended_count
    sums: Counter[tuple[str, str]] = Counter()
    for role in ("connection", "pool_worker"):
        sums.update(roles.get(role, {}))
    waits = Counter({key: ns for key, ns in sums.items() if key[1].startswith("blocked")})
    assert waits["idle", "blocked_network"] + waits["idle", "blocked_futex"] > PAUSE_S * 0.5e9
    return Seen(ledger.on_cpu(sums), waits, ended)


def test_several_statements_at_once_are_one_command(server: PrivateServer, tmp_path: Path) -> None:
    with connected(server) as client:
        text = "SELECT 1; SELECT REPEAT('x', 20000); DO SLEEP(0.001); SELECT 3"
        found = seen(tmp_path / "c", server, lambda: [client.query(text) for _ in range(TIMES)])
    assert found.ended["command"] == TIMES
    assert found.ended["record_write"] >= 3 * TIMES
    assert found.waits["command", "blocked_network"] == 0
    slept_ns = found.waits["command", "blocked_futex"] + found.waits["command", "blocked_other"]
    assert slept_ns > TIMES * 1e6, "sleeping is part of the command"


def test_prepared_statements_are_commands_each(server: PrivateServer, tmp_path: Path) -> None:
    def work(client: Connection) -> None:
        for _ in range(TIMES):
            client.execute_prepared("SELECT REPEAT('x', 2000)", 3)

    with connected(server) as client:
        found = seen(tmp_path / "c", server, lambda: work(client))
    # Closing one is a command without an answer.
    assert found.ended["command"] == TIMES * 5
    assert found.ended["record_write"] == TIMES * 4
    assert found.waits["command", "blocked_network"] == 0


def test_reading_a_client_s_file_is_reading(server: PrivateServer, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("".join(f"{row}\t{'x' * 200}\n" for row in range(ROWS_COUNT)))
    with connected(server) as client:
        client.query("CREATE TABLE loaded (id INT PRIMARY KEY, text VARCHAR(300))")
        load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE loaded"
        found = seen(tmp_path / "c", server, lambda: client.query(load))
        client.query("DROP TABLE loaded")
    assert found.ended["command"] == 1
    assert found.ended["record_read"] > 100, "once for each record of the file"
    assert found.on_cpu["record_read"] > 1_000_000, "4 MB are decrypted there"
    assert found.waits["command", "blocked_network"] == 0


def test_changing_the_user_is_connecting_again(server: PrivateServer, tmp_path: Path) -> None:
    def work(client: Connection) -> None:
        for _ in range(TIMES):
            client.change_user()

    with connected(server) as client:
        found = seen(tmp_path / "c", server, lambda: work(client))
    assert found.ended["command"] == TIMES
    assert found.ended["connect"] == TIMES
    assert found.ended["handshake"] == 0
    assert found.waits["command", "blocked_network"] == 0


def test_compressing_is_part_of_sending(server: PrivateServer, tmp_path: Path) -> None:
    text = "SELECT REPEAT('abcdefg', 20000)"
    with connected(server, compressed=True) as client:
        small = seen(tmp_path / "c", server, lambda: [client.query(text) for _ in range(TIMES)])
    assert small.ended["command"] == TIMES
    assert small.on_cpu["record_write"] > small.on_cpu["record_read"]
    assert small.on_cpu["record_write"] > TIMES * 50_000, "140 kB are compressed each time"
    assert small.waits["command", "blocked_network"] == 0
