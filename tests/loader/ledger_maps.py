# SPDX-License-Identifier: GPL-2.0-only
"""The maps of the ledger's programs: accounts of threads, latencies, handshakes, samples, waits."""

import ctypes
import mmap
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from operator import add
from typing import Final

from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.views import Counts, SlotView
from tlstax.tests.loader import loaded, program_memory
from tlstax.tests.loader.libbpf import BpfObject
from tlstax.tests.loader.program_memory import Lifecycle

_ADDRESS_BYTES: Final = 8
_RECORDS_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
_SLOT_HEAD_BYTES: Final = program_memory.ThreadSlot.frames.offset
_LAST_NS_OFFSET: Final = program_memory.ThreadSlot.last_ns.offset
_CELLS: Final = struct.Struct(f"={layout.PHASE_CELLS * layout.STATE_CELLS}Q")
_COUNTS: Final = struct.Struct(f"={layout.PHASE_CELLS}Q")
_KERNEL_COUNTS: Final = struct.Struct("=5Q")
_FIRST_COUNTS_OFFSET: Final = program_memory.ThreadSlot.first_counts.offset
_KERNEL_COUNTS_OFFSET: Final = program_memory.ThreadSlot.counts.offset
_HISTOGRAM: Final = struct.Struct(f"={layout.LATENCY_BUCKETS}Q")
_EMPTY_HISTOGRAM: Final = bytes(layout.LATENCY_BUCKETS * 8)


