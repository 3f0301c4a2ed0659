# SPDX-License-Identifier: GPL-2.0-only
"""Pairs of connections to a server in production, one in plaintext and one with TLS.

Two client programs stay open and are told to connect anew, so that no start of a program is in the
times. Each connection opens, logs in, asks `SELECT 1` and stays until the next one replaces it: the
server has two sessions of the canary, and never opens both at once.
User and password are in an option file or a login path: never in an argument or the environment.
"""

import os
import random
import re
import selectors
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.order_statistics import LEAST_UNITS, median_bounds

PATIENCE_S: Final = 30.0
"""For one connection; a server that takes longer has other problems."""
MARK: Final = "tlstax-canary"
_PASSED_ON: Final = (
    "HOME", "MYSQL_TEST_LOGIN_FILE", "OPENSSL_CONF", "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip
"""Variables that say where the client finds its files."""
_ADVICE: Final = {
    "1040": "Try again when the server has two connections left",
    "1044": "Check user and password, and what the account may do",
    "1203": "Try again when the account has two connections left",
    "1226": "Try again when the account has two connections left",
    "2002": "Check host and port, and that the server runs",
    "2003": "Check host and port, and that the server runs",
    "2005": "Check the name of the host",
    "2013": "Check that the server runs, and its error log",
    "2026": "Check ssl-ca and what else the option file or login path says of TLS",
}
"""What to do, by the client's error number."""


@dataclass(frozen=True)
class Access:
    """Where the server is, and who connects."""

    option_file: Path | None = None
    login_path: str | None = None
    """Exactly one of these two."""
    host: str | None = None
    port: int | None = None
    """Both None: as the option file or login path says."""

    @property
    def program(self) -> str:
        """The client program. TlstaxError (HOST) if there is none that fits."""
        names = ("mysql",) if self.login_path else ("mariadb", "mysql")
        for name in names:
            path = shutil.which(name)
            if path and (not self.login_path or not is_mariadb(path)):
                return path
        raise TlstaxError(
            "cannot find a client program",
            "login paths need MySQL's own client" if self.login_path else "no mariadb, no mysql",
            "Install mysql-client, or pass --option-file FILE"
            if self.login_path
            else "Install mariadb-client-core or mysql-client",
            ExitCode.HOST,
        )

    def command(self, arm: str) -> list[str]:
        """The client of an arm, without user and password."""
        program = self.program
        by_mode = not is_mariadb(program)
        # REQUIRED would switch off a verification that the option file asks for; `check` sees to it
        # that there is TLS.
        tls = {
            "plaintext": ["--ssl-mode=DISABLED"] if by_mode else ["--skip-ssl"],
            "tls": [] if by_mode else ["--ssl"],
        }[arm]
        access = (
            f"--login-path={self.login_path}"
            if self.login_path
            else f"--defaults-file={self.option_file}"
        )
        place = [f"--host={self.host}"] if self.host else []
        place += [f"--port={self.port}"] if self.port else []
        return [
            program, access, "--protocol=TCP", *place, *tls, "--batch", "--unbuffered",
            "--skip-column-names", "--skip-reconnect", "--connect-timeout=10",
        ]  # fmt: skip


def is_mariadb(program: str) -> bool:
    """Whether a client program is MariaDB's: the options for TLS differ."""
    said = subprocess.run(
        [program, "--no-defaults", "--version"], capture_output=True, check=False,
        stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
    )  # fmt: skip
    return b"MariaDB" in said.stdout


class Client:
    """One client program, which connects when it is told to."""

    def __init__(self, access: Access, arm: str) -> None:
        """Connect once. TlstaxError (TARGET) with the client's words if that is refused."""
        self.arm = arm
        self._pending = b""
        command = access.command(arm)
        if not is_mariadb(command[0]) and _lists(command[0], b"--commands"):
            command.append("--commands")  # MySQL 9 refuses `connect` without it
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
            env={"PATH": os.defpath, "LC_ALL": "C"}
            | {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        )  # fmt: skip
        try:
            self.check()
        except BaseException:  # Ctrl-C, too: the client is not in the terminal's group
            self.close()
            raise

    def check(self) -> None:
        """TlstaxError (TARGET) unless the connection has TLS, or none, as its arm says."""
        lines = self._ask("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        cipher = next((x.split("\t")[1] for x in lines if x.startswith("Ssl_cipher\t")), "")
        if bool(cipher) != (self.arm == "tls"):
            raise _refused(self.arm, f"it has the cipher {cipher}" if cipher else "it has no TLS")

    def connect(self) -> int:
        """Connect anew and ask one query; returns what both took, in ns."""
        start_ns = time.monotonic_ns()
        lines = self._ask("SELECT 1", "connect;\n")
        taken_ns = time.monotonic_ns() - start_ns
        if "1" not in lines:
            raise _refused(self.arm, lines[-1] if lines else "no answer")
        return taken_ns

    def close(self) -> None:
        """End the client. Safe to repeat."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, statement: str, before: str = "") -> list[str]:
        """The lines that the client prints for a statement."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(f"{before}{statement};\nSELECT '{MARK}';\n".encode())
            stdin.flush()
        except BrokenPipeError as error:
            raise _refused(self.arm, self._said()) from error
        deadline = time.monotonic() + PATIENCE_S
        end = f"{MARK}\n".encode()
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while not self._pending.endswith(end):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise _refused(self.arm, f"no answer within {PATIENCE_S:.0f} s")
                received = os.read(stdout.fileno(), 1 << 16)
                if not received:
                    raise _refused(self.arm, self._said())
                self._pending += received
        text, self._pending = self._pending[: -len(end)], b""
        return text.decode(errors="replace").splitlines()

    def _said(self) -> str:
        lines = self._pending.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "the client ended without a message"


def _lists(program: str, option: bytes) -> bool:
    said = subprocess.run(
        [program, "--no-defaults", "--help"], capture_output=True, check=False,
        stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
    )  # fmt: skip
    return option in said.stdout


def _refused(arm: str, why: str) -> TlstaxError:
    what = "in plaintext" if arm == "plaintext" else "with TLS"
    number = re.match(r"ERROR (\d+)", why)
    advice = (
        "Check user and password. Use an account without REQUIRE SSL, on a server without "
        "require_secure_transport; where plaintext is not allowed, `tlstax whatif --no-tls` bounds "
        "what TLS costs"
        if arm == "plaintext"
        else "Check user, password and what the option file or login path says of TLS"
    )
    advice = _ADVICE.get(number[1], advice) if number else advice
    return TlstaxError(f"cannot connect {what}", why.rstrip("."), advice, ExitCode.TARGET)


@dataclass(frozen=True)
class Pair:
    """One connection of each arm, in ns."""

    plaintext_ns: int
    tls_ns: int

    @property
    def difference_ns(self) -> int:
        """What TLS adds."""
        return self.tls_ns - self.plaintext_ns


@dataclass
class Run:
    """What was measured, up to its end, Ctrl-C or a failure."""

    pairs: list[Pair] = field(default_factory=list)
    elapsed_ns: int = 0
    """From the start of the first pair to the end of the last one's pause."""
    failure: TlstaxError | None = None
    """Why it ended early."""


def measure(
    access: Access,
    rate: float,
    seconds: float,
    wait: Callable[[float], None] = time.sleep,
    chance: random.Random | None = None,
) -> Run:
    """Pairs for so long, `rate` connections a second; which arm is first is drawn each time.

    Ctrl-C and a server that fails end it early. TlstaxError (TARGET) or KeyboardInterrupt if there
    is no pair by then.
    """
    draw = chance or random.Random()
    clients: list[Client] = []
    run = Run()
    try:
        # TLS first: caching_sha2_password lets an account in without it only after that.
        clients += [Client(access, "tls")]
        clients += [Client(access, "plaintext")]
        _take_pairs(run, clients, 2 / rate, seconds, wait, draw)
        for client in clients:
            client.check()
    except KeyboardInterrupt:
        if not run.pairs:
            raise
    except TlstaxError as error:
        if not run.pairs:
            raise
        run.failure = error
    finally:
        for client in clients:
            client.close()
    return run


def _take_pairs(
    run: Run,
    clients: list[Client],
    slot_s: float,
    seconds: float,
    wait: Callable[[float], None],
    draw: random.Random,
) -> None:
    start_ns = time.monotonic_ns()
    end = time.monotonic() + seconds
    while not run.pairs or time.monotonic() < end:
        begun = time.monotonic()
        taken = {client.arm: client.connect() for client in draw.sample(clients, 2)}
        run.elapsed_ns = time.monotonic_ns() - start_ns
        run.pairs.append(Pair(taken["plaintext"], taken["tls"]))
        # The start of each pair is drawn from its slot, so that no rhythm of the server is hit.
        # A server that is slower than the rate is given as long to rest as it took.
        taken_s = time.monotonic() - begun
        wait(max(taken_s, slot_s * draw.uniform(0.5, 1.5) - taken_s))
        run.elapsed_ns = time.monotonic_ns() - start_ns


@dataclass(frozen=True)
class Summary:
    """Medians of pairs, in ns; the interval (95 %) or range is of the difference."""

    count: int
    plaintext_ns: float
    tls_ns: float
    difference_ns: float
    low_ns: float
    high_ns: float
    busy_share: float
    """Time in which a connection of ours was being opened, of the whole time: about the most that
    it can have cost the server, in CPUs."""

    @property
    def has_interval(self) -> bool:
        """Whether there are enough pairs for one."""
        return self.count >= LEAST_UNITS


def summarize(run: Run) -> Summary:
    """Medians, and the bounds of the difference by pairs, of which there is at least one."""
    ordered = sorted(pair.difference_ns for pair in run.pairs)
    low, high = median_bounds(ordered)
    return Summary(
        len(ordered),
        statistics.median(pair.plaintext_ns for pair in run.pairs),
        statistics.median(pair.tls_ns for pair in run.pairs),
        statistics.median(ordered),
        low,
        high,
        sum(pair.plaintext_ns + pair.tls_ns for pair in run.pairs) / run.elapsed_ns,
    )
