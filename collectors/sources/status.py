# SPDX-License-Identifier: GPL-2.0-only
"""The status counters of the server, second by second, over one connection of a read-only account.

A `mysql` or `mariadb` client stays connected and is driven through pipes. It reads user and
password from an option file or a login path, so that neither is in an argument, the environment or
the capture. A query is sent at one poll and its answer is read at the next: a slow server delays
its own counters only. Counters that did not change are not stored.
"""

import os
import re
import select
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.known_sources import STATUS
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.process.certificate import is_in_use, load_parser, read_certificate
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration, Option

CLIENTS: Final = ("mariadb", "mysql")
COUNTERS: Final = re.compile(
    r"(Aborted_|Binlog_|Bytes_|Connections$|Created_tmp|Handler_|Innodb_(rows|row_lock|os_log|log_|"
    r"data_|buffer_pool_(read|wait|pages_flushed)|dblwr|adaptive_hash)|Com_(select|insert|update|"
    r"delete|commit|rollback|begin|stmt_execute|stmt_prepare|change_user)$|Questions$|Slow_queries|"
    r"Ssl_|Sort_|Table_locks|Table_open_cache|Threads_|Uptime$)"
)
"""Names of SHOW GLOBAL STATUS that help to explain where the time of a TLS server goes."""
WAITS: Final = (
    "SELECT EVENT_NAME, COUNT_STAR, SUM_TIMER_WAIT FROM"
    " performance_schema.events_waits_summary_global_by_event_name"
    " WHERE COUNT_STAR > 0 AND EVENT_NAME <> 'idle'"
)
"""Timer values are picoseconds. https://dev.mysql.com/doc/refman/8.4/en/performance-schema.html"""
WRITES: Final = re.compile(
    r"\b(ALL PRIVILEGES|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|SUPER|FILE|SHUTDOWN|GRANT OPTION)\b"
)

CERTIFICATE: Final = "certificate/"
"""Prefix of what the server's certificate says: `certificate/key`, kind and length of its key,
`certificate/chain` and `certificate/chain_bytes`, the certificates in its file and their size,
`certificate/not_before` and `certificate/not_after`, the seconds since 1970 (UTC) between which it
is valid.
"""
_STATUS, _GRANTS, _END = "tlstax-status", "tlstax-grants", "tlstax-end"
_FILE: Final = "tlstax-certificate"
_PATIENCE_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 4 << 20


