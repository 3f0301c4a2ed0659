# SPDX-License-Identifier: GPL-2.0-only
"""A second process in a recording: a client, or a tunnel or proxy between client and server.

It has windows with the same start and end as the server's, in the same capture. The server's
recorder records those that are there from the start. One that is added while the server is recorded
has a recorder of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.thread_room import thread_room
from tlstax.collectors.recording.by_recorder.asked import Asked, Recorded
from tlstax.collectors.recording.by_recorder.child import ChildPart
from tlstax.collectors.recording.by_recorder.session import RecorderSession
from tlstax.collectors.recording.proc_clocks import BothClocks
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import preflight
from tlstax.collectors.recording.stack_store import UnnamedFrames
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.tables_file import usable_tables
from tlstax.collectors.recording.target_rows import SERVER_ID
from tlstax.collectors.recording.windows import WindowTotals
from tlstax.collectors.unwinding.process_tables import SharedTables, maps_of

ROOM_LEAST: Final = 256
"""Room for threads of a client."""
TUNNEL_ROOM_LEAST: Final = 2048
"""Of a tunnel or proxy: some start a thread per connection, which counts until the next cut."""
_OTHERS_MOST: Final = definition().number("TARGETS_MOST") - 1
"""Processes that the server's recorder records besides it."""
_ON_COMMAND: Final = "1440m"
"""Length of a window that nobody ends: a day."""


class PeerRequest(NamedTuple):
    """What to record of a client, or of a tunnel or proxy."""

    pid: int
    role: str  # "client", "tunnel" or "proxy"
    label: str  # the name that reports show
    request: Request  # the server's


def given_twice(pid: int) -> TlstaxError:
    """The error for a process with two parts in one recording."""
    return TlstaxError(
        f"process {pid} was given twice",
        "a process is either the server, a client, or a tunnel or proxy between them",
        "name each process once",
        ExitCode.USAGE,
    )


def _asked_of(target_id: int, peer: PeerRequest, tables: SharedTables) -> Asked:
    """Examine a process as the server is (`safe_request.preflight`), and plan for it.

    Raises TlstaxError when it has ended or cannot be a client.
    """
    request = peer.request
    safety = preflight(peer.pid, request.accepted)
    level = min(request.client_level, safety.level_most)
    target, plan = plan_in_child(peer.pid, level, request.definitions, peer.role, safety.limits)
    least = ROOM_LEAST if peer.role == "client" else TUNNEL_ROOM_LEAST
    values = {
        "--pid": str(peer.pid),
        "--window": _ON_COMMAND,
        "--sample-hz": str(request.sample_hz if safety.samples else 0),
        "--slots": str(thread_room(peer.pid, least)),
    }
    arguments = [word for pair in values.items() for word in pair]
    arguments += ["--traced"] if "tracer" in request.accepted else []
    growing = None
    if request.unwind_tables and safety.user_stacks and (maps := maps_of(peer.pid)):
        growing = usable_tables(peer.pid, tables.lay_out(peer.pid, maps, target.objects))
    recorded = Recorded(target, plan, safety, target_id=target_id, label=peer.label)
    return Asked(recorded, arguments, growing)


class Peer:
    """A client that is being recorded."""

    def __init__(self, asked: Asked, role: str, child: ChildPart | None = None) -> None:
        """Attach to it, or have `child`: the server's recorder is attached to it already."""
        self.pid, self.role = asked.recorded.target.pid, role
        self.has_own_recorder = child is None
        self.has_begun = False
        """Whether it has windows."""
        self._session = RecorderSession(*asked, child=child)

    def begin(self, start_ns: int) -> list[schema.Row]:
        """Its first window begins then; the rows that describe it."""
        self._session.begin_at(start_ns)
        self.has_begun = True
        return list(self._session.rows.begin())

    @property
    def has_ended(self) -> bool:
        """Whether its recorder has ended, for whatever reason, and its last window was taken."""
        return self._session.is_read

    @property
    def own_costs(self) -> tuple[int, int]:
        """CPU time in ns that its recorder used by the last window, and bytes of its memory."""
        return self._session.own_costs

    def listen(self) -> None:
        """Take what its recorder wrote: that gives up if nobody does."""
        self._session.listen()

    def ask(self, end_ns: int) -> None:
        """Its window ends then, which `cut` takes."""
        self._session.cut(end_ns)

    def cut(self, run_id: int | None, end_ns: int) -> tuple[list[schema.Row], WindowTotals] | None:
        """Its window, which ends with the server's; None after its end."""
        return self._session.window_ending(run_id, end_ns)

    def finish(self, unnamed: UnnamedFrames) -> tuple[list[schema.Row], Symbolizer]:
        """Detach; what the probes counted, and its files for the names of its functions."""
        rows = self._session.finish_unnamed(unnamed)
        return rows, self._session.end_child()

    def close(self) -> None:
        """Detach and close everything. Closing twice does nothing."""
        self._session.close()


