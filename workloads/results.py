# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment expects of a recorder, and what the recorder reports of a run.

The result of a run is one row, `Run` of the capture's schema; counters of the server are its
`Status`. `workloads` comes before `collectors` in the flow and imports nothing of it but that
schema: the recorder is passed in and has the methods of `Recorder`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tlstax.collectors.capture.schema import Run, Status

Arm = Literal["plaintext", "tls"]
ARMS: tuple[Arm, Arm] = ("plaintext", "tls")


@dataclass(frozen=True)
class RunTotals:
    """What a recorder saw between `begin_run` and `end_run`, independent of server and driver."""

    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int  # CLOCK_MONOTONIC
    handshake_count: int | None  # handshakes that ended in success; None: not recorded
    handshake_failed_count: int = 0  # handshakes that failed or were abandoned
    resumed_count: int = 0  # successful handshakes that resumed a session
    tls_call_count: int = 0  # TLS reads and writes seen, 0 also where they are not probed
    lost_handshake_count: int = 0  # records that the recorder had to drop
    tls_versions: Mapping[str, int] = field(default_factory=dict)  # 'TLSv1.3' -> handshakes
    ciphers: Mapping[str, int] = field(default_factory=dict)  # 'TLS_AES_...' -> handshakes
    groups: Mapping[str, int] = field(default_factory=dict)  # 'X25519', or 'unknown'
    phase_counts: Mapping[str, int] = field(default_factory=dict)  # phase -> times entered
    client_handshake_count: int | None = None  # successful ones at the client; None: not recorded


class Recorder(Protocol):
    """What records the server while drivers run."""

    def poll(self, seconds: float) -> None:
        """Do the work of about `seconds` and return; stands in for a sleep."""

    def add_client(self, pid: int) -> None:
        """Record a client of the server, too, from now until it ends."""

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """Record a process between clients and server: role 'tunnel' or 'proxy'."""

    def begin_run(self, run_id: int) -> None:
        """Cut a window here: those that follow belong to `run_id`."""

    def end_run(self) -> RunTotals:
        """Cut a window here; what the recorder saw of the run."""

    def add(self, rows: Iterable[Run | Status]) -> None:
        """Keep rows with the recording."""


class NullRecorder:
    """Records nothing: for warm-ups, and for runs without probes."""

    def __init__(self) -> None:
        self._start_ns = 0

    def poll(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def add_client(self, pid: int) -> None:
        """Do nothing."""

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """Do nothing."""

    def begin_run(self, run_id: int) -> None:
        """Keep the time."""
        self._start_ns = time.monotonic_ns()

    def end_run(self) -> RunTotals:
        """The interval, and no counts."""
        return RunTotals(self._start_ns, time.monotonic_ns(), handshake_count=None)

    def add(self, rows: Iterable[Run | Status]) -> None:
        """Drop them."""


class OpenRecorder(Protocol):
    """How a recorder is opened."""

    def __call__(
        self, pid: int, capture: Path, collect: Sequence[str] = ()
    ) -> AbstractContextManager[Recorder]:
        """Record the server into a new capture; `collect`: further sources, procfs or iostat."""


# render_report(capture file, directory for its files), which returns the path of the HTML.
RenderReport = Callable[[Path, Path], Path]