class ServerStatus:
    """One client process that queries once a second."""

    name = "status"

    def __init__(
        self,
        *,
        option_file: Path | None = None,
        login_path: str | None = None,
        pid: int | None = None,
    ) -> None:
        """Give exactly one of the first two; it also holds whatever else the connection needs.

        `pid`: the server, whose certificate is read; None: it is not.
        """
        self._pid = pid
        if pid is not None:
            load_parser()
        self._certificate: dict[str, str] = {}
        self._access = (
            f"--defaults-file={option_file}" if option_file else f"--login-path={login_path}"
        )
        self._option_file = option_file
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._asked_ns = 0
        self._last: dict[str, str] = {}
        self._answered: frozenset[str] = frozenset()  # the lines of the last answer
        self._with_waits = False
        self.warning = ""

    def start(self) -> str:
        """Connect. Raises TlstaxError with the message of the client if that fails."""
        if self._option_file is not None and not self._option_file.is_file():
            raise _refused(f"option file {self._option_file} not found")
        client = self._client()
        arguments = ["--batch", "--unbuffered", "--skip-column-names", "--force"]
        self._process = subprocess.Popen(
            [client, self._access, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "LC_ALL": "C", "HOME": os.environ.get("HOME", "/")},
            start_new_session=True,
        )  # fmt: skip
        os.set_blocking(self._pipe("stdout"), False)
        try:
            version, grants = self._introduce()
        except TlstaxError:
            self._close()
            raise
        if any(WRITES.search(grant.upper()) for grant in grants):
            self.warning = (
                "the account may change data; it needs only PROCESS ON *.* and SELECT ON"
                " performance_schema.*"
            )
        self._ask(monotonic_ns())
        return f"server {version}"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """The answer to the last query, if it has arrived; then send the next query."""
        if self._asked_ns and (answer := self._answer()) is not None:
            rows = self._rows(answer)
            self._ask(now_ns)
            return rows
        if now_ns - self._asked_ns > _PATIENCE_S * 1e9:
            raise _refused(f"no answer within {_PATIENCE_S:.0f} s")
        return ()

    def stop(self) -> Iterable[schema.Row]:
        """Take the pending answer, if it has arrived, and disconnect."""
        if self._process is None:
            return ()
        try:
            answer = self._answer()
        except TlstaxError:
            answer = None
        rows = self._rows(answer) if answer else ()
        self._close()
        return rows

    def _introduce(self) -> tuple[str, list[str]]:
        """Version and grants; also find out whether the server times its waits."""
        self._send(
            "SELECT VERSION(), @@global.performance_schema",
            f"SELECT '{_GRANTS}'",
            "SHOW GRANTS",
            f"SELECT '{_FILE}'",
            "SELECT @@global.ssl_cert, @@global.datadir",
            "SHOW GLOBAL STATUS LIKE 'Ssl_server_not_after'",
        )
        lines = self._wait()
        if lines and lines[0].startswith("ERROR"):
            raise _refused(lines[0])
        facts = lines[0].split("\t") if lines else []
        if len(facts) != 2:
            raise _refused(lines[0] if lines else "the client ended without a message")
        self._with_waits = facts[1] == "1"
        if _FILE in lines:
            lines, told = lines[: lines.index(_FILE)], lines[lines.index(_FILE) + 1 :]
            self._certificate = self._of_certificate(told)
        return facts[0], lines[lines.index(_GRANTS) + 1 :] if _GRANTS in lines else []

    def _of_certificate(self, lines: list[str]) -> dict[str, str]:
        """What the server's certificate says, by the file that it names; {} if unknown."""
        file, _, directory = lines[0].partition("\t") if lines else ("", "", "")
        if self._pid is None or not directory or file in ("", "NULL"):
            return {}
        found = read_certificate(self._pid, file, directory)
        not_after = lines[1].partition("\t")[2] if len(lines) > 1 else ""
        if found is None or not is_in_use(found, not_after):
            return {}
        said = {
            "key": found.key,
            "chain": str(found.chain_count),
            "chain_bytes": str(found.chain_bytes),
            "not_before": str(int(found.not_before.timestamp())),
            "not_after": str(int(found.not_after.timestamp())),
        }
        return {f"{CERTIFICATE}{name}": value for name, value in said.items()}

    def _ask(self, now_ns: int) -> None:
        statements = ["SHOW GLOBAL STATUS"]
        if self._with_waits:
            statements += [f"SELECT '{_STATUS}'", WAITS]
        self._send(*statements)
        self._asked_ns = now_ns

    def _rows(self, lines: list[str]) -> list[schema.Row]:
        """The counters that changed since the last answer, with the time of the query."""
        moved = {} if self._answered else dict(self._certificate)
        prefix = ""
        for line in lines:
            if line == _STATUS:
                prefix = "wait/"
            if line in self._answered:  # nearly all are: this runs beside the server, each second
                continue
            name, _, value = line.partition("\t")
            if prefix and value.count("\t") == 1:
                waits, _, picoseconds = value.partition("\t")
                moved[f"{name}#count"] = waits
                moved[f"{name}#time_ns"] = str(int(picoseconds) // 1000)
            elif not prefix and COUNTERS.match(name):
                moved[name] = value
        self._answered = frozenset(lines)
        moved = {name: value for name, value in moved.items() if self._last.get(name) != value}
        self._last.update(moved)
        return [schema.Status(self._asked_ns, None, name, value) for name, value in moved.items()]

    # ---- the client ----

    def _client(self) -> str:
        """Path of the client program. Raises TlstaxError (HOST) if none is usable."""
        clients = list(filter(None, map(shutil.which, CLIENTS)))
        if not clients:
            raise TlstaxError(
                "no client program to read the server's counters",
                f"{' and '.join(CLIENTS)} not found",
                "Install the package mariadb-client-core or mysql-client",
                ExitCode.HOST,
            )
        if self._option_file is not None:
            return clients[0]
        knowing = [client for client in clients if _knows_login_paths(client)]
        if not knowing:
            raise TlstaxError(
                "--status-login-path works only with MySQL's client",
                "MariaDB's client, which was found, does not read files of mysql_config_editor",
                "Give --status-file FILE, or install MySQL's client",
                ExitCode.HOST,
            )
        return knowing[0]

    def _send(self, *statements: str) -> None:
        text = ";\n".join([*statements, f"SELECT '{_END}'"]) + ";\n"
        try:
            os.write(self._pipe("stdin"), text.encode())
        except BrokenPipeError as error:
            raise _refused(self._said()) from error

    def _answer(self) -> list[str] | None:
        """The lines before the end mark, or None while they are not all there."""
        while True:
            try:
                received = os.read(self._pipe("stdout"), 1 << 16)
            except BlockingIOError:
                break
            if not received:
                raise _refused(self._said())
            self._pending += received
            if len(self._pending) > _ANSWER_BYTES_MAX:
                raise _refused("the answer is longer than any list of counters")
        text, mark, rest = self._pending.partition(f"{_END}\n".encode())
        if not mark:
            return None
        self._pending = rest
        return text.decode(errors="replace").splitlines()

    def _wait(self) -> list[str]:
        """Wait for the answer; used only at the start."""
        end_ns = monotonic_ns() + int(_PATIENCE_S * 1e9)
        while monotonic_ns() < end_ns:
            if (answer := self._answer()) is not None:
                return answer
            select.select([self._pipe("stdout")], [], [], 0.1)
        raise _refused(f"no answer within {_PATIENCE_S:.0f} s")

    def _said(self) -> str:
        """The last line that the client printed; it prints no password."""
        lines = self._pending.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "the client ended without a message"

    def _pipe(self, which: str) -> int:
        pipe = getattr(self._process, which, None)
        if pipe is None:
            raise _refused("the client is not running")
        return int(pipe.fileno())

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _refused(why: str) -> TlstaxError:
    return TlstaxError(
        "cannot read the server's counters",
        why,
        "Check user, password and socket in the option file or login path",
        ExitCode.FAILED,
    )


def _knows_login_paths(client: str) -> bool:
    """Whether the client lists the option --login-path in its help."""
    said = subprocess.run(
        [client, "--no-defaults", "--help"], capture_output=True, check=False, timeout=_PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return b"login-path" in said.stdout


def _open(asked: Asked) -> Sequence[Source]:
    file, login_path = (asked.options[key] for key in ("status_file", "status_login_path"))
    return (ServerStatus(option_file=file, login_path=login_path, pid=asked.pid),)


SOURCE: Final = Declaration(
    name="status",
    summary="SHOW GLOBAL STATUS, and the waits of performance_schema if it is on",
    needs="a client program, an account",
    open=_open,
    panels=STATUS,
    required=(
        Option(
            "--status-file",
            "option file (mode 0600) of a read-only account, for status; passwords are never"
            " arguments",
            "FILE",
            Path,
        ),
        Option(
            "--status-login-path", "or a login path of mysql_config_editor (MySQL only)", "NAME"
        ),
    ),
    required_for="credentials",
    warnings=("the account may change data",),
)
