# SPDX-License-Identifier: GPL-2.0-only
"""How a load is recorded: with everything all the time, or by `tlstax attach` as people run it."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.sockets import Sockets
from tlstax.collectors.sources.status import ServerStatus

WINDOW_S = 0.5
SAMPLE_HZ = 499
PROGRAM = Path(sys.executable).with_name("tlstax")
LATE_S = 60.0
"""What `attach` may need to begin and to end, on a busy host."""


@dataclass(frozen=True)
class Mode:
    """What is recorded of a load."""

    name: str
    options: tuple[str, ...] | None
    """Of `tlstax attach`; None: everything all the time, in short windows, with many samples."""
    longer: int = 1
    """Factor for the length of a recording."""


MODES = {
    mode.name: mode
    for mode in (
        Mode("none", None),
        Mode("default", (), 10),
        Mode("default-30s", (), 5),
        Mode("flow", ("--level", "flow", "--calibrate", "--budget", "none"), 5),
        Mode("windows", ("--level", "record", "--budget", "5%"), 10),
    )
}
"""Names for check.py --mode. `default` is `attach PID`, which chooses a level by its price: of most
loads a minute, and half as long with `default-30s`. `flow` and `windows` are what it may choose,
wherever that is on the host at hand.
"""


@dataclass(frozen=True)
class Recording:
    """What is recorded of a server."""

    pid: int
    capture: Path
    seconds: float
    status: Path | None = None
    """Option file of an account that reads the server's counters."""
    sockets: bool = True
    """Whether `attach` collects the TCP counters of clients, which take more CPU time than its
    budget has on a server that is little used. Without a budget they are collected in any case.
    """
    window_s: float = WINDOW_S
    clients: tuple[int, ...] = ()
    functions: tuple[str, ...] = ()

    def make(self, mode: Mode) -> None:
        """Record in this mode. AssertionError says why it could not."""
        if mode.options is None:
            self._by_recorder()
        else:
            self._by_attach(mode.options)

    def _by_recorder(self) -> None:
        sources = None
        if self.status is not None:
            status = ServerStatus(option_file=self.status, pid=self.pid)
            sources = SourceSet([status, Sockets(self.pid)])
        request = Request(
            self.pid, self.capture, window_s=self.window_s, sample_hz=SAMPLE_HZ, sources=sources,
            clients=self.clients, functions=self.functions, overwrite=True,
        )  # fmt: skip
        with Recorder(request) as recorder:
            recorder.poll(self.seconds)
            assert not recorder.ending, recorder.ending

    def _by_attach(self, options: Sequence[str]) -> None:
        if self.clients or self.functions:
            raise AssertionError("what has no budget has no default")
        collected = []
        if self.status is not None:
            names = "native,status,sockets" if self.sockets else "native,status"
            collected = ["--collect", names, "--status-file", str(self.status)]
        made = subprocess.run(
            [str(PROGRAM), "attach", str(self.pid), "-o", str(self.capture), "--force", "--quiet",
             "--for", f"{self.seconds:g}s", *collected, *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=self.seconds + LATE_S,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr[-2000:]
