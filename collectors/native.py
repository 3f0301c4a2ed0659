# SPDX-License-Identifier: GPL-2.0-only
"""The native engine: load the ledger's BPF programs, attach them as planned, read their maps.

Everything hangs on file descriptors of this process: when it dies, however it dies, the kernel
takes every probe, link and map away.
"""

import ctypes
import mmap
import os
import struct
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import resources
from operator import add
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors import bpf_syscall
from tlstax.collectors import ledger_layout as layout
from tlstax.collectors.build_id import require_same_build
from tlstax.collectors.doctor_host import LackError
from tlstax.collectors.doctor_trials import uprobe_multi
from tlstax.collectors.ledger_layout import Action
from tlstax.collectors.libbpf import BpfObject, Link, LinkGroup, tracepoint_argument_counts
from tlstax.collectors.mappings import MappedObject, open_mapped
from tlstax.collectors.planning import Plan, Site
from tlstax.probes.definitions import Level

OBJECT_NAME: Final = "ledger.bpf.o"
SLOTS_COUNT: Final = 1024
RARE_TRACEPOINTS: Final = ("on_new_thread", "on_exit_thread", "on_exec")
DENSE_TRACEPOINTS: Final = ("on_switch", "on_wakeup")
SOCKET_TRACEPOINTS: Final = {"on_receive": "sock_recv_length", "on_send": "sock_send_length"}
_DENSE_ACTIONS: Final = (
    *("await_command", "await_receive", "phase_open", "phase_close", "phase_send", "wait", "call"),
)
_SCAN_STEP: Final = 64
SAMPLER: Final = "on_sample"
_RECORDS_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
_ADDRESS_BYTES: Final = 8
_ACCESSORS: Final = {
    "ssl_version": "off_version",
    "ssl_rwstate": "off_rwstate",
    "ssl_state": "off_state",
    "ssl_hit": "off_hit",
    "ssl_session": "off_session",
    "session_cipher": "off_session_cipher",
    "cipher_id": "off_cipher_id",
    "ssl_server": "off_server",
}


@dataclass(frozen=True)
class Options:
    """What to record besides the ledger itself."""

    sample_hz: int = 99
    slots_count: int = SLOTS_COUNT
    uprobes_only: bool = False  # probe also what the kernel itself tells, as on kernels before 6.3


@dataclass
class SlotView:
    """A thread's account at one instant."""

    index: int
    tid: int
    exited: bool
    paused: bool  # since detach_dense(): its cells stand still
    role: int
    comm: bytes
    thread_start_ns: int
    first_ns: int
    last_ns: int
    state: int
    owner: int
    uncertain_ns: int
    steal_ns: int
    healed_count: int
    cells: tuple[int, ...]  # [phase][state], flat, ns
    counts: tuple[int, ...]  # finished instances by phase
    stack_base: int = 0  # address behind the thread's stack; 0: not known


