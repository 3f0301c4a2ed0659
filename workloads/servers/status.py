# SPDX-License-Identifier: GPL-2.0-only
"""The server's own counters, read over one plaintext connection that stays open.

One connection for the whole experiment: reading a counter then never counts as a connection, and
its thread exists before a recorder attaches. It goes through the Unix socket, so that the reader
itself can never add a TLS handshake.
"""

import os
import selectors
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tlstax import ExitCode, TlstaxError

ANSWER_PATIENCE_S = 10.0
END_MARK = "tlstax-end-of-answer"

# Handshakes and connections prove the arms; the rest explains a run that went wrong.
COUNTERS = (
    "Aborted_clients",
    "Aborted_connects",
    "Bytes_received",
    "Bytes_sent",
    "Connections",
    "Questions",
    "Ssl_accepts",
    "Ssl_client_connects",
    "Ssl_finished_accepts",
    "Ssl_session_cache_hits",
    "Threads_cached",
    "Threads_connected",
    "Threads_created",
    "Threads_running",
)


@dataclass(frozen=True)
class Status:
    """The counters at one time (CLOCK_MONOTONIC)."""

    time_ns: int
    values: dict[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def since(self, earlier: "Status", name: str) -> int:
        """How much `name` grew."""
        return self.values[name] - earlier.values[name]


class StatusSession:
    """A `mariadb` client at work behind pipes: statements in, rows out."""

    def __init__(self, client: Path, option_file: Path) -> None:
        """Connect; TlstaxError (TARGET) with the client's own words if that fails."""
        self._process = subprocess.Popen(
            [
                str(client),
                f"--defaults-file={option_file}",
                "--batch",
                "--unbuffered",
                "--skip-column-names",
                "--skip-auto-rehash",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: we still want to read at the end
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )
        self._pending = b""
        try:
            self.query("SELECT 1")
        except TlstaxError:
            self.close()
            raise

    def __enter__(self) -> "StatusSession":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """End the client. Safe to repeat."""
        stdin, stdout = self._pipes()
        for pipe in (stdin, stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        try:
            self._process.wait(timeout=ANSWER_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def query(self, statement: str) -> list[list[str]]:
        """Run one statement and return its rows; TlstaxError (TARGET) if the client gave up."""
        stdin, stdout = self._pipes()
        try:
            stdin.write(f"{statement};\nSELECT '{END_MARK}';\n".encode())
            stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error
        rows: list[list[str]] = []
        deadline = time.monotonic() + ANSWER_PATIENCE_S
        while (line := self._line(stdout, deadline)) != END_MARK:
            if line is None:
                said = "; ".join(" ".join(row) for row in rows)
                raise self._gone(said or "the client ended without a message")
            rows.append(line.split("\t"))
        return rows

    def read(self) -> Status:
        """The counters now. It costs the server two statements on this connection."""
        names = ", ".join(f"'{name}'" for name in COUNTERS)
        rows = self.query(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
        values = {row[0]: int(row[1]) for row in rows if len(row) == 2}
        missing = [name for name in COUNTERS if name not in values]
        if missing:
            raise TlstaxError(
                "cannot read the server's counters",
                f"SHOW GLOBAL STATUS has no {missing[0]}",
                "Use a server of the MariaDB or MySQL family that was built with TLS",
                ExitCode.TARGET,
            )
        return Status(time.monotonic_ns(), values)

    def tls_cipher(self) -> str:
        """The cipher of this very connection: empty, as it must be."""
        rows = self.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return rows[0][1] if rows and len(rows[0]) == 2 else ""

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:  # both are pipes: see Popen above
            raise self._gone()
        return stdin, stdout

    def _line(self, stdout: IO[bytes], deadline: float) -> str | None:
        """The next line of the answer, None if the client ended; `deadline` is in monotonic s."""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._gone(f"no answer within {ANSWER_PATIENCE_S:.0f} s")
                received = os.read(stdout.fileno(), 65536)
                if not received:
                    return None
                self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")

    def _gone(self, why: str = "its client ended") -> TlstaxError:
        return TlstaxError(
            "cannot query the server",
            why,
            "Check that the server still runs; its log says why if it does not",
            ExitCode.TARGET,
        )
