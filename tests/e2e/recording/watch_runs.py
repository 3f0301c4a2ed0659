# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch` as a process whose windows and rollups take a second, and its data set."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TABLES, Row
from tlstax.analysis.fleet.store import parquet_files, selection
from tlstax.collectors.process.build_id import build_id_of
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import Binaries

PATIENCE_S: Final = 60
THREADS: Final = 2
# The command's own numbers would make each test last minutes.
HURRIED: Final = """
import sys
from tlstax.collectors.commands import watch
watch.WINDOW_S, watch._EVERY_S["1s"] = 1.0, 1
from tlstax.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


class WatchRun:
    """A running watch; one that a failed test leaves is ended with that test (tests/e2e)."""

    _running: ClassVar[list["subprocess.Popen[bytes]"]] = []

    def __init__(self, said: Path, data: Path, *options: str, changes: str = "") -> None:
        """`changes`: code that runs in it before."""
        self._said = said
        program = changes + HURRIED
        command = [sys.executable, "-c", program, "watch", "--output", str(data), "--every", "1s"]
        with said.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--host", "db1", "--budget", "none", *options], stderr=errors
            )
        self._running.append(self.process)

    @classmethod
    def end_all(cls) -> None:
        """Those that still run: they would go on beside the next tests."""
        while cls._running:
            process = cls._running.pop()
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def said(self) -> str:
        """What it wrote to standard error, and an earlier one to the same file."""
        return self._said.read_text()

    def await_said(self, text: str, count: int = 1, patience_s: float = PATIENCE_S) -> None:
        """Until it has said something so often."""

        def why() -> str:
            return f"no {text!r} in {self.said}"

        await_true(lambda: self.said.count(text) >= count, why, patience_s)

    def end(self) -> int:
        """As systemd does; the last hour is explained meanwhile."""
        self.process.terminate()
        return self.process.wait(4 * PATIENCE_S)


def await_true(
    is_so: Callable[[], Any], why: Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """Until it is so; AssertionError after that time."""
    end = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < end, why()
        time.sleep(0.2)


@contextmanager
def server_of(program: Path) -> Iterator[PrivateServer]:
    """A private server of this program."""
    found = Binaries.find()
    with PrivateServer(None, Binaries(program, found.install, found.client)) as server:
        Sysbench.of_server(server, table_rows=10).prepare()
        yield server


def copied_server(folder: Path, name: str) -> Path:
    """The host's server under a name that no other process has."""
    return Path(shutil.copy(Binaries.find().server, folder / name))


def upgrade(program: Path) -> str:
    """Make it a file of another build; its new build-id."""
    with program.open("rb") as file:
        build_id = bytes.fromhex(build_id_of(file.fileno()))
    changed = bytes([build_id[0] ^ 0xFF]) + build_id[1:]
    content = program.read_bytes()
    assert content.count(build_id) == 1
    program.unlink()  # as a package does
    program.write_bytes(content.replace(build_id, changed))
    program.chmod(0o755)
    return changed.hex()


def connect(server: PrivateServer, count: int) -> None:
    """So many TLS connections."""
    driver = Sysbench.of_server(server, table_rows=10)
    driver.run(Load(SCENARIOS["connect"], THREADS, 0, count), "tls", time.sleep)


def rows_of(data: Path, table: type[Row], tier: str = "1h") -> list[dict[str, Any]]:
    """The rows that a question reads."""
    if not (data / f"tier={tier}").exists():
        return []
    files = selection.select(data, tier, TABLES)
    assert files.left_out == []
    return [
        row
        for path in files.files[table]
        for rows in parquet_files.groups(path)
        for row in rows.to_pylist()
    ]


def handshakes(data: Path, tier: str = "1h") -> int:
    """Successful handshakes in the data set."""
    rows = rows_of(data, columns.Handshake, tier)
    return sum(row["handshake_count"] for row in rows if row["outcome"] == "success")
