# SPDX-License-Identifier: GPL-2.0-only
"""Whether what is stored can be read from the disk: a text is written, flushed and searched for.

The search goes through every file of the server's directory. Where nothing is encrypted the text
must be found in tables, redo log and binary log, else finding none would prove nothing.
"""

import secrets
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers.configuration import DATABASE
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession

TABLE = f"{DATABASE}.tlstax_plaintext"
DOUBLINGS_COUNT = 8
FLUSH_PATIENCE_S, LOOK_S = 60.0, 0.1
BLOCK_BYTES = 1 << 20
PRESSURE = ("innodb_max_dirty_pages_pct_lwm", "innodb_max_dirty_pages_pct")  # to 0 in this order
# Where a file belongs, by how its name begins or ends; the first that fits.
KINDS: Mapping[str, tuple[str, ...]] = {
    "tables": (".ibd",),
    "redo log": ("ib_logfile", "#ib_redo"),
    "binary log": ("binlog.",),
    "undo log and system tables": ("ibdata", "undo", ".ibu"),
    "doublewrite buffer": (".dblwr", ".bdblwr"),
}


def find_plaintext(server: PrivateServer) -> dict[str, int]:
    """How often a text that was just stored is found on the disk, by kind of file.

    Leaves no table behind. TlstaxError (TARGET) if the server does not write its pages.
    """
    old, new = (f"tlstax plaintext {name} {secrets.token_hex(8)}" for name in ("old", "new"))
    with server.open_administrator() as session:
        session.query(f"DROP TABLE IF EXISTS {TABLE}")
        session.query(
            f"CREATE TABLE {TABLE} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,"
            " c VARCHAR(200) NOT NULL) ENGINE=InnoDB"
        )
        session.query(f"INSERT INTO {TABLE} (c) VALUES ('{old}')")
        for _ in range(DOUBLINGS_COUNT):
            session.query(f"INSERT INTO {TABLE} (c) SELECT c FROM {TABLE}")
        session.query(f"UPDATE {TABLE} SET c = '{new}' WHERE id % 2 = 0")  # the old goes to undo
        _flush(session)
        found = search(server.directory.server, [old.encode(), new.encode()])
        session.query(f"DROP TABLE {TABLE}")
    return found


def _flush(session: StatusSession) -> None:
    """Have every changed page written, and the logs before them."""
    before = {name: _variable(session, name) for name in PRESSURE}
    for name in PRESSURE:
        session.query(f"SET GLOBAL {name} = 0")
    try:
        session.query("FLUSH LOGS")
        deadline = time.monotonic() + FLUSH_PATIENCE_S
        while _dirty_count(session):
            if time.monotonic() > deadline:
                raise TlstaxError(
                    "cannot check the server's data on disk",
                    f"dirty pages were not flushed within {FLUSH_PATIENCE_S:.0f} s",
                    "Run it again while nobody else uses the server",
                    ExitCode.TARGET,
                )
            time.sleep(LOOK_S)
    finally:
        for name in reversed(PRESSURE):
            session.query(f"SET GLOBAL {name} = {before[name]}")


def _variable(session: StatusSession, name: str) -> str:
    ((value,),) = session.query(f"SELECT @@GLOBAL.{name}")
    return value


def _dirty_count(session: StatusSession) -> int:
    ((_, count),) = session.query("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")
    return int(count)


def search(directory: Path, texts: list[bytes]) -> dict[str, int]:
    """How often the texts occur in the files below `directory`, by kind of file; kinds with none
    are there, too, if there are such files.
    """
    found: Counter[str] = Counter()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with suppress(FileNotFoundError):  # the server may remove its own files meanwhile
                found[_kind(path.name)] += sum(_count(path, text) for text in texts)
    return {kind: found[kind] for kind in sorted(found)}


def _kind(name: str) -> str:
    for kind, marks in KINDS.items():
        if name.startswith(marks) or name.endswith(marks):
            return kind
    return "other files"


def _count(path: Path, text: bytes) -> int:
    """Read, not mapped: the server may truncate a file, which kills a process that maps it."""
    count, rest = 0, b""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            count += (rest + block).count(text)
            rest = (rest + block)[-(len(text) - 1) :]
    return count
