# SPDX-License-Identifier: GPL-2.0-only
"""A second process in a recording: a client, or a tunnel or proxy between client and server.

It has a separate engine with programs and maps, and writes windows with the same start and end as
the server's into the same capture. It may start and end while the server is recorded.
"""

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import still_runs
from tlstax.collectors.process.thread_room import thread_room
from tlstax.collectors.recording.engine.native import Engine, Options
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import preflight, programs_of, safety_rows
from tlstax.collectors.recording.stack_store import StackStore, UnnamedFrames
from tlstax.collectors.recording.target_rows import SERVER_ID, gap_rows, probe_rows, target_row
from tlstax.collectors.recording.windows import WindowCutter, WindowTotals
from tlstax.collectors.unwinding.process_tables import SharedTables
from tlstax.probes.model import Level

ROOM_LEAST: Final = 256
"""Room for threads of a client."""
TUNNEL_ROOM_LEAST: Final = 2048
"""Of a tunnel or proxy: some start a thread per connection, which counts until the next cut."""
WAIT_SHARE: Final = 64
"""A client waits once per query, and their rate is unknown at the start: few stacks are walked."""


@dataclass(frozen=True)
class PeerRequest:
    """What to record of a client, or of a tunnel or proxy."""

    pid: int
    level: Level = Level.HANDSHAKE
    sample_hz: int = 99
    definitions: Path | None = None
    role: str = "client"  # or "tunnel", "proxy"
    label: str = ""  # the name that reports show
    accepted: tuple[str, ...] = ()  # hazards whose safe variants are not applied
    unwind_tables: bool = True


def peer_request(request: Request, pid: int, role: str, label: str) -> PeerRequest:
    """What a recording records of a further process."""
    return PeerRequest(
        pid,
        request.client_level,
        request.sample_hz,
        request.definitions,
        role,
        label,
        request.accepted,
        request.unwind_tables,
    )


class Peer:
    """A client that is being recorded."""

    def __init__(self, target_id: int, request: PeerRequest, tables: SharedTables) -> None:
        """Attach to it. Raises TlstaxError when it has ended or cannot be a client.

        It is examined before, as the server is (`safe_request.preflight`).
        """
        self.target_id = target_id
        self.pid = request.pid
        self.role = request.role
        self._label = request.label
        self._safety = safety = preflight(request.pid, request.accepted)
        level = min(request.level, safety.level_most)
        target, plan = plan_in_child(
            request.pid, level, request.definitions, request.role, safety.limits
        )
        try:
            self._pidfd = os.pidfd_open(request.pid)
        except OSError as error:
            raise _gone(request.pid, error.strerror or str(error)) from error
        self._exited = select.poll()
        self._exited.register(self._pidfd, select.POLLIN)
        self._target = target
        least = ROOM_LEAST if request.role == "client" else TUNNEL_ROOM_LEAST
        options = Options(
            sample_hz=request.sample_hz if safety.samples else 0,
            slots_count=thread_room(request.pid, least),
            user_stacks=safety.user_stacks,
            unwind_tables=request.unwind_tables,
            programs=programs_of(safety),
            files=target.objects,
            tables=tables,
        )
        try:
            self._engine = Engine(request.pid, plan, options)
        except BaseException:
            os.close(self._pidfd)
            raise
        try:
            self._symbolizer = Symbolizer(target)
            self._stacks = StackStore(self._engine.stack_addresses, self._symbolizer, target_id)
            self._engine.walk_one_wait_in(WAIT_SHARE)
            self._engine.attach()
            if not still_runs(target):
                raise _gone(request.pid, "it ended or executed another program")
        except BaseException:
            self._engine.close()
            os.close(self._pidfd)
            raise

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended or runs another program now."""
        return bool(self._exited.poll(0)) or bool(self._engine.maps.executed_ns())

    def begin(self, start_ns: int) -> list[schema.Row]:
        """Its first window begins then; the rows that describe it."""
        self._cutter = WindowCutter(
            self._engine,
            self._stacks,
            target_id=self.target_id,
            start_ns=start_ns,
            wait_share=WAIT_SHARE,
            all_clocks=self.role != "client",
        )
        row = target_row(self._target, self._engine.plan, self.target_id, self._label)
        gaps = gap_rows(self._engine.plan, self.target_id)
        safety = safety_rows(self._safety, self.target_id)
        return [row, *gaps, *safety, *probe_rows(self._engine, self.target_id)]

    def cut(self, run_id: int | None, end_ns: int) -> tuple[list[schema.Row], WindowTotals]:
        """End its window together with the server's."""
        return self._cutter.cut(run_id, end_ns)

    def finish(self, unnamed: UnnamedFrames) -> tuple[list[schema.Row], Symbolizer]:
        """Detach; what the probes counted, and its files for the names of its functions."""
        rows: list[schema.Row] = [*probe_rows(self._engine, self.target_id)]
        is_over = self.has_ended  # by a map of the engine
        self._engine.close()
        self._stacks.leave(unnamed, is_over=is_over)
        self._close_pidfd()
        return rows, self._symbolizer

    def close(self) -> None:
        """Detach and close everything. Closing twice does nothing."""
        self._engine.close()
        self._symbolizer.close()
        self._close_pidfd()

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


