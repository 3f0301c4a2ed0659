# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment hands over: runs, status samples, and what it expects of a recorder.

`workloads` comes before `collectors` in the flow, so it never imports them. The recorder that
watches the server during an experiment is passed in and only has to look like `Recorder`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Arm = Literal["plaintext", "tls"]
ARMS: tuple[Arm, Arm] = ("plaintext", "tls")


@dataclass(frozen=True)
class RunTotals:
    """What a recorder saw between `begin_run` and `end_run`, independent of server and driver."""

    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int  # CLOCK_MONOTONIC
    handshake_count: int | None  # handshakes that ended in success; None: nobody watched
    handshake_failed_count: int = 0  # handshakes that failed or were abandoned
    resumed_count: int = 0  # successful handshakes that resumed a session
    tls_call_count: int = 0  # TLS reads and writes seen, 0 also where they are not probed
    lost_handshake_count: int = 0  # records that the recorder had to drop
    tls_versions: Mapping[str, int] = field(default_factory=dict)  # 'TLSv1.3' -> handshakes
    ciphers: Mapping[str, int] = field(default_factory=dict)  # 'TLS_AES_...' -> handshakes
    phase_counts: Mapping[str, int] = field(default_factory=dict)  # phase -> times entered
    client_handshake_count: int | None = None  # successful ones at the client; None: not watched


@dataclass(frozen=True)
class RunResult:
    """One run of one driver in one arm: the fields of the capture's `Run`, in its order."""

    run_id: int
    driver: str  # pooled | storm
    scenario: str  # point_select | read_only | connect | bulk_result
    arm: Arm
    round: int
    start_ns: int  # CLOCK_MONOTONIC, as the recorder cut it
    end_ns: int
    threads_count: int
    connection_count: int  # connections that the driver opened
    operation_count: int  # events: transactions of a pooled driver, connects of a storm
    client_mean_ns: int
    client_p95_ns: int
    client_max_ns: int
    client_cpu_ns: int  # user and system time of the driver process
    proof: str  # JSON of the counters that agreed


@dataclass(frozen=True)
class StatusSample:
    """One server counter at one time: the fields of the capture's `Status`, in its order."""

    time_ns: int  # CLOCK_MONOTONIC
    run_id: int | None
    name: str
    value: int


class Recorder(Protocol):
    """Whatever watches the server while drivers run."""

    def poll(self, seconds: float) -> None:
        """Do the work of about `seconds` and return; stands in for a sleep."""

    def add_client(self, pid: int) -> None:
        """Watch a client of the server, too, from now until it ends."""

    def add_peer(self, pid: int, role: str, label: str = "") -> None:
        """Watch a process between clients and server: role 'tunnel' or 'proxy'."""

    def begin_run(self, run_id: int) -> None:
        """Cut a window here: those that follow belong to `run_id`."""

    def end_run(self) -> RunTotals:
        """Cut a window here and tell what the run was seen to do."""

    def add(self, rows: Iterable[RunResult | StatusSample]) -> None:
        """Keep rows with the recording."""


class OpenRecorder(Protocol):
    """How the command line wires the recorder in."""

    def __call__(
        self, pid: int, capture: Path, collect: Sequence[str] = ()
    ) -> AbstractContextManager[Recorder]:
        """Record the server into a new capture; `collect`: procfs, iostat beside the ledger."""


# render_report(capture file, directory for its files), which returns the path of the HTML.
RenderReport = Callable[[Path, Path], Path]
