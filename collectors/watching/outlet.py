# SPDX-License-Identifier: GPL-2.0-only
"""What a watch does with the windows of a server: rollups, and captures of the last hours."""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.cpu_facts import cpu_facts
from tlstax.collectors.host.recording_facts import recording_facts
from tlstax.collectors.process.control_groups import Group
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.programs.expected_cost import budget_summary
from tlstax.collectors.recording.windows import WindowTotals
from tlstax.collectors.watching.preparation import SHORTAGE, Prepared, prepare
from tlstax.collectors.watching.raw_captures import RawCaptures
from tlstax.collectors.watching.sink import Sink
from tlstax.probes.model import Level

SAMPLE_HZ: Final = 3
"""CPU samples a second and CPU: 10,000 an hour of each CPU that the server uses."""
WALKS_MOST: Final = 20
"""Stacks of waits that are walked in a second."""
STACKS_MOST: Final = (8192, 20_000)
"""Stacks that are kept in memory as they are sent, and of an hour."""
_WHY_UNKNOWN: Final = (
    "the function by which its TLS library gets the socket of a connection was not found"
)
_SHORTAGES: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
LEAST_CPUS: Final = 1.0
"""A server that uses less CPU is counted as using this much by the budget."""


@dataclass(frozen=True)
class Watched:
    """Which server is recorded, and how."""

    name: str  # "": only the process `pid`
    pid: int
    budget: float | None  # share of the server's CPU time; None: no limit
    window_s: float
    level: Level = Level.FLOW
    accepted: Sequence[str] = ()
    group: Group = field(default_factory=Group)
    network_bits: tuple[int, int] | None = None  # of clients' addresses; None: no address at all

    @property
    def who(self) -> str:
        """As part of a sentence."""
        return f"called {self.name}" + (f" of {self.group}" if any(self.group) else "")

    def prepare(self, pid: int) -> Prepared:
        """Examine a process and plan its probes. Raises TlstaxError."""
        has_networks = self.network_bits is not None
        return prepare(pid, self.level, self.accepted, networks=has_networks)

    def arguments(self, prepared: Prepared) -> list[str]:
        """Those of the recorder for a server."""
        sample_hz = SAMPLE_HZ if prepared.safety.samples else 0
        values = {
            "--pid": str(prepared.target.pid),
            "--window": f"{self.window_s * 1000:.3f}ms",
            "--sample-hz": str(sample_hz),
            "--wait-walks": str(WALKS_MOST),
            "--slots": str(prepared.thread_room),
        }
        if self.budget is not None:
            values |= {
                "--budget": f"{self.budget:%}",
                "--floor-cpus": f"{LEAST_CPUS:g}",
                "--reader": str(os.getpid()),
            }
        if self.network_bits is not None:
            values["--client-networks"] = ",".join(map(str, self.network_bits))
        words = [word for pair in values.items() for word in pair]
        return [*words, "--traced"] if prepared.may_be_traced else words


class Outlet:
    """Of one server, through its restarts."""

    def __init__(
        self,
        sink: Sink,
        raw: RawCaptures | None,
        tell: Callable[[str], None],
        close: Callable[[], object],
    ) -> None:
        """`raw`: where the windows of the last hours are kept, if they are; `close`: both."""
        self._sink, self._raw, self._tell = sink, raw, tell
        self.close = close
        """Write what is left, and give up the claim of the server's place in the data."""
        self.own_cpu_ns = 0
        """CPU time of tlstax and its recorder for it, as far as its windows have it."""

    def attached(self, session: RecorderSession, prepared: Prepared, before_ns: int) -> None:
        """A recorder was attached; `before_ns`: cpu_used_ns() where its work began."""
        asked = session.facts(before_ns)
        self.own_cpu_ns += int(str(asked["start_cpu_ns"]))
        level = prepared.level.name.lower()
        facts = recording_facts("native", level, **cpu_facts(), **asked)
        if session.budget is not None:
            facts += session.rows.facts()
        facts.append(schema.Meta("effect_floor_cpus", f"{LEAST_CPUS:g}"))
        begun = session.rows.begin()
        self._sink.begin([*facts, *(row for row in begun if isinstance(row, schema.Target))])
        if self._raw:
            self._raw.attached(session.rows, prepared.target.pid, facts)
        self._announce(session, prepared)

    def _announce(self, session: RecorderSession, prepared: Prepared) -> None:
        target, tls = prepared.target, prepared.plan.library("tls")
        self._tell(
            f"recording process {target.pid} ({target.exe}, "
            f"{tls.name if tls else 'unknown TLS library'}) at level {prepared.level.name.lower()}"
        )
        if session.budget is not None:
            self._tell(budget_summary(session.budget))
        if session.replay.network_bits[0] and not prepared.plan.has_networks:
            self._tell("the networks of its clients stay unknown: " + _WHY_UNKNOWN)
        for note in prepared.safety.notes:
            self._tell(f"preflight ({note.hazard}): {note.text}")

    def take(self, windows: Iterable[tuple[list[schema.Row], WindowTotals]]) -> None:
        """Pass on windows that have ended."""
        for rows, _ in windows:
            self.own_cpu_ns += sum(
                row.engine_cpu_ns for row in rows if isinstance(row, schema.System)
            )
            is_worth_keeping = self._sink.window(rows)
            if self._raw:
                self._raw.window(rows, self._sink.source)
                if is_worth_keeping:
                    self._raw.keep()

    def end(self, close: Callable[[], int]) -> int:
        """Detach: what `close` does, and returns the exit status of."""
        try:
            if self._raw:
                self._raw.detached()
        finally:
            status = close()
            self._sink.detached()
        return status

    def settle(self) -> None:
        """While nothing is recorded: write what was found out about the last hour meanwhile."""
        if self._raw:
            self._raw.take_named()
        self._sink.settle()


def why_failed(pid: int, error: TlstaxError | OSError) -> TlstaxError:
    """Why a process is not recorded, also where the host has no room for what that needs."""
    if isinstance(error, TlstaxError):
        return error
    what, why = f"process {pid} cannot be recorded", error.strerror or str(error)
    advice = SHORTAGE if error.errno in _SHORTAGES else "Check what the error names"
    return TlstaxError(what, why, advice, ExitCode.HOST)


def how_it_ended(ending: str, status: int, said: str) -> str:
    """`ending`, with the reason of a recorder that failed."""
    if status >= 0:
        return f"{ending}; {said}"
    return f"{ending}; signal {-status} ended the recorder, which said: {said}"
