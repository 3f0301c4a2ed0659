# SPDX-License-Identifier: GPL-2.0-only
"""Stacks that the programs walk by unwind tables: loads the tables, reads the stacks.

Each stack is sent once, through a ring; samples and waits refer to it by a number. Tables follow
the process: code that is mapped later (dlopen) has its tables when the next window begins.
"""

import ctypes
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.recording.programs.names import LOSS_KINDS, WALK_COUNTS
from tlstax.collectors.unwinding.process_tables import (
    Addition,
    Layout,
    SharedTables,
    lay_out,
    maps_of,
)
from tlstax.collectors.unwinding.row_format import RULE_FORMAT, RULES_MOST
from tlstax.tests.loader import loaded
from tlstax.tests.loader.libbpf import BpfObject
from tlstax.tests.loader.sent_stacks import SentStacks

WALKED_STACK: Final = 1 << 29
CHUNK_WORDS: Final = 1024
_MEMO_BYTES: Final = 8 << 11
_PATHS_BYTES: Final = _MEMO_BYTES + 64
_ROOM_WORDS: Final = 1 << 17
_LOOK_SECONDS: Final = 1.0
_LOOK_ANYWAY_SECONDS: Final = 30.0
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_REALTIME: Final = Path("/sys/kernel/realtime")


class Walker:
    """The unwind tables of one target, and the stacks that were walked with them."""

    def __init__(
        self,
        bpf: BpfObject,
        pid: int,
        wanted: bool,
        shared: SharedTables | None = None,
        known: Sequence[MappedObject] = (),
    ) -> None:
        """Read the tables before the programs are loaded; without them frame pointers are used.

        `shared`: of other processes of this recording. `known`: files whose headers were read.
        """
        self._object = bpf
        self._pid = pid
        self._stacks = SentStacks()
        self._active = 0
        self._unmapped_count = 0
        self._looked = time.monotonic()
        self._maps = maps_of(pid) if wanted and not _REALTIME.exists() else ""
        self._first: Addition | None = None
        self.layout = Layout()
        if self._maps:
            self._first = (shared or SharedTables()).lay_out(pid, self._maps, known)
            self.layout = self._first.layout
        self._chunks_count = 1
        if self.enabled:
            words = self.layout.words_count + self.layout.words_count // 4 + _ROOM_WORDS
            self._chunks_count = -(-words // CHUNK_WORDS)
            bpf.resize("unwind_rules", RULES_MOST)
        else:
            bpf.resize("walked_ids", 1)
            bpf.resize("walked_stacks", 4096)
        bpf.resize("unwind_words", self._chunks_count)

    @property
    def enabled(self) -> bool:
        """Whether stacks are walked by tables."""
        return any(placed.buckets for placed in self.layout.files.values())

    @property
    def tables_bytes(self) -> int:
        """Kernel memory of the tables, without room for more."""
        return self.layout.words_count * 4 + len(self.layout.rules) * RULE_FORMAT.size

    def without_table(self) -> list[str]:
        """Mapped code that has no table, and why."""
        if not self.enabled:
            return []
        return [
            f"{placed.name or key[2]} ({placed.missing})"
            for key, placed in self.layout.files.items()
            if placed.missing
        ]

    def load(self, stack: ExitStack) -> None:
        """Fill the maps of the loaded programs; `stack` closes what is opened."""
        bpf = self._object
        self._counts = loaded.map_memory(bpf.map_fd("walk_counts"), len(WALK_COUNTS) * 8)
        stack.callback(self._counts.close)
        if not self.enabled or self._first is None:
            return
        length = self._chunks_count * CHUNK_WORDS * 4
        self._words = loaded.map_memory(bpf.map_fd("unwind_words"), length, writable=True)
        stack.callback(self._words.close)
        self._ring_callback = _CALLBACK(self._keep)
        self._ring = bpf.library.ring_buffer__new(
            bpf.map_fd("walked_stacks"), self._ring_callback, None, None
        )
        if not self._ring:
            raise bpf.error("cannot read the ring buffer of stacks", ctypes.get_errno())
        stack.callback(bpf.library.ring_buffer__free, self._ring)
        self._write(self._first)
        self._first = None

    def _write(self, addition: Addition) -> None:
        """Store tables, then their ranges in the copy that is not in use, then use that."""
        bpf = self._object
        start = addition.first_word * 4
        self._words[start : start + len(addition.words)] = addition.words
        fd = bpf.map_fd("unwind_rules")
        for number, rule in enumerate(addition.layout.rules):
            loaded.map_update(fd, struct.pack("=I", number), rule)
        self._active ^= 1
        fd = bpf.map_fd("unwind_ranges")
        loaded.map_update(fd, struct.pack("=I", self._active), addition.layout.ranges)
        fd = bpf.map_fd_ending(".data.unwind")
        loaded.map_update(fd, bytes(4), struct.pack("=II", 1, self._active))
        loaded.map_update(bpf.map_fd("unwind_memos"), bytes(4), bytes(_MEMO_BYTES))
        loaded.map_update(bpf.map_fd("unwind_paths"), bytes(4), bytes(_PATHS_BYTES))
        self.layout = addition.layout

    def keep_up(self) -> None:
        """Between two windows: tables of code that was mapped since, room for more stacks."""
        if not self.enabled:
            return
        self.consume()
        if self._stacks.end_round():
            loaded.map_drain(self._object.map_fd("walked_ids"), 8, 4)
        now, unmapped = time.monotonic(), self.counts()["no_mapping"]
        is_due = now - self._looked > _LOOK_SECONDS and unmapped != self._unmapped_count
        if not is_due and now - self._looked < _LOOK_ANYWAY_SECONDS:
            return
        self._looked, self._unmapped_count = now, unmapped
        maps = maps_of(self._pid)
        if maps and maps != self._maps:
            self._maps = maps
            try:
                most = self._chunks_count * CHUNK_WORDS
                self._write(lay_out(self._pid, maps, self.layout, most))
            except TlstaxError:  # the process is ending, or memory is short: as before
                return

    # ---- reading ----

    def _keep(self, _context: int, data: int, size: int) -> int:
        self._stacks.keep(ctypes.string_at(data, size))
        return 0

    def consume(self) -> None:
        """Take the stacks that were sent since the last call."""
        self._object.library.ring_buffer__consume(self._ring)

    def addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a walked stack, innermost first; empty if it is not known."""
        if stack not in self._stacks:
            self.consume()
        return self._stacks.addresses(stack)

    def counts(self) -> dict[str, int]:
        """How walks ended, by WALK_COUNTS."""
        counts = struct.unpack_from(f"={len(WALK_COUNTS)}Q", self._counts)
        return dict(zip(WALK_COUNTS, counts, strict=True))

    def losses(self) -> dict[str, int]:
        """Stacks that are not whole, by kind of loss."""
        if not self.enabled:
            return {}
        counts = self.counts()
        return {kind: counts[name] for name, kind in LOSS_KINDS.items()}