class LedgerMaps:
    """The maps of a loaded object, read while its programs fill them."""

    def __init__(
        self, bpf: BpfObject, slots_count: int, shards_count: int, stack: ExitStack
    ) -> None:
        """`stack` closes what is opened. Raises TlstaxError (HOST) for an object of another build.

        `slots_count` threads can have an account at a time; `shards_count` CPUs have latencies and
        hits of their own.
        """
        self._object = bpf
        self._stack = stack
        self._records: list[bytes] = []
        self._slot_bytes = bpf.value_bytes("slots")
        bpf.require_value_bytes(
            slots=ctypes.sizeof(program_memory.ThreadSlot),
            latency=program_memory.LATENCY_SHARD_BYTES,
            hits=program_memory.SITE_HITS_BYTES,
        )
        self._slots = self._mapped("slots", slots_count * self._slot_bytes, writable=True)
        self._shards_count = shards_count
        self._latency = self._mapped("latency", shards_count * program_memory.LATENCY_SHARD_BYTES)
        self._hits = self._mapped("hits", shards_count * program_memory.SITE_HITS_BYTES)
        self._losses = self._mapped("losses", program_memory.LOSS_CELLS * 8)
        self._status = memoryview(self._slots).cast("I")[1 :: self._slot_bytes // 4]
        self._stack.callback(self._status.release)
        self._slots_fd = bpf.map_fd("slots")
        free = self._mapped("free_slots", (slots_count + 1) * 8, writable=True)
        self._free = memoryview(free).cast("Q")
        self._stack.callback(self._free.release)
        self._slots_count = slots_count
        self._ring_callback = _RECORDS_CALLBACK(self._keep_record)
        self._ring = bpf.library.ring_buffer__new(
            bpf.map_fd("records"), self._ring_callback, None, None
        )
        if not self._ring:
            raise bpf.error("cannot read the ring buffer", ctypes.get_errno())
        self._stack.callback(bpf.library.ring_buffer__free, self._ring)

    def _mapped(self, name: str, length_bytes: int, writable: bool = False) -> mmap.mmap:
        memory = loaded.map_memory(self._object.map_fd(name), length_bytes, writable)
        self._stack.callback(memory.close)
        return memory

    def slots(self) -> Iterable[SlotView]:
        """Every thread's account; those that exited stay until `recycle`."""
        # Only the pages of slots that were ever in use are touched.
        used = self._status[: self.lifecycle().fresh_count].tolist()
        for index, status in enumerate(used):
            if status != layout.ThreadStatus.FREE:
                yield self._read_slot(index)

    def _read_slot(self, index: int) -> SlotView:
        """A copy that no charge interrupted: the time of the last charge is the same afterwards."""
        start = index * self._slot_bytes
        for _ in range(4):
            raw = self._slots[start : start + _SLOT_HEAD_BYTES]
            again = self._slots[start + _LAST_NS_OFFSET : start + _LAST_NS_OFFSET + 8]
            if raw[_LAST_NS_OFFSET : _LAST_NS_OFFSET + 8] == again:
                break
        tid, status, role, _, born, first, last = struct.unpack_from("=IIIIQQQ", raw)
        uncertain = struct.unpack_from("=Q", raw, program_memory.ThreadSlot.uncertain_ns.offset)[0]
        steal, handed = struct.unpack_from("=qq", raw, program_memory.ThreadSlot.steal_ns.offset)
        state, owner = struct.unpack_from("=II", raw, program_memory.ThreadSlot.state.offset)
        healed = struct.unpack_from("=I", raw, program_memory.ThreadSlot.healed_count.offset)[0]
        comm = struct.unpack_from("=16s", raw, program_memory.ThreadSlot.comm.offset)[0]
        return SlotView(
            index=index,
            tid=tid,
            exited=status == layout.ThreadStatus.EXITED,
            paused=status == layout.ThreadStatus.PAUSED,
            role=role,
            comm=comm.partition(b"\0")[0],
            thread_start_ns=born,
            first_ns=first,
            last_ns=last,
            state=state,
            owner=owner,
            uncertain_ns=uncertain,
            steal_ns=steal,
            handed_ns=handed,
            healed_count=healed,
            cells=_CELLS.unpack_from(raw, program_memory.ThreadSlot.ns.offset),
            counts=_COUNTS.unpack_from(raw, program_memory.ThreadSlot.count.offset),
            first_counts=Counts(*_KERNEL_COUNTS.unpack_from(raw, _FIRST_COUNTS_OFFSET)),
            kernel_counts=Counts(*_KERNEL_COUNTS.unpack_from(raw, _KERNEL_COUNTS_OFFSET)),
        )

    def mark_gone(self) -> None:
        """Mark as exited the threads that are `live` after all running threads were paused."""
        used = self._status[: self.lifecycle().fresh_count].tolist()
        for index, status in enumerate(used):
            if status == layout.ThreadStatus.LIVE:
                self._status[index] = layout.ThreadStatus.EXITED

    def recycle(self, index: int) -> None:
        """Give an exited thread's slot back, after what it holds was read."""
        loaded.map_update(self._slots_fd, struct.pack("=I", index), bytes(self._slot_bytes))
        recycled_count = self._free[0]
        self._free[1 + recycled_count % self._slots_count] = index
        self._free[0] = recycled_count + 1  # last: now the programs may take it

    @property
    def slots_bytes(self) -> int:
        """Kernel memory of the accounts."""
        return self._slots_count * self._slot_bytes

    @property
    def has_room(self) -> bool:
        """Whether another thread could have an account."""
        now = self.lifecycle()
        return bool(now.fresh_count < self._slots_count or now.reused_count < self._free[0])

    def latency_counts(self) -> dict[int, tuple[int, ...]]:
        """Histogram of each phase that ended: LATENCY_BUCKETS counts, summed over all shards."""
        histograms: dict[int, tuple[int, ...]] = {}
        row = layout.LATENCY_BUCKETS * 8
        for phase in range(layout.PHASE_CELLS):
            total: tuple[int, ...] | None = None
            for shard in range(self._shards_count):
                start = shard * program_memory.LATENCY_SHARD_BYTES + phase * row
                raw = self._latency[start : start + row]
                if raw == _EMPTY_HISTOGRAM:
                    continue
                counts = _HISTOGRAM.unpack(raw)
                total = tuple(map(add, total, counts)) if total else counts
            if total:
                histograms[phase] = total
        return histograms

    def site_hits(self, sites_count: int) -> list[int]:
        """Hits of each of the first `sites_count` sites."""
        return self._of_sites(0, sites_count)

    def _of_sites(self, part: int, sites_count: int) -> list[int]:
        counts = [0] * sites_count
        for shard in range(self._shards_count):
            start = shard * program_memory.SITE_HITS_BYTES + part * layout.MAX_SITES * 8
            more = struct.unpack_from(f"={sites_count}Q", self._hits, start)
            counts = list(map(add, counts, more))
        return counts

    def losses(self) -> list[int]:
        """Losses and repairs that the programs counted, in the order of LOSS_NAMES."""
        return list(struct.unpack_from(f"={len(layout.LOSS_NAMES)}Q", self._losses))

    def handshake_records(self) -> list[layout.HandshakeRecord]:
        """Take the handshakes that ended since the last call."""
        self._object.library.ring_buffer__consume(self._ring)
        records = [layout.HandshakeRecord.from_buffer_copy(raw) for raw in self._records]
        self._records.clear()
        return records

    def _keep_record(self, _context: int, data: int, size: int) -> int:
        self._records.append(ctypes.string_at(data, size))
        return 0

    def samples(self) -> list[tuple[layout.SampleKey, int]]:
        """Take the CPU samples counted since the last call."""
        fd = self._object.map_fd("samples")
        return [
            (layout.SampleKey.from_buffer_copy(key), int.from_bytes(value, "little"))
            for key, value in loaded.map_drain(fd, ctypes.sizeof(layout.SampleKey), 8)
        ]

    def waits(self) -> list[tuple[layout.OffcpuKey, layout.OffcpuValue]]:
        """Take the off-CPU stacks accumulated since the last call."""
        fd = self._object.map_fd("offcpu")
        key_bytes = ctypes.sizeof(layout.OffcpuKey)
        value_bytes = ctypes.sizeof(layout.OffcpuValue)
        return [
            (
                layout.OffcpuKey.from_buffer_copy(key),
                layout.OffcpuValue.from_buffer_copy(value),
            )
            for key, value in loaded.map_drain(fd, key_bytes, value_bytes)
        ]

    def stack_addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a stack, leaf first; empty when it was overwritten."""
        name = "more_stacks" if stack & program_memory.MORE_STACKS else "stacks"
        raw = loaded.map_lookup(
            self._object.map_fd(name),
            struct.pack("=I", stack & ~program_memory.MORE_STACKS),
            program_memory.STACK_DEPTH * _ADDRESS_BYTES,
        )
        if raw is None:
            return ()
        addresses = struct.unpack(f"={program_memory.STACK_DEPTH}Q", raw)
        return addresses[: addresses.index(0)] if 0 in addresses else addresses

    def executed_ns(self) -> int:
        """When the target executed another program (exec), after which nothing is recorded.

        0: it did not.
        """
        return int(self.lifecycle().executed_ns)

    def forked_count(self) -> int:
        """Processes that the target started while recording; they are not measured."""
        return int(self.lifecycle().forked_count)

    def lifecycle(self) -> Lifecycle:
        """What the programs have counted of the target's threads and processes."""
        fd = self._object.map_fd_ending(".data.lifecycle")
        raw = loaded.map_lookup(fd, bytes(4), ctypes.sizeof(Lifecycle))
        return Lifecycle.from_buffer_copy(raw) if raw else Lifecycle()
