# SPDX-License-Identifier: GPL-2.0-only
"""Load the ledger's BPF programs, attach them as planned, read their maps: for tests of programs.

The recorder in C is what tlstax records with. Tests that look into maps between two events, or load
faulty programs, do it here.

File descriptors of this process hold everything: when it ends, even if it is killed, the kernel
removes every probe, link and map.
"""

import ctypes
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.features import HOST, Features, socket_source
from tlstax.collectors.host.socket_events import SocketSource
from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.names import (
    DENSE_TRACEPOINTS,
    RARE_TRACEPOINTS,
    SAMPLER,
    SOCKET_FUNCTIONS,
    SOCKET_TRACEPOINTS,
)
from tlstax.collectors.recording.programs.site_cookies import cookie_of, lowest_level
from tlstax.collectors.unwinding.process_tables import SharedTables
from tlstax.tests.loader import kernel_counts, loaded, program_memory
from tlstax.tests.loader.kernel_counts import KernelCounts
from tlstax.tests.loader.ledger_maps import LedgerMaps
from tlstax.tests.loader.libbpf import BpfObject, LinkGroup, object_path
from tlstax.tests.loader.sampler import Sampler, online_cpus
from tlstax.tests.loader.uprobe_links import Attachment, File, ProbedFiles, UprobeAttacher
from tlstax.tests.loader.walker import WALKED_STACK, Walker

OBJECT_NAME: Final = "ledger.bpf.o"


@dataclass(frozen=True)
class Options:
    """What to record in addition to the ledger."""

    sample_hz: int = 99
    slots_count: int = 1024
    user_stacks: bool = True
    unwind_tables: bool = True  # walk user stacks by them; else by frame pointers
    features: Features = HOST
    programs: Path | None = None  # object to load instead of the one that ships: for tests
    files: Sequence[MappedObject] = ()  # of the process, as far as their headers were read
    tables: SharedTables | None = None  # unwind tables of other processes of the recording