class Engine:
    """Loaded and attached programs of one target."""

    def __init__(self, pid: int, plan: Plan, options: Options) -> None:
        """Load the programs. Raises TlstaxError HOST when the kernel refuses them."""
        self.pid = pid
        self.plan = plan
        self.options = options
        self.multi = uprobe_multi_works()
        self._stack = ExitStack()
        self._links: list[Link] = []
        self._always = LinkGroup()
        self._rare = LinkGroup()
        self._dense = LinkGroup()
        self._is_rare = self._is_dense = False
        self._sampler_fds: list[int] = []
        self._control = layout.Control()
        self._records: list[bytes] = []
        self._files: dict[MappedObject, int] = {}  # descriptors of what is probed
        self._object = self._stack.enter_context(BpfObject(object_path()))
        has = tracepoint_argument_counts(
            self._object.library, "sched_switch", *SOCKET_TRACEPOINTS.values()
        )
        self._switch_has_state = has["sched_switch"] >= 4
        self.kernel_tells = (
            not options.uprobes_only
            and any(plan.is_told(site) for site in plan.sites)
            and all(has[event] for event in SOCKET_TRACEPOINTS.values())
        )
        sockets = tuple(SOCKET_TRACEPOINTS) if self.kernel_tells else ()
        self._dense_tracepoints = (*DENSE_TRACEPOINTS, *sockets)
        self.tracepoints = (*self._dense_tracepoints, *RARE_TRACEPOINTS)
        try:
            self._configure()
            self._object.load()
            self._map_memory()
        except BaseException:
            self._stack.close()
            raise

    # ---- loading ----

    def is_attached(self, site: Site) -> bool:
        """Whether a site of the plan gets its probe: the kernel may tell what it would."""
        return not (self.kernel_tells and self.plan.is_told(site))

    def _configure(self) -> None:
        bpf = self._object
        for program in SOCKET_TRACEPOINTS:
            bpf.set_autoload(program, self.kernel_tells)
        config = layout.Config()
        config.tgid = self.pid
        config.client = {"server": 0, "client": 1}.get(self.plan.role, 2)
        config.switch_has_state = self._switch_has_state
        config.kernel_tells = self.kernel_tells
        for accessor, name in _ACCESSORS.items():
            setattr(config, name, self.plan.accessors.get(accessor, -1))
        kinds = layout.wait_kinds()
        ctypes.memmove(config.wait_kind, kinds, len(kinds))
        bpf.set_constants(".rodata.config", bytes(config))
        bpf.resize("slots", self.options.slots_count)
        bpf.resize("free_slots", self.options.slots_count)
        if self.multi:
            for program in ("on_enter", "on_leave"):
                bpf.set_attach_type(program, bpf_syscall.BPF_TRACE_UPROBE_MULTI)

    def _map_memory(self) -> None:
        bpf = self._object
        self._slot_bytes = bpf.value_bytes("slots")
        for name, expected in (
            ("slots", ctypes.sizeof(layout.ThreadSlot)),
            ("latency", layout.LATENCY_SHARD_BYTES),
            ("hits", layout.SITE_HITS_BYTES),
        ):
            if bpf.value_bytes(name) != expected:
                raise TlstaxError(
                    f"{OBJECT_NAME} does not fit this tlstax",
                    f"map {name} has values of {bpf.value_bytes(name)} bytes, not {expected}",
                    "rebuild it with `make bpf`",
                    ExitCode.HOST,
                )
        slots_bytes = self.options.slots_count * self._slot_bytes
        self._slots = self._mapped("slots", slots_bytes, writable=True)
        self._latency = self._mapped("latency", layout.LATENCY_SHARDS * layout.LATENCY_SHARD_BYTES)
        self._hits = self._mapped("hits", layout.LATENCY_SHARDS * layout.SITE_HITS_BYTES)
        self._losses = self._mapped("losses", layout.LOSS_CELLS * 8)
        self._status = memoryview(self._slots).cast("I")[1 :: self._slot_bytes // 4]
        self._stack.callback(self._status.release)
        self._scanned = min(_SCAN_STEP, self.options.slots_count)
        self._slots_fd = bpf.map_fd("slots")
        self._free_fd = bpf.map_fd("free_slots")
        for index in range(self.options.slots_count):
            bpf_syscall.map_update(self._free_fd, None, struct.pack("=I", index))
        self._ring_callback = _RECORDS_CALLBACK(self._keep_record)
        self._ring = bpf.library.ring_buffer__new(
            bpf.map_fd("records"), self._ring_callback, None, None
        )
        if not self._ring:
            raise bpf.error("cannot read the ring buffer", ctypes.get_errno())
        self._stack.callback(bpf.library.ring_buffer__free, self._ring)

    def _mapped(self, name: str, length_bytes: int, writable: bool = False) -> mmap.mmap:
        memory = bpf_syscall.map_memory(self._object.map_fd(name), length_bytes, writable)
        self._stack.callback(memory.close)
        return memory

    # ---- attaching ----

    def attach(self, dense: bool = True, rare: bool = True) -> None:
        """Attach the scheduler's tracepoints, then the boundaries, then the sampler.

        In that order no boundary meets a thread that the ledger does not know yet. Without
        `dense` only what is cheap is attached: see attach_dense(); without `rare` no boundary is.
        """
        if len(self.plan.sites) > layout.MAX_SITES:
            raise TlstaxError(
                f"cannot place {len(self.plan.sites)} probes",
                f"the programs tell at most {layout.MAX_SITES} apart",
                "give fewer definitions",
                ExitCode.USAGE,
            )
        self._set_control(paused=1)
        for name in RARE_TRACEPOINTS:
            self._attach_program(name, self._always)
        if dense:
            self.attach_dense()
        if rare:
            self.attach_rare()
        if self.options.sample_hz:
            self._attach_sampler()

    def attach_dense(self) -> None:
        """Attach what commands and switches cross: boundaries and the scheduler's programs.

        Threads known already go on from here: connections are `unknown` up to their next boundary
        (those that are being set up, torn down or parked are not), the others are `background`.
        What a cell held before is still in it, so begin a window by reading the slots once.
        """
        self._is_dense = True
        self._set_control(paused=0)
        for name in self._dense_tracepoints:
            self._attach_program(name, self._dense)
        self._object.run_iterator("each_thread")
        self._attach_sites(is_dense=True)

    def detach_dense(self) -> None:
        """Detach what attach_dense() attached; end the window (read the slots) before.

        Rare boundaries, handshake records and samples go on. A thread's cells stand still
        (`SlotView.paused`), and a handshake's record says that its states are not known
        (`HandshakeRecord.unfollowed`), while its wall times and those of its operations are.
        """
        self._is_dense = False
        self._dense.close()
        self._set_control(paused=1)
        self._object.run_iterator("each_thread")
        for index, status in enumerate(self._status[: self._scanned].tolist()):
            if status == layout.ThreadStatus.LIVE:  # gone while nothing looked
                self._status[index] = layout.ThreadStatus.EXITED

    def go(self, level: Level | None) -> None:
        """Attach and detach until what a level needs is on, and no more; None: no samples either.

        The sites of the plan stay what they are: above `handshake` there is only all or nothing.
        """
        wants_dense = level is not None and level >= Level.COMMAND
        wants_rare = level is not None and level >= Level.HANDSHAKE
        if self._is_dense and not wants_dense:
            self.detach_dense()
        if self._is_rare and not wants_rare:
            self.detach_rare()
        if wants_dense and not self._is_dense:
            self.attach_dense()
        if wants_rare and not self._is_rare:
            self.attach_rare()
        for fd in self._sampler_fds:
            bpf_syscall.enable_perf_event(fd, on=level is not None)

    def attach_rare(self) -> None:
        """Attach the boundaries that connections and handshakes cross."""
        self._is_rare = True
        self._attach_sites(is_dense=False)

    def detach_rare(self) -> None:
        """Detach what attach_rare() attached, after detach_dense().

        Handshakes in flight are forgotten, as their ends will not be seen.
        """
        self._is_rare = False
        self._rare.close()
        self._set_control(paused=layout.FORGOTTEN)
        self._object.run_iterator("each_thread")
        fd = self._object.map_fd("handshakes")
        bpf_syscall.map_drain(fd, 8, ctypes.sizeof(layout.HandshakeRecord))
        self._set_control(paused=1)

    def _attach_program(self, name: str, group: LinkGroup) -> None:
        group.callback(self._object.attach(name).close)

    def _set_control(self, **values: int) -> None:
        for name, value in values.items():
            setattr(self._control, name, value)
        fd = self._object.map_fd_ending(".data.control")
        bpf_syscall.map_update(fd, bytes(4), bytes(self._control))

    def _attach_sites(self, is_dense: bool) -> None:
        groups: dict[tuple[MappedObject, str, bool], list[tuple[int, int]]] = defaultdict(list)
        for number, site in enumerate(self.plan.sites):
            if dense(site) != is_dense or not self.is_attached(site):
                continue
            cookie = layout.cookie(
                Action[site.action.upper()],
                _phase(site),
                number,
                site.only_in == "handshake",
                site.blocking,
                site.success == "zero",
                site.stack_bytes,
                site.register,
                site.state,
                site.role,
                site.side,
            )
            program = "on_enter" if site.event == "enter" else "on_leave"
            key = (site.object, program, site.kind == "uretprobe")
            groups[key].append((site.file_offset, cookie))
        # Exits first: an entry whose exit is not yet probed would look like a missed exit.
        exits_first = sorted(groups.items(), key=lambda item: item[0][1] == "on_enter")
        for (mapped, program, is_return), places in exits_first:
            path = self._path_of(mapped)
            try:
                links = self._dense if is_dense else self._rare
                self._attach_group(path, program, places, is_return, links)
            except OSError as error:
                raise TlstaxError(
                    f"cannot probe {mapped.path}",
                    error.strerror or str(error),
                    "run `tlstax doctor` to see what this host lacks",
                    ExitCode.HOST,
                ) from error

    def _path_of(self, mapped: MappedObject) -> str:
        """A path that leads to the mapped file for good: it is verified once and stays open."""
        if mapped not in self._files:
            self._files[mapped] = open_mapped(mapped)
            self._stack.callback(os.close, self._files[mapped])
            require_same_build(mapped, self._files[mapped])
        return f"/proc/self/fd/{self._files[mapped]}"

    def _attach_group(
        self,
        path: str,
        program: str,
        places: list[tuple[int, int]],
        is_return: bool,
        links: LinkGroup,
    ) -> None:
        if self.multi:
            fd = bpf_syscall.attach_uprobe_multi(
                self._object.program_fd(program),
                path,
                [offset for offset, _ in places],
                [cookie for _, cookie in places],
                self.pid,
                is_return,
            )
            links.callback(os.close, fd)
            return
        for offset, cookie in places:
            link = self._object.attach_uprobe(program, self.pid, path, offset, cookie, is_return)
            links.callback(link.close)

    def _attach_sampler(self) -> None:
        for cpu in _online_cpus():
            try:
                fd = bpf_syscall.open_cpu_clock(cpu, self.options.sample_hz)
                self._links.append(self._object.attach_perf_event(SAMPLER, fd))
                bpf_syscall.enable_perf_event(fd)
                self._sampler_fds.append(fd)
            except OSError as error:
                raise TlstaxError(
                    f"cannot sample CPU {cpu}",
                    error.strerror or str(error),
                    "run `tlstax doctor`, or record without samples (--sample-hz 0)",
                    ExitCode.HOST,
                ) from error

    def shared_maps(self) -> dict[str, int]:
        """Descriptors of the maps in which another object finds the phase of a thread."""
        return {name: self._object.map_fd(name) for name in ("slots", "slot_of_task")}

    # ---- reading ----

    def slots(self) -> Iterable[SlotView]:
        """Every thread's account; those that exited stay until `recycle`."""
        # Slots are taken in order, so only the pages of those in use are ever touched.
        while True:
            used = self._status[: self._scanned].tolist()
            if self._scanned == len(self._status) or not any(used[-_SCAN_STEP:]):
                break
            self._scanned = min(self._scanned + _SCAN_STEP, len(self._status))
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
        uncertain = struct.unpack_from("=Q", raw, layout.ThreadSlot.uncertain_ns.offset)[0]
        steal = struct.unpack_from("=q", raw, layout.ThreadSlot.steal_ns.offset)[0]
        state, owner = struct.unpack_from("=II", raw, layout.ThreadSlot.state.offset)
        healed = struct.unpack_from("=I", raw, layout.ThreadSlot.healed_count.offset)[0]
        comm = struct.unpack_from("=16s", raw, layout.ThreadSlot.comm.offset)[0]
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
            healed_count=healed,
            cells=_CELLS.unpack_from(raw, layout.ThreadSlot.ns.offset),
            counts=_COUNTS.unpack_from(raw, layout.ThreadSlot.count.offset),
            stack_base=struct.unpack_from("=Q", raw, layout.ThreadSlot.stack_base.offset)[0],
        )

    def recycle(self, index: int) -> None:
        """Give an exited thread's slot back."""
        bpf_syscall.map_update(self._slots_fd, struct.pack("=I", index), bytes(self._slot_bytes))
        bpf_syscall.map_update(self._free_fd, None, struct.pack("=I", index))

    def latency_counts(self) -> dict[int, tuple[int, ...]]:
        """Histogram of each phase that ended at all: LATENCY_BUCKETS counts, over all shards."""
        histograms: dict[int, tuple[int, ...]] = {}
        row = layout.LATENCY_BUCKETS * 8
        for phase in range(layout.PHASE_CELLS):
            total: tuple[int, ...] | None = None
            for shard in range(layout.LATENCY_SHARDS):
                start = shard * layout.LATENCY_SHARD_BYTES + phase * row
                raw = self._latency[start : start + row]
                if raw == _EMPTY_HISTOGRAM:
                    continue
                counts = _HISTOGRAM.unpack(raw)
                total = tuple(map(add, total, counts)) if total else counts
            if total:
                histograms[phase] = total
        return histograms

    def site_hits(self) -> list[int]:
        """Hits of each site of the plan so far."""
        hits = [0] * len(self.plan.sites)
        for shard in range(layout.LATENCY_SHARDS):
            start = shard * layout.SITE_HITS_BYTES
            counts = struct.unpack_from(f"={len(hits)}Q", self._hits, start)
            hits = list(map(add, hits, counts))
        return hits

    def loss_counts(self) -> dict[str, int]:
        """Everything that was lost or repaired so far, by kind."""
        counts = list(struct.unpack_from(f"={len(layout.LOSS_NAMES)}Q", self._losses))
        missed = layout.LOSS_NAMES.index("probe_recursion_missed")
        for program in (*self.tracepoints, "on_enter", "on_leave"):
            fd = self._object.program_fd(program)
            counts[missed] += bpf_syscall.program_recursion_misses(fd)
        return dict(zip(layout.LOSS_NAMES, counts, strict=True))

    def program_costs(self) -> dict[str, tuple[str, int, float | None]]:
        """Kind, runs and mean ns a run of the programs behind tracepoints and the sampler.

        The kernel only keeps them while BPF statistics are on, so they are None otherwise.
        """
        costs: dict[str, tuple[str, int, float | None]] = {}
        for name in (*self.tracepoints, SAMPLER):
            run_ns, runs = bpf_syscall.program_run_time(self._object.program_fd(name))
            kind = "perf_event" if name == SAMPLER else "tp_btf"
            costs[name] = (kind, runs, run_ns / runs if runs else None)
        return costs

    def program_times(self) -> dict[str, tuple[int, int]]:
        """Run time in ns and runs of each program while the kernel's statistics were on."""
        return {
            name: bpf_syscall.program_run_time(self._object.program_fd(name))
            for name in (*self.tracepoints, SAMPLER, "on_enter", "on_leave")
        }

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
            for key, value in bpf_syscall.map_drain(fd, ctypes.sizeof(layout.SampleKey), 8)
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
            for key, value in bpf_syscall.map_drain(fd, key_bytes, value_bytes)
        ]

    def stack_addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a stack, leaf first; empty when it is gone."""
        name = "more_stacks" if stack & layout.MORE_STACKS else "stacks"
        raw = bpf_syscall.map_lookup(
            self._object.map_fd(name),
            struct.pack("=I", stack & ~layout.MORE_STACKS),
            layout.STACK_DEPTH * _ADDRESS_BYTES,
        )
        if raw is None:
            return ()
        addresses = struct.unpack(f"={layout.STACK_DEPTH}Q", raw)
        return addresses[: addresses.index(0)] if 0 in addresses else addresses

    def walk_one_wait_in(self, share: int) -> None:
        """Walk the stacks of one blocking wait in `share` (a power of two) from now on."""
        self._set_control(offcpu_mask=share - 1)

    def executed_ns(self) -> int:
        """When the target became another program (exec); from then on nothing is recorded.

        0 as long as it did not.
        """
        return self._lifecycle()[0]

    def forked_count(self) -> int:
        """Processes that the target started while recording; they are not measured."""
        return self._lifecycle()[1]

    def _lifecycle(self) -> tuple[int, int]:
        fd = self._object.map_fd_ending(".data.lifecycle")
        raw = bpf_syscall.map_lookup(fd, bytes(4), layout.LIFECYCLE.size)
        executed_ns, forked_count = layout.LIFECYCLE.unpack(raw or bytes(layout.LIFECYCLE.size))
        return executed_ns, forked_count

    def close(self) -> None:
        """Detach and unload everything."""
        for link in self._links:
            link.close()
        self._links.clear()
        self._dense.close()
        self._rare.close()
        self._always.close()
        self._stack.close()


_SLOT_HEAD_BYTES: Final = layout.ThreadSlot.frames.offset
_LAST_NS_OFFSET: Final = layout.ThreadSlot.last_ns.offset
_CELLS: Final = struct.Struct(f"={layout.PHASE_CELLS * layout.STATE_CELLS}Q")
_COUNTS: Final = struct.Struct(f"={layout.PHASE_CELLS}Q")
_HISTOGRAM: Final = struct.Struct(f"={layout.LATENCY_BUCKETS}Q")
_EMPTY_HISTOGRAM: Final = bytes(layout.LATENCY_BUCKETS * 8)


def object_path(name: str = OBJECT_NAME) -> Path:
    """The compiled programs. TlstaxError HOST when they were not built."""
    path = Path(str(resources.files("tlstax.probes"))) / "bpf" / name
    if not path.is_file():
        raise TlstaxError(
            f"{name} is missing",
            "the BPF programs were not built",
            "run `make bpf`, or install a wheel that contains them",
            ExitCode.HOST,
        )
    return path


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC, the clock of the programs."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def dense(site: Site) -> bool:
    """Whether every command crosses it; the others are crossed once a connection or rarer."""
    return site.action in _DENSE_ACTIONS or (site.action == "phase" and not site.only_in)


def level_of(site: Site) -> Level:
    """The lowest level at which a site is probed."""
    if not dense(site):
        return Level.HANDSHAKE
    return Level.COMMAND if site.action in _DENSE_ACTIONS else Level.RECORD


def _phase(site: Site) -> str | None:
    if site.action in ("handshake_bound", "handshake_call"):
        return "handshake"
    return site.phase or None


def uprobe_multi_works() -> bool:
    """Whether one uprobe_multi link sees every thread of a process, tried on ourselves."""
    try:
        uprobe_multi()
    except (OSError, LackError):
        return False
    return True


def _online_cpus() -> list[int]:
    """CPUs that are online, from sysfs's list format such as 0-3,6."""
    text = Path("/sys/devices/system/cpu/online").read_text(encoding="ascii").strip()
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus
