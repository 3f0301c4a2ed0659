# SPDX-License-Identifier: GPL-2.0-only
"""A stream that is still being written: what has arrived is kept until a window is whole.

The recorder never waits for its reader, and the reader never waits for the recorder: `fill` takes
what is there. The reader of frames is let in only when it will not run dry inside a window.
"""

import ctypes
import os
from typing import Final

from tlstax.collectors.recording.stream.definition import definition

_HEAD: Final = definition().layout("head")
_HEAD_BYTES: Final = ctypes.sizeof(_HEAD)
_MAGIC: Final = definition().number("MAGIC")
_MOST: Final = definition().number("FRAME_MOST")
_WINDOW: Final = definition().number("WINDOW")
_END: Final = definition().number("END")
_BUDGET: Final = definition().number("BUDGET")
_ERROR: Final = definition().number("ERROR")
_FAILURE: Final = definition().layout("error")
_READ_BYTES: Final = 1 << 20


class LivePart:
    """The stream of one target, as a file that is read up to where whole windows have arrived."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._scanned = 0  # bytes of whole frames
        self._is_damaged = self._is_unread = False
        self.windows_count = 0
        """Whole windows that have arrived."""
        self.has_budget = False
        """Whether the choice of a budget has arrived, which follows one of the first windows."""
        self.is_over = False
        """Whether nothing more will arrive."""
        self.has_end = False
        """Whether its recording ended in order."""
        self.failure: tuple[int, str] | None = None
        """Why its recording failed, or ended before it was asked to: exit code and text."""

    def take(self, more: bytes) -> None:
        """Add what has arrived, and count the windows that are whole.

        What is no frame is left to the reader of frames.
        """
        if self._is_unread:
            return
        self._kept += more
        while not self._is_damaged and len(self._kept) - self._scanned >= _HEAD_BYTES:
            head = _HEAD.from_buffer_copy(self._kept, self._scanned)
            self._is_damaged = head.magic != _MAGIC or head.length_bytes > _MOST
            end = self._scanned + _HEAD_BYTES + head.length_bytes
            if self._is_damaged or end > len(self._kept):
                return
            self._scanned = end
            self.windows_count += head.type == _WINDOW
            self.has_budget = self.has_budget or head.type == _BUDGET
            self.has_end = self.has_end or head.type == _END
            if head.type == _ERROR and head.length_bytes >= ctypes.sizeof(_FAILURE):
                found = _FAILURE.from_buffer_copy(self._kept, end - head.length_bytes)
                self.failure = int(found.exit_code), found.text.decode("utf-8", "replace")

    def discard(self) -> None:
        """Keep nothing of what has arrived and will: nobody reads it."""
        self._is_unread = True
        self._kept.clear()
        self._scanned = 0

    def take_damaged(self, found: bytes) -> None:
        """Add what is no frame, behind which nothing is believed."""
        self._kept += b"" if self._is_unread else found
        self._is_damaged = True

    @property
    def is_readable_to_a_window(self) -> bool:
        """Whether reading up to the next window, or to the end, meets no gap."""
        return self.windows_count > 0 or self.is_over or self._is_damaged

    def window_taken(self) -> None:
        """The reader has read one window."""
        self.windows_count = max(0, self.windows_count - 1)

    def read(self, size: int, /) -> bytes:
        """What has arrived, at most `size` bytes."""
        count = min(size, len(self._kept))
        found = bytes(self._kept[:count])
        del self._kept[:count]
        self._scanned = max(0, self._scanned - count)
        return found


class LiveStream(LivePart):
    """The end of a pipe: the stream of the first target, which brings those of the others."""

    def __init__(self, descriptor: int, others_count: int = 0) -> None:
        """`descriptor` is closed with the stream."""
        super().__init__()
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.parts: tuple[LivePart, ...] = (self, *(LivePart() for _ in range(others_count)))
        """Of each target."""
        self._mixed = bytearray()  # of several: what is no whole frame yet
        self._is_broken = False  # what follows is not believed
        self.is_closed = False
        """Whether the pipe has ended."""

    def fileno(self) -> int:
        """For poll()."""
        return self._descriptor

    def fill(self) -> bool:
        """Take what has arrived without waiting; False: nothing had."""
        try:
            found = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if len(self.parts) == 1:
            self.take(found)
        else:
            self._mixed += b"" if self._is_broken else found
            self._divide()
        if not found:
            self._end()
        return bool(found)

    def _divide(self) -> None:
        """Give each target its frames. Where there is no frame, the stream ends for all."""
        at = 0
        while len(self._mixed) - at >= _HEAD_BYTES:
            head = _HEAD.from_buffer_copy(self._mixed, at)
            end = at + _HEAD_BYTES + head.length_bytes
            is_frame = head.magic == _MAGIC and head.length_bytes <= _MOST
            if not is_frame or head.target >= len(self.parts):
                for part in self.parts:  # whoever reads finds no frame there
                    part.take_damaged(bytes(_HEAD_BYTES))
                self._is_broken = True
                at = len(self._mixed)
                break
            if end > len(self._mixed):
                break
            part = self.parts[head.target]
            part.take(bytes(self._mixed[at:end]))
            is_left_out = head.type == _ERROR and head.sequence == 0
            part.is_over = part.is_over or part.has_end or is_left_out
            at = end
        del self._mixed[:at]

    def _end(self) -> None:
        self.is_closed = True
        for part in self.parts:
            part.take(bytes(self._mixed))
            part.is_over = True
        self._mixed.clear()

    def close(self) -> None:
        """Close the pipe: the recorder then ends."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._end()
