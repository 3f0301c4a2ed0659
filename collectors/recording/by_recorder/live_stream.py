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
_BUDGET: Final = definition().number("BUDGET")
_READ_BYTES: Final = 1 << 20


class LiveStream:
    """The end of a pipe, as a file that is read up to where whole windows have arrived."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is closed with the stream."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = bytearray()
        self._scanned = 0  # bytes of whole frames
        self._is_damaged = False
        self.windows_count = 0
        """Whole windows that have arrived."""
        self.has_budget = False
        """Whether the choice of a budget has arrived, which follows the first window."""
        self.is_over = False
        """Whether nothing more will arrive."""

    def fileno(self) -> int:
        """For poll()."""
        return self._descriptor

    def fill(self) -> bool:
        """Take what has arrived without waiting; False: nothing had."""
        try:
            found = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        self.is_over = not found
        self._kept += found
        self._scan()
        return bool(found)

    def _scan(self) -> None:
        """Count the windows that are whole. What is no frame is left to the reader of frames."""
        while not self._is_damaged and len(self._kept) - self._scanned >= _HEAD_BYTES:
            head = _HEAD.from_buffer_copy(self._kept, self._scanned)
            self._is_damaged = head.magic != _MAGIC or head.length_bytes > _MOST
            end = self._scanned + _HEAD_BYTES + head.length_bytes
            if self._is_damaged or end > len(self._kept):
                return
            self._scanned = end
            self.windows_count += head.type == _WINDOW
            self.has_budget = self.has_budget or head.type == _BUDGET

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

    def close(self) -> None:
        """Close the pipe: the recorder then ends."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