class PeerSet:
    """The processes that are recorded in addition to the server; they may start and end.

    Their functions are named at the end of the recording, with those of the server: clients that
    come one after the other are mostly at the same places.
    """

    def __init__(self) -> None:
        self.unnamed = UnnamedFrames()
        self._peers: list[Peer] = []
        self._waiting: list[Asked] = []  # which the server's recorder will attach to
        self._ended: list[Symbolizer] = []  # whose files are needed to name functions
        self._ended_cpu_ns = 0
        self._end_ns = 0  # of the last windows
        self._tables = SharedTables()
        self._last_target_id = SERVER_ID
        self.client_handshakes_count = 0
        """Handshakes that clients finished since the caller set it to 0."""

    @property
    def has_client(self) -> bool:
        """Whether one of them is a client."""
        return any(peer.role == "client" for peer in self._peers)

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._peers

    @property
    def own_cpu_ns(self) -> int:
        """CPU time of their recorders."""
        return self._ended_cpu_ns + sum(peer.own_costs[0] for peer in self._peers)

    @property
    def resident_bytes(self) -> int:
        """Memory of their recorders."""
        return sum(peer.own_costs[1] for peer in self._peers if peer.has_own_recorder)

    def attach(self, request: PeerRequest) -> Peer:
        """Attach to another one, which has windows after `begin`.

        Raises TlstaxError (USAGE) for a process that is being recorded, and what planning raises.
        """
        self._require_once(request)
        peer = Peer(self._asked(request), request.role)
        self._peers.append(peer)
        return peer

    def ask(self, request: Request) -> list[Asked]:
        """The clients that are recorded from the start, for the server's recorder.

        Raises what `attach` does.
        """
        for pid in request.clients[:_OTHERS_MOST]:
            one = PeerRequest(pid, "client", "", request)
            self._require_once(one)
            self._waiting.append(self._asked(one))
        return self._waiting

    def attach_clients(self, parts: Iterable[ChildPart], request: Request) -> list[Peer]:
        """The server's recorder is attached to those that were asked for; attach to the rest."""
        made = [Peer(*of) for of in zip(self._waiting, repeat("client"), parts, strict=False)]
        self._waiting = []
        self._peers += made
        rest = (PeerRequest(pid, "client", "", request) for pid in request.clients[_OTHERS_MOST:])
        return made + [self.attach(one) for one in rest]

    def _asked(self, request: PeerRequest) -> Asked:
        asked = _asked_of(self._last_target_id + 1, request, self._tables)
        self._last_target_id += 1
        return asked

    def _require_once(self, request: PeerRequest) -> None:
        waiting = (asked.recorded.target.pid for asked in self._waiting)
        if request.pid in (request.request.pid, *waiting, *(peer.pid for peer in self._peers)):
            raise given_twice(request.pid)

    def begin(self, peer: Peer, start_ns: int) -> list[schema.Row]:
        """Its first window begins then; the rows that describe it."""
        return peer.begin(start_ns)

    def drop_waiting(self) -> None:
        """Detach from those that did not begin."""
        for peer in [peer for peer in self._peers if not peer.has_begun]:
            self._peers.remove(peer)
            self._ended_cpu_ns += peer.own_costs[0]
            peer.close()

    def listen(self) -> None:
        """Take what their recorders wrote since the last window."""
        for peer in self._peers:
            peer.listen()

    def cut(self, run_id: int | None, end_ns: int) -> Iterator[list[schema.Row]]:
        """End the window of each of them. After an exec the server has two with the same end."""
        if end_ns <= self._end_ns:
            return
        self._end_ns = end_ns
        begun = [peer for peer in self._peers if peer.has_begun]
        for peer in begun:
            peer.ask(end_ns)
        for peer in begun:
            found = peer.cut(run_id, end_ns)
            if found is None:
                continue
            rows, totals = found
            yield rows
            if peer.role == "client":
                good = (one for one in totals.handshakes if one.outcome == "success")
                self.client_handshakes_count += sum(1 for _ in good)

    def finish(self, all_of_them: bool = False) -> Iterator[list[schema.Row]]:
        """Detach from those that have ended, or from all; their last rows."""
        for peer in [peer for peer in self._peers if peer.has_begun]:
            if all_of_them or peer.has_ended:
                rows, symbolizer = peer.finish(self.unnamed)
                self._peers.remove(peer)
                self._ended_cpu_ns += peer.own_costs[0]
                if self.unnamed.needs(symbolizer):
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


class AllClocks(BothClocks):
    """CPU time and memory of all recorders and of this process.

    Those of the recorders are of their last windows: the peers' windows end before they are asked.
    """

    def __init__(self, replay: Replay, peers: PeerSet, used_ns: Callable[[], int]) -> None:
        """`used_ns`: CPU time of this process for the recording."""
        super().__init__(replay, used_ns)
        self._peers = peers

    def own_cpu_ns(self) -> int:
        """CPU time of all of them."""
        return super().own_cpu_ns() + self._peers.own_cpu_ns

    def resident_bytes(self) -> int:
        """Memory of all of them."""
        return super().resident_bytes() + self._peers.resident_bytes
