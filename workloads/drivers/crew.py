# SPDX-License-Identifier: GPL-2.0-only
"""Client processes from start to end: ready together, let go together, never outliving the run.

A client prints GATE when it is ready and stands there until it is told to go. Several processes
are started at once, so that the load begins with all of them.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.model import Tick

LOOK_S = 0.05  # between two looks at whether the clients ended
GATE = b"tlstax gate\n"
GO = b"tlstax go\n"
GATE_LOOK_S = 0.005
GATE_PATIENCE_S, GATE_PATIENCE_EACH_S = 30.0, 1.0
GATE_BYTES_MAX = 1 << 16  # what a client may print before it
TAIL_LINES = 4
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Command:
    """How a client is started."""

    program: str  # its name in messages
    arguments: Sequence[str]
    directory: Path
    environment: Mapping[str, str]  # in addition to PATH and LC_ALL


@dataclass(frozen=True)
class Ended:
    """A client that ended well."""

    pid: int
    text: str  # what it printed
    cpu_ns: int  # user and system time, from its birth to its end


class _Client:
    """One process; `order` is the first that it reads."""

    def __init__(self, command: Command, order: bytes, output: IO[bytes]) -> None:
        self._program, self._output = command.program, output
        self.process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=command.directory,
            env={"PATH": os.defpath, "LC_ALL": "C"} | dict(command.environment),
            start_new_session=True,  # Ctrl-C ends us, and we end it
        )
        self.cpu_ns = 0
        if order:
            self._tell(order)

    def is_at_gate(self) -> bool:
        """Raises TlstaxError (FAILED) if it ended instead."""
        if GATE in os.pread(self._output.fileno(), GATE_BYTES_MAX, 0):
            return True
        if self.process.poll() is not None:
            raise self.failed("it did not become ready")
        return False

    def release(self) -> None:
        """Let it go; it reads nothing more."""
        self._tell(GO)
        assert self.process.stdin is not None
        self.process.stdin.close()

    def has_ended(self) -> bool:
        """Look, without waiting. Raises TlstaxError (FAILED) if it failed."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if not pid:
                return False
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_ns = round((usage.ru_utime + usage.ru_stime) * NS_PER_S)
        if self.process.returncode != 0:
            raise self.failed(f"it ended with status {self.process.returncode}")
        return True

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                return

    def text(self) -> str:
        """What it printed so far."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def failed(self, why: str) -> TlstaxError:
        """An error with what the client said about it."""
        return client_failed(self._program, why, self.text())

    def _tell(self, line: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            self.process.wait()
            raise self.failed("it ended too early") from None


def run_clients(
    command: Command, orders: Sequence[bytes], limit_s: float, tick: Tick, *, gated: bool = True
) -> list[Ended]:
    """Start one client for each of `orders`, let them go together and await their ends.

    TlstaxError (FAILED) with the client's own words if one fails or needs more than `limit_s`.
    """
    with _clients(command, orders) as clients:
        if gated:
            _await_gate(clients)
            tick.at_gate([client.process.pid for client in clients])
            for client in clients:
                client.release()
        deadline = time.monotonic() + limit_s
        running = clients
        while running := [client for client in running if not client.has_ended()]:
            if time.monotonic() > deadline:
                raise running[0].failed(f"it had not ended after {limit_s:.0f} s")
            tick.wait(LOOK_S)
        return [Ended(client.process.pid, client.text(), client.cpu_ns) for client in clients]


@contextmanager
def _clients(command: Command, orders: Sequence[bytes]) -> Iterator[list[_Client]]:
    with ExitStack() as stack:
        clients = []
        for order in orders:
            output = stack.enter_context(tempfile.TemporaryFile())
            client = _Client(command, order, output)
            stack.callback(client.end)
            clients.append(client)
        yield clients


def _await_gate(clients: Sequence[_Client]) -> None:
    patience_s = GATE_PATIENCE_S + GATE_PATIENCE_EACH_S * len(clients)
    deadline = time.monotonic() + patience_s
    waiting = list(clients)
    while waiting := [client for client in waiting if not client.is_at_gate()]:
        if time.monotonic() > deadline:
            raise waiting[0].failed(f"it was not ready after {patience_s:.0f} s")
        time.sleep(GATE_LOOK_S)


def client_failed(program: str, why: str, text: str) -> TlstaxError:
    """An error with a client's last lines, or those that it marks FATAL."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("FATAL")] or lines
    said = " | ".join(telling[-TAIL_LINES:])
    return TlstaxError(
        f"a {program} run failed",
        f"{why}; it said: {said}" if said else why,
        f"Check that {program} and the server fit together, then run it again",
        ExitCode.FAILED,
    )
