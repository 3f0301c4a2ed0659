# SPDX-License-Identifier: GPL-2.0-only
"""What servers do besides TLS: waits for locks and commits, encryption at rest, and whose it is.

MySQL 5.6 and Debian's MariaDB by default; TLSTAX_SERVERS names others (make test-servers does).
"""

import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tlstax.analysis import ledger
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Loss, Thread, Window
from tlstax.collectors.recorder import Recorder, Request
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import Binaries, PrivateServer, ServerRequest
from tlstax.workloads.servers.status import StatusSession

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb mysql56").split()
HIDDEN_ENGINE: Final = ("mariadb", "mariadb118")  # Debian's MariaDB: no names of InnoDB
# The cipher that the plugin of this host works with in each server (10.11.5 lacks CTR).
CIPHERS: Final = {"mariadb": "aes_ctr", "mariadb1011": "aes_cbc", "mariadb102": "aes_cbc"}
PLUGIN: Final = "file_key_management.so"
LOCKED_S, COMMITS_COUNT, DOUBLINGS_COUNT = 1.0, 100, 11
TABLE: Final = f"{DATABASE}.work"


def administrator(server: PrivateServer) -> StatusSession:
    """A connection that may do everything, in plaintext through the socket."""
    return StatusSession(Binaries.find().client, server.places.client / "administrator.cnf")


def roles_of(path: Path) -> dict[str, ledger.Totals]:
    """The ledger by role; nothing may have been healed or missed."""
    with CaptureReader.open(path) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
        assert not losses & {"healed", "unmatched_exit", "phase_stack_overflow"}
        return ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows)


def together(recorder: Recorder, work: list[threading.Thread]) -> None:
    """Cut windows until all of the work is done."""
    for thread in work:
        thread.start()
    while any(thread.is_alive() for thread in work):
        recorder.poll(0.1)


@pytest.mark.parametrize("name", SERVERS)
def test_waits_are_called_by_what_is_waited_for(
    name: str, npm: None, lab_directory: Path, tmp_path: Path
) -> None:
    path = tmp_path / "capture"
    request = ServerRequest(options=("log_bin = binlog", "server_id = 1", "sync_binlog = 1"))
    with (
        open_server(find_kind(name), request) as server,
        administrator(server) as first,
        administrator(server) as second,
    ):
        first.query(f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
        first.query(f"INSERT INTO {TABLE} VALUES (1, 0), (2, 0)")
        first.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        with Recorder(Request(server.pid, path)) as recorder:
            first.query("BEGIN")
            first.query(f"UPDATE {TABLE} SET n = 1 WHERE id = 1")
            blocked = threading.Thread(
                target=second.query, args=(f"UPDATE {TABLE} SET n = 2 WHERE id = 1",)
            )
            blocked.start()
            recorder.poll(LOCKED_S)
            first.query("COMMIT")
            blocked.join()
            together(recorder, [commits(first, 1), commits(second, 2)])
            recorder.poll(0.1)

    roles = roles_of(path)
    waits = {state: roles["connection"].get(("command", f"blocked_{state}"), 0) for state in STATES}
    row_lock = "futex" if name in HIDDEN_ENGINE else "lock"
    assert waits[row_lock] >= 0.8 * LOCKED_S * 1e9, waits
    assert waits["disk"] > 0, waits
    if name not in HIDDEN_ENGINE:
        assert waits["futex"] < 0.2 * waits["disk"] + 0.05 * waits["lock"], waits
    assert EXPECTED[find_kind(name).family] <= roles.keys()
    # Cached connections are known; of the rest at most a few threads have no telling function.
    background_ns = sum(roles.get("background", {}).values())
    assert background_ns < 0.6 * sum(sum(sums.values()) for sums in roles.values())


STATES: Final = ("lock", "disk", "futex", "network")
EXPECTED: Final = {
    "mysql": {"acceptor", "connection", "signal_handler", "page_io", "purge", "engine_monitor"},
    "mariadb": {"acceptor", "connection", "signal_handler", "binlog", "engine_task"},
}


def commits(session: StatusSession, row: int) -> threading.Thread:
    """Many small transactions."""

    def run() -> None:
        for _ in range(COMMITS_COUNT):
            session.query(f"UPDATE {TABLE} SET n = n + 1 WHERE id = {row}")

    return threading.Thread(target=run)


@pytest.fixture(scope="module")
def key_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the plugin that holds keys, and a key; every user can read it."""
    folder = Path("/tmp") / f"tlstax-test-keys-{os.getpid()}"
    folder.mkdir(mode=0o755)
    installed = Path("/usr/lib/mysql/plugin") / PLUGIN
    if not installed.exists():
        work = tmp_path_factory.mktemp("mariadb-server")
        sandboxed = ["-o", "APT::Sandbox::User=root"]
        get = ["apt-get", "-q", *sandboxed, "download", "mariadb-server"]
        subprocess.run(get, cwd=work, check=True, capture_output=True)
        (package,) = work.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, work / "files"], check=True)
        installed = work / "files/usr/lib/mysql/plugin" / PLUGIN
    shutil.copy(installed, folder / PLUGIN)
    (folder / "keys").write_text(f"1;{secrets.token_hex(32)}\n")
    for path in (folder, folder / PLUGIN, folder / "keys"):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", [name for name in SERVERS if name in CIPHERS])
def test_encryption_at_rest_has_its_own_phase(
    name: str, key_plugin: Path, lab_directory: Path, tmp_path: Path
) -> None:
    path = tmp_path / "capture"
    options = (
        f"plugin_dir = {key_plugin}",
        f"plugin_load_add = {PLUGIN}",
        f"loose_file_key_management_filename = {key_plugin}/keys",
        f"loose_file_key_management_encryption_algorithm = {CIPHERS[name]}",
        "innodb_buffer_pool_size = 8M",  # too small for the table, so that pages come and go
    )
    with (
        open_server(find_kind(name), ServerRequest(options=options)) as server,
        administrator(server) as session,
    ):
        plain = use(server, session, "plain", path)
        secret = use(server, session, "secret ENCRYPTED=YES", path)
    assert "tde" not in plain["connection"], "nothing is encrypted"
    writer = "background" if name in HIDDEN_ENGINE else "page_flush"
    assert secret["connection"]["tde"] > 0, "pages are decrypted where they are read"
    assert secret[writer]["tde"] > 0, "and encrypted where they are written"


def use(
    server: PrivateServer, session: StatusSession, definition: str, path: Path
) -> dict[str, dict[str, int]]:
    """Fill a table beyond what fits in memory, and read it; on-CPU time by role and phase."""
    table, _, kind = definition.partition(" ")
    columns = "id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(2000)"
    session.query(f"CREATE TABLE {DATABASE}.{table} ({columns}) ENGINE=InnoDB {kind}")
    with Recorder(Request(server.pid, path, overwrite=True)) as recorder:
        session.query(f"INSERT INTO {DATABASE}.{table} (text) VALUES (REPEAT('a', 2000))")
        for _ in range(DOUBLINGS_COUNT + 2):
            half = f"SELECT text FROM {DATABASE}.{table} LIMIT {2**DOUBLINGS_COUNT}"
            session.query(f"INSERT INTO {DATABASE}.{table} (text) {half}")
        session.query(f"SELECT COUNT(*) FROM {DATABASE}.{table} WHERE text LIKE '%b%'")
        recorder.poll(1.5)  # the page cleaner has its own pace
    return {role: ledger.on_cpu(sums) for role, sums in roles_of(path).items()}
