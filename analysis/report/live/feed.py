# SPDX-License-Identifier: GPL-2.0-only
"""Follow a capture while it is written: each look reads only what was added since the last one."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tlstax.analysis.document.live_snapshot import Seen
from tlstax.collectors.capture import frame_ids
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Effect,
    Frame,
    Handshake,
    Latency,
    Ledger,
    Loss,
    PhaseCount,
    Row,
    SampleStack,
    Stack,
    System,
    Target,
    Window,
)
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

SERVER: Final = 1
_CLIENTS: Final = 1 << 32
"""Keys of rows about clients are larger than this."""
_PARTS: Final[tuple[tuple[type[Any], str], ...]] = (
    (Ledger, "ledger"),
    (PhaseCount, "counts"),
    (Latency, "latencies"),
    (Handshake, "handshakes"),
    (SampleStack, "samples"),
    (System, "system"),
    (Effect, "effects"),
    (Loss, "losses"),
)
DENSE_KEPT: Final = 2
"""With a budget, windows with a ledger can be further apart than a picture is long."""
R = TypeVar("R", bound=Row)


class Feed:
    """The last seconds of a capture."""

    def __init__(
        self, reader: CaptureReader, name: Callable[[Frame], Frame], horizon_ns: int
    ) -> None:
        """Frames get their names from `name`, when they are asked for."""
        self._reader = reader
        self._name = name
        self._horizon_ns = horizon_ns
        self._read: dict[type[Any], int] = {}
        self._frames: dict[int, Frame] = {}
        self._named: set[int] = set()
        self._stacks: dict[int, tuple[int, ...]] = {}
        self.seen: dict[int, Seen] = {}
        self.target: Target | None = None
        self.start_ns = 0
        self.end_ns = 0

    def advance(self) -> bool:
        """Read what is new; whether a window is."""
        with self._reader.snapshot():
            return self._advance()

    def _advance(self) -> bool:
        self.target = next(iter(self._reader.rows(Target, "target_id = ?", (SERVER,))), None)
        windows = self._new(Window)
        for frame in self._new(Frame):
            self._frames[frame.frame_id] = frame
        for stack in self._new(Stack):
            self._stacks[stack.stack_id] = frame_ids.parse(stack.frame_ids)
        for window in windows:
            if window.target_id == SERVER:
                self.seen[window.window_id] = Seen(window)
                self.start_ns = self.start_ns or window.start_ns
                self.end_ns = max(self.end_ns, window.end_ns)
        for table, part in _PARTS:
            for row in self._new(table):
                if row.window_id in self.seen:
                    getattr(self.seen[row.window_id], part).append(row)
        self._forget()
        return bool(windows)

    @property
    def span_ns(self) -> int:
        """Length of what was seen."""
        return self.end_ns - self.start_ns

    def _forget(self) -> None:
        """Drop what is too long ago, but for the last windows in which phases were seen."""
        least_ns = self.end_ns - self._horizon_ns
        dense = [key for key, one in self.seen.items() if one.window.level in LEDGER_LEVELS]
        kept = set(dense[-DENSE_KEPT:])
        for window_id, one in list(self.seen.items()):
            if one.window.end_ns <= least_ns and window_id not in kept:
                del self.seen[window_id]

    def _new(self, table: type[R]) -> list[R]:
        """Rows that were added. Rows are never deleted, so they are numbered without a gap.

        So are the keys of the server's rows, and those of its clients lie far above.
        """
        last = self._read.get(table, 0)
        rows = list(self._reader.rows(table, "rowid > ? AND rowid < ?", (last, _CLIENTS)))
        self._read[table] = last + len(rows)
        return rows

    def stack(self, stack_id: int | None) -> tuple[Frame, ...]:
        """The frames of a stack with their names, leaf first."""
        if stack_id is None:
            return ()
        return tuple(
            self._frame(frame_id)
            for frame_id in self._stacks.get(stack_id, ())
            if frame_id in self._frames
        )

    def _frame(self, frame_id: int) -> Frame:
        if frame_id not in self._named:
            self._named.add(frame_id)
            self._frames[frame_id] = self._name(self._frames[frame_id])
        return self._frames[frame_id]
