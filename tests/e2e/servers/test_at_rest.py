# SPDX-License-Identifier: GPL-2.0-only
"""Encryption at rest: nothing readable is on the disk, and the ledger says what it costs whom.

Debian's MariaDB by default; TLSTAX_SERVERS names others (make test-servers does).
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.rows import ledger
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Ledger, Loss, Metric, Thread, Window
from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.iostat import Iostat
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.plaintext_search import find_plaintext
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.servers.storage import BYTES_PER_MB, Storage, require_disk

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

# What the catalogue has with a way to keep keys.
ABLE: Final = ("mariadb", "mariadb102", "mariadb1011", "mariadb118", "mysql97")
SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb").split()
POOL_MB, DOUBLINGS_COUNT = 8, 11
# Who writes pages; where the engine's names are hidden, its threads are known as background only.
WRITERS: Final = ("page_flush", "page_io", "engine_task", "background")


@dataclass
class Seen:
    """One server, with its data encrypted or not."""

    name: str
    is_encrypted: bool
    plaintext: dict[str, int]  # by kind of file
    on_cpu: dict[str, dict[str, int]]  # role -> phase -> ns
    data_bytes: int
    disk_bytes: float  # by iostat, all devices
    files_direct: set[bool]  # of tablespaces: whether they are open with O_DIRECT


@pytest.fixture(scope="module", params=[name for name in SERVERS if name in ABLE])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """The same work without encryption and with it."""
    folder = tmp_path_factory.mktemp("captures")
    return [look(request.param, encrypted, folder / str(encrypted)) for encrypted in (False, True)]


def look(name: str, encrypted: bool, path: Path) -> Seen:
    storage = Storage(
        encrypted, binlog=True, adaptive_hash_index=False, buffer_pool_mb=POOL_MB, durable=False
    )
    with (
        open_server(find_kind(name), ServerRequest(storage=storage)) as server,
        server.open_administrator() as session,
    ):
        with Recorder(Request(server.pid, path, sources=SourceSet([Iostat()]))) as recorder:
            recorder.poll(1.5)  # iostat's first second is only where it begins to count
            use(session)
            recorder.poll(2.5)  # the page cleaner has its own pace, and iostat tells by the second
        ((pool_bytes, hash_index),) = session.query(
            "SELECT @@innodb_buffer_pool_size, @@innodb_adaptive_hash_index"
        )
        assert (int(pool_bytes), hash_index) == (POOL_MB * BYTES_PER_MB, "0")
        plaintext = find_plaintext(server)
        files_direct = {is_direct(path) for path in open_tablespaces(server)}
        data_bytes = (server.directory.server / "data" / DATABASE / "text.ibd").stat().st_size
    with CaptureReader.open(path) as reader:
        windows = {window.window_id for window in reader.rows(Window)}
        losses = {loss.kind for loss in reader.rows(Loss) if loss.lost_count}
        assert not losses & {"healed", "unmatched_exit", "phase_stack_overflow"}
        roles = ledger.by_role(reader.rows(Ledger), reader.rows(Thread), windows)
        disk_bytes = sum(
            row.value * row.interval_ns / 1e9
            for row in reader.rows(Metric)
            if row.name in ("read_bytes_per_s", "write_bytes_per_s")
        )
    on_cpu = {role: dict(ledger.on_cpu(sums)) for role, sums in roles.items()}
    return Seen(name, encrypted, plaintext, on_cpu, data_bytes, disk_bytes, files_direct)


def use(session: StatusSession) -> None:
    """Fill a table beyond what fits in memory, and read it."""
    table = f"{DATABASE}.text"
    columns = "id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(2000)"
    session.query(f"CREATE TABLE {table} ({columns}) ENGINE=InnoDB")
    session.query(f"INSERT INTO {table} (text) VALUES (REPEAT('a', 2000))")
    for _ in range(DOUBLINGS_COUNT + 2):
        half = f"SELECT text FROM {table} LIMIT {2**DOUBLINGS_COUNT}"
        session.query(f"INSERT INTO {table} (text) {half}")
    session.query(f"SELECT COUNT(*) FROM {table} WHERE text LIKE '%b%'")


def open_tablespaces(server: PrivateServer) -> Iterator[Path]:
    """The server's descriptors of .ibd files."""
    for path in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(path).endswith(".ibd"):
                yield path


def is_direct(path: Path) -> bool:
    """Whether a descriptor goes past the page cache."""
    flags = (path.parent.parent / "fdinfo" / path.name).read_text().split("flags:\t")[1]
    return bool(int(flags.split()[0], 8) & os.O_DIRECT)


def test_the_text_is_on_the_disk_only_without_encryption(pair: list[Seen]) -> None:
    plain, encrypted = pair
    for kind in ("tables", "redo log", "binary log"):
        assert plain.plaintext[kind] > 0, plain.plaintext
        assert kind in encrypted.plaintext
    assert not any(encrypted.plaintext.values()), encrypted.plaintext


def test_data_is_larger_than_memory_and_goes_to_the_disk(pair: list[Seen]) -> None:
    for seen in pair:
        assert seen.data_bytes > 2 * POOL_MB * BYTES_PER_MB
        assert seen.files_direct == {True}
        assert seen.disk_bytes > seen.data_bytes / 2, "beside it, by iostat"


def test_encryption_is_charged_to_the_threads_that_do_it(pair: list[Seen]) -> None:
    plain, encrypted = pair
    # MySQL asks whether a page must be decrypted for each that it reads: next to nothing.
    before_ns = {role: phases.get("tde", 0) for role, phases in plain.on_cpu.items()}
    after_ns = {role: phases.get("tde", 0) for role, phases in encrypted.on_cpu.items()}
    if encrypted.name != "mysql97":
        assert not any(before_ns.values()), "nothing is encrypted"
    assert after_ns["connection"] > 3 * before_ns["connection"], "pages are decrypted where read"
    assert sum(after_ns.get(role, 0) for role in WRITERS) > 0, after_ns


def test_a_server_without_a_keyring_says_so(npm: None, lab_directory: Path) -> None:
    with pytest.raises(TlstaxError, match="and no other keyring") as caught:
        open_server(
            find_kind("mysql56"), ServerRequest(storage=Storage(encrypted=True))
        ).__enter__()
    assert caught.value.exit_code == ExitCode.USAGE


def test_memory_is_no_disk() -> None:
    with pytest.raises(TlstaxError, match="in memory") as caught:
        require_disk(Path("/dev/shm"))
    assert caught.value.exit_code == ExitCode.HOST


def test_a_pool_that_innodb_refuses_is_refused() -> None:
    with pytest.raises(TlstaxError, match="accepts is 5 MB"):
        Storage(buffer_pool_mb=1)