class PeerSet:
    """The processes that are recorded in addition to the server; they may start and end.

    Their functions are named at the end of the recording, with those of the server: clients that
    come one after the other are mostly at the same places.
    """

    def __init__(self, unnamed: UnnamedFrames) -> None:
        self._unnamed = unnamed
        self._peers: list[Peer] = []
        self._ended: list[Symbolizer] = []  # whose files are needed to name functions
        self._tables = SharedTables()
        self._last_target_id = SERVER_ID
        self.client_handshakes_count = 0
        """Handshakes that clients finished since the caller set it to 0."""

    @property
    def has_client(self) -> bool:
        """Whether one of them is a client."""
        return any(peer.role == "client" for peer in self._peers)

    def attach(self, request: PeerRequest) -> Peer:
        """Attach to another one, which `begin` adds to the set. Raises what Peer raises."""
        peer = Peer(self._last_target_id + 1, request, self._tables)
        self._last_target_id += 1
        return peer

    def begin(self, peer: Peer, start_ns: int) -> list[schema.Row]:
        """Its first window begins then; the rows that describe it."""
        rows = peer.begin(start_ns)
        self._peers.append(peer)
        return rows

    def cut(self, run_id: int | None, end_ns: int) -> Iterator[list[schema.Row]]:
        """End the window of each of them."""
        for peer in self._peers:
            rows, totals = peer.cut(run_id, end_ns)
            yield rows
            if peer.role == "client":
                good = (one for one in totals.handshakes if one.outcome == "success")
                self.client_handshakes_count += sum(1 for _ in good)

    def finish(self, all_of_them: bool = False) -> Iterator[list[schema.Row]]:
        """Detach from those that have ended, or from all; their last rows."""
        for peer in list(self._peers):
            if all_of_them or peer.has_ended:
                self._peers.remove(peer)
                rows, symbolizer = peer.finish(self._unnamed)
                if self._unnamed.needs(symbolizer):
                    self._ended.append(symbolizer)
                else:
                    symbolizer.close()
                yield rows

    def close_files(self) -> None:
        """Close the files of those that have ended; their functions have been named."""
        for symbolizer in self._ended:
            symbolizer.close()
        self._ended.clear()

    def close(self) -> None:
        """Detach from all of them, without their last rows."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()
        self.close_files()


def _gone(pid: int, why: str) -> TlstaxError:
    return TlstaxError(
        f"client process {pid} cannot be recorded",
        why,
        "check that it is still running",
        ExitCode.TARGET,
    )
