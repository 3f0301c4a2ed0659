# SPDX-License-Identifier: GPL-2.0-only
"""Pairs of connections to a server in production, one in plaintext and one with TLS.

Two client programs stay open and are told to connect anew, so that no start of a program is in the
times. Each connection opens, logs in, asks `SELECT 1` and stays until the next one replaces it.
User and password are in an option file or a login path: never in an argument or the environment.
"""

import os
import random
import selectors
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.order_statistics import LEAST_UNITS, median_bounds

PATIENCE_S: Final = 30.0
"""For one connection; a server that takes longer has other problems."""
MARK: Final = "tlstax-canary"
ARMS: Final = ("plaintext", "tls")


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
        tls = {
            "plaintext": ["--ssl-mode=DISABLED"] if by_mode else ["--skip-ssl"],
            "tls": ["--ssl-mode=REQUIRED"] if by_mode else ["--ssl"],
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
            env={"PATH": os.defpath, "LC_ALL": "C", "HOME": os.environ.get("HOME", "/")},
        )  # fmt: skip
        try:
            lines = self._ask("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            cipher = next((x.split("\t")[1] for x in lines if x.startswith("Ssl_cipher\t")), "")
            if bool(cipher) != (arm == "tls"):
                raise _refused(arm, f"the connection has the cipher '{cipher}'")
        except TlstaxError:
            self.close()
            raise

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
    advice = (
        "Check user and password. Use an account without REQUIRE SSL, on a server without "
        "require_secure_transport; where plaintext is not allowed, `tlstax whatif --no-tls` bounds "
        "what TLS costs"
        if arm == "plaintext"
        else "Check user, password and ssl-ca in the option file or login path"
    )
    return TlstaxError(f"cannot connect {what}", why, advice, ExitCode.TARGET)


@dataclass(frozen=True)
class Pair:
    """One connection of each arm, in ns."""

    plaintext_ns: int
    tls_ns: int

    @property
    def difference_ns(self) -> int:
        """What TLS adds."""
        return self.tls_ns - self.plaintext_ns


def measure(
    access: Access,
    rate: float,
    seconds: float,
    wait: Callable[[float], None] = time.sleep,
    chance: random.Random | None = None,
) -> list[Pair]:
    """Pairs for so long, `rate` connections a second; which arm is first is drawn each time."""
    draw = chance or random.Random()
    clients: list[Client] = []
    pairs: list[Pair] = []
    try:
        clients += [Client(access, "plaintext")]
        clients += [Client(access, "tls")]
        end = time.monotonic() + seconds
        while not pairs or time.monotonic() < end:
            begun = time.monotonic()
            ordered = draw.sample(clients, 2)
            taken = {client.arm: client.connect() for client in ordered}
            pairs.append(Pair(taken["plaintext"], taken["tls"]))
            # The start of each pair is drawn from its slot, so that no rhythm of the server is hit.
            slot = 2 / rate
            wait(max(0.0, slot * draw.uniform(0.5, 1.5) - (time.monotonic() - begun)))
    finally:
        for client in clients:
            client.close()
    return pairs


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
    """Time in which a connection of ours was being opened, of the whole time: the most that it can
    have cost the server, in CPUs."""

    @property
    def has_interval(self) -> bool:
        """Whether there are enough pairs for one."""
        return self.count >= LEAST_UNITS


def summarize(pairs: list[Pair], rate: float) -> Summary:
    """Medians, and the bounds of the difference by pairs. `rate`: connections a second."""
    ordered = sorted(pair.difference_ns for pair in pairs)
    low, high = median_bounds(ordered)
    both = statistics.fmean(pair.plaintext_ns + pair.tls_ns for pair in pairs)
    return Summary(
        len(pairs),
        statistics.median(pair.plaintext_ns for pair in pairs),
        statistics.median(pair.tls_ns for pair in pairs),
        statistics.median(ordered),
        low,
        high,
        both / 1e9 * rate / 2,
    )