class Engine:
    """Loaded and attached programs of one target."""

    def __init__(self, pid: int, plan: Plan, options: Options) -> None:
        """Load the programs. Raises TlstaxError HOST when the kernel refuses them."""
        self.pid = pid
        self.plan = plan
        self.options = options
        self.multi = bool(options.features.uprobe_multi)
        self._stack = ExitStack()
        self._always = LinkGroup()
        self._rare = LinkGroup()
        self._connections = LinkGroup()
        self._dense = LinkGroup()
        self._is_dense = False
        self._refused_count = 0
        self._control = program_memory.Control()
        self._files = ProbedFiles(self._stack)
        self._object = self._stack.enter_context(
            BpfObject(options.programs or object_path(OBJECT_NAME))
        )
        self._sampler = Sampler(self._object, options.sample_hz)
        self._uprobes = UprobeAttacher(self._object, "on_enter", "on_leave", multi=self.multi)
        self._switch_has_state = bool(options.features.state_of_switch)
        self._shards_count = min(max(online_cpus()) + 1, program_memory.SHARDS_MOST)
        self.covered_by_tracepoint = (
            not plan.is_flow
            and any(plan.covered_by_tracepoint(site) for site in plan.sites)
            and bool(options.features.socket_events)
        )
        self.uses_sockets = plan.is_flow or self.covered_by_tracepoint
        sockets = self._socket_programs()
        self._dense_tracepoints = (*DENSE_TRACEPOINTS, *sockets)
        self.tracepoints = (*self._dense_tracepoints, *RARE_TRACEPOINTS)
        try:
            by_tables = options.user_stacks and options.unwind_tables
            self.walker = Walker(self._object, pid, by_tables, options.tables, options.files)
            self._configure()
            self._object.load()
            self.walker.load(self._stack)
            self.maps = LedgerMaps(
                self._object, options.slots_count, self._shards_count, self._stack
            )
            self.counts = KernelCounts(self._object, pid, self._stack)
        except BaseException:
            self._stack.close()
            raise

    # ---- loading ----

    def is_attached(self, site: Site) -> bool:
        """Whether a site of the plan gets a probe: a tracepoint may replace it."""
        return not (self.covered_by_tracepoint and self.plan.covered_by_tracepoint(site))

    def _socket_programs(self) -> tuple[str, ...]:
        """The programs at events of sockets."""
        if not self.uses_sockets:
            return ()
        source = socket_source(self.options.features)
        programs = SOCKET_FUNCTIONS if source == SocketSource.FUNCTIONS else SOCKET_TRACEPOINTS
        return tuple(programs)

    def _configure(self) -> None:
        bpf = self._object
        used = self._socket_programs()
        for program in (*SOCKET_TRACEPOINTS, *SOCKET_FUNCTIONS):
            bpf.set_autoload(program, program in used)
        bpf.set_autoload("each_file", self.uses_sockets)
        config = program_memory.Config()
        config.tgid = self.pid
        config.client = {"server": 0, "client": 1}.get(self.plan.role, 2)
        config.switch_has_state = self._switch_has_state
        config.covered_by_tracepoint = self.covered_by_tracepoint
        config.flow = self.plan.is_flow
        config.no_user_stacks = not self.options.user_stacks
        config.slots, config.shards = self.options.slots_count, self._shards_count
        for accessor, name in program_memory.ACCESSORS.items():
            setattr(config, name, self.plan.accessors.get(accessor, -1))
        kinds = program_memory.wait_kinds()
        ctypes.memmove(config.wait_kind, kinds, len(kinds))
        bpf.set_constants(".rodata.config", bytes(config))
        bpf.resize("slots", self.options.slots_count)
        bpf.resize("free_slots", self.options.slots_count + 1)
        for name in ("latency", "hits"):
            bpf.resize(name, self._shards_count)
        if self.walker.enabled:  # stacks go through its ring
            bpf.resize("stacks", 1)
            bpf.resize("more_stacks", 1)
        kernel_counts.prepare(bpf)
        self._uprobes.prepare()

    # ---- attaching ----

    def attach(self, dense: bool = True, rare: bool = True) -> None:
        """Attach the scheduler's tracepoints, then the boundaries, then the sampler.

        In that order no boundary fires in a thread that has no account in the ledger yet. Without
        `dense` only cheap probes are attached: see attach_dense(); without `rare` no boundary is.
        """
        if len(self.plan.sites) > layout.MAX_SITES:
            raise TlstaxError(
                f"cannot place {len(self.plan.sites)} probes",
                f"the programs support at most {layout.MAX_SITES}",
                "use fewer definitions",
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
            self._sampler.attach()

    def attach_dense(self) -> None:
        """Attach the frequent probes: boundaries of commands, and the scheduler's programs.

        Accounts of known threads continue from here: connections are `unknown` until their next
        boundary (not those that are being set up, torn down or parked), others are `background`.
        Cells keep their earlier contents, so read the slots once at the start of a window.
        """
        self._is_dense = True
        self._set_control(paused=0)
        if self.uses_sockets:  # those of clients have the ports that it listens on
            self._object.run_iterator("each_file", self.pid)
        for name in self._dense_tracepoints:
            self._attach_program(name, self._dense)
        self._object.run_iterator("each_thread")
        if self._control.blind_ns:
            self._set_control(blind_ns=0)
            self._attach_sites("connection", self._connections)
        self._attach_sites("ledger", self._dense)

    def detach_dense(self) -> None:
        """Detach what attach_dense() attached; first end the window (read the slots).

        Rare boundaries, handshake records and samples continue. A thread's cells do not change
        (`SlotView.paused`). A handshake's record is marked as without states
        (`HandshakeRecord.unfollowed`); its wall times and those of its operations are valid.
        """
        self._is_dense = False
        self._dense.close()
        self._set_control(paused=1)
        self._object.run_iterator("each_thread")
        self.maps.mark_gone()  # while no probe was attached

    def detach_connections(self) -> None:
        """After detach_dense(): go down to level `handshake`, until attach_dense().

        Threads may get another connection from here on, and nothing tells.
        """
        self._connections.close()
        self._set_control(blind_ns=time.monotonic_ns())

    def walk_waits(self, share: int) -> None:
        """Walk the stacks of one in so many waits (a power of two)."""
        self._set_control(offcpu_mask=share - 1)

    def attach_rare(self) -> None:
        """Attach the boundaries that connections and handshakes cross."""
        if not self._is_dense:
            self.adopt_threads()
        self._attach_sites("connection", self._connections)
        self._attach_sites("signature", self._rare)
        self._attach_sites("handshake", self._rare)

    def adopt_threads(self) -> None:
        """Make accounts of threads that have none, as far as there is room.

        Otherwise they are made when a thread starts.
        """
        self._object.run_iterator("each_thread")

    def keep_up(self) -> None:
        """Between two windows: accounts of threads that found no room, CPUs that came online."""
        now = self.maps.lifecycle()
        if now.untracked_count or now.refused_count > self._refused_count:
            self._refused_count = now.refused_count
            if self.maps.has_room:
                self.adopt_threads()
        self._sampler.keep_up()
        self.walker.keep_up()

    def stack_addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a stack, innermost first; empty when it was overwritten."""
        if stack & WALKED_STACK:
            return self.walker.addresses(stack)
        return self.maps.stack_addresses(stack)

    def _attach_program(self, name: str, group: LinkGroup) -> None:
        group.callback(self._object.attach(name).close)

    def _set_control(self, **values: int) -> None:
        for name, value in values.items():
            setattr(self._control, name, value)
        fd = self._object.map_fd_ending(".data.control")
        loaded.map_update(fd, bytes(4), bytes(self._control))

    def _attach_sites(self, level: str, group: LinkGroup) -> None:
        probes = [
            Attachment(
                site.event,
                File(site.object.path, self._files.path(site.object)),
                site.file_offset,
                cookie_of(number, site),
                site.kind == "uretprobe",
            )
            for number, site in enumerate(self.plan.sites)
            if lowest_level(site) == level and self.is_attached(site)
        ]
        self._uprobes.attach(probes, self.pid, group)

    # ---- reading ----

    def site_hits(self) -> list[int]:
        """Hits of each site of the plan so far."""
        return self.maps.site_hits(len(self.plan.sites))

    def loss_counts(self) -> dict[str, int]:
        """Everything that was lost or repaired so far, by kind."""
        counts = self.maps.losses()
        missed = layout.LOSS_NAMES.index("probe_recursion_missed")
        for program in (*self.tracepoints, "on_enter", "on_leave"):
            fd = self._object.program_fd(program)
            counts[missed] += loaded.program_recursion_misses(fd)
        return dict(zip(layout.LOSS_NAMES, counts, strict=True)) | self.walker.losses()

    def program_times(self) -> dict[str, tuple[int, int]]:
        """Run time in ns and runs of each program while the kernel's statistics were on."""
        return {
            name: loaded.program_run_time(self._object.program_fd(name))
            for name in (*self.tracepoints, SAMPLER, "on_enter", "on_leave")
        }

    def close(self) -> None:
        """Detach and unload everything."""
        self._sampler.close()
        self._dense.close()
        self._connections.close()
        self._rare.close()
        self._always.close()
        self._stack.close()
