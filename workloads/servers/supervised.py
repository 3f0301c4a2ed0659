# SPDX-License-Identifier: GPL-2.0-only
"""tlstax's end of a supervisor: starting it, reading its events, asking it to stop."""

import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tlstax.workloads.servers import supervisor
from tlstax.workloads.servers.programs import SEARCH_PATH

STOP_PATIENCE_S = 30.0


class Supervised:
    """A running supervisor.py, which runs the steps of a specification."""

    def __init__(self, specification: Path, environment: Mapping[str, str]) -> None:
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), str(specification)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"} | dict(environment),
        )
        self.pid = self._process.pid

    def next_event(self, patience_s: float) -> str | None:
        """The supervisor's next event, or None if none came in time or it is gone."""
        stdout: IO[bytes] | None = self._process.stdout if self._process else None
        if stdout is None:
            return None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(patience_s):
                return None
        # One write is one line and pipes keep short writes whole, but two may have come together.
        received = bytearray()
        while not received.endswith(b"\n") and (byte := os.read(stdout.fileno(), 1)):
            received += byte
        return received.decode().strip()

    def stop(self) -> None:
        """End it, and with it all that it started. Safe to repeat."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            process.stdin.close()  # the supervisor takes it as the request to stop
        try:
            process.wait(timeout=STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel then kills the server
            process.wait()
        if process.stdout:
            process.stdout.close()
