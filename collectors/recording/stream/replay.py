# SPDX-License-Identifier: GPL-2.0-only
"""A stream as the maps that it was read from: the totals of one window after another."""

from collections.abc import Iterable, Iterator
from typing import Final

from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.names import (
    DENSE_TRACEPOINTS,
    LOSS_KINDS,
    RARE_TRACEPOINTS,
    SAMPLER,
    SOCKET_FUNCTIONS,
    SOCKET_SOURCES,
    SOCKET_TRACEPOINTS,
    WALK_COUNTS,
)
from tlstax.collectors.recording.programs.views import CpuReading, ProcessReading, SlotView
from tlstax.collectors.recording.stream.part_counts import Counts
from tlstax.collectors.recording.stream.totals import Totals

UNKNOWN: Final = (1 << 64) - 1
"""A figure of a window that could not be read."""


class Replay(Totals):
    """What the recorder's programs counted, as of the last window of its stream that was read."""

    # ---- the maps ----

    def slots(self) -> Iterator[SlotView]:
        """Every thread's account; those that ended stay until `recycle`."""
        for account in (*self.accounts.ended.values(), *self.accounts.live.values()):
            if account.view is not None:
                yield account.view

    def recycle(self, index: int) -> None:
        """Forget the thread that ended in a slot: the first of them."""
        ended = self.accounts.ended
        del ended[next(key for key in ended if key[0] == index)]

    def span_of(self, slot: SlotView) -> int:
        """1 + number of the span that the thread's stack showed; 0: none."""
        key = (slot.index, slot.tid, slot.thread_start_ns)
        account = self.accounts.live.get(key) or self.accounts.ended.get(key)
        return account.span if account else 0

    def latency_counts(self) -> dict[int, tuple[int, ...]]:
        """Histogram of each phase that ended."""
        return {phase: tuple(counts) for phase, counts in sorted(self.latency.items())}

    def probe_counts(self) -> Counts:
        """What the probes counted so far: a copy, made of every window."""
        return Counts(dict(self.hits), dict(self.programs), self.walk_counts())

    def handshake_records(self) -> list[layout.HandshakeRecord]:
        """The handshakes that ended in the window."""
        return self.window_records

    def samples(self) -> list[tuple[layout.SampleKey, int]]:
        """The CPU samples of the window."""
        return self.window_samples

    def waits(self) -> list[tuple[layout.OffcpuKey, layout.OffcpuValue]]:
        """The walked waits of the window."""
        return self.window_waits

    def stack_addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a stack, leaf first."""
        return tuple(memoryview(self.stacks.get(stack, b"")).cast("Q").tolist())

    def executed_ns(self) -> int:
        """When the target executed another program; 0: it did not."""
        return int(self.window.executed_ns)

    def forked_count(self) -> int:
        """Processes that the target started."""
        return int(self.window.forked_count)

    @property
    def untracked_count(self) -> int:
        """Threads without an account."""
        return int(self.window.untracked_count)

    # ---- the kernel's counts ----

    @property
    def has_counts(self) -> bool:
        """Whether they were read where the window ends."""
        return bool(self.window.has_counts)

    def read(self) -> ProcessReading:
        """The counts of the process as they were read last, its CPU clock where the window ends."""
        now = self.window
        nothing = CpuReading(0, 0)
        return ProcessReading(
            None if now.process_cpu_ns == UNKNOWN else int(now.process_cpu_ns),
            int(now.switch_count),
            int(now.thread_count),
            int(now.account_count),
            bool(now.has_wait),
            tuple(self.cpus.get(cpu, nothing) for cpu in range(self.start.cpus_count)),
        )

    # ---- the recording ----

    @property
    def pid(self) -> int:
        """The process that was recorded."""
        return int(self.start.pid)

    @property
    def network_bits(self) -> tuple[int, int]:
        """How many bits of clients' IPv4 and IPv6 addresses handshakes have; (0, 0): none."""
        return int(self.start.network_bits), int(self.start.network6_bits)

    @property
    def plan(self) -> Plan:
        """What was probed."""
        return self.plan_file.plan

    @property
    def multi(self) -> bool:
        """Whether one link took all probes of a file."""
        return bool(self.start.multi)

    @property
    def socket_source(self) -> str:
        """What events of sockets come from: tracepoints, functions or none."""
        return SOCKET_SOURCES[min(self.start.socket_events, len(SOCKET_SOURCES) - 1)]

    @property
    def tracepoints(self) -> tuple[str, ...]:
        """The programs at events of the kernel."""
        by_source = {
            "tracepoints": tuple(SOCKET_TRACEPOINTS),
            "functions": tuple(name for name in SOCKET_FUNCTIONS if name in self.programs),
        }
        return (*DENSE_TRACEPOINTS, *by_source.get(self.socket_source, ()), *RARE_TRACEPOINTS)

    def is_attached(self, site: Site) -> bool:
        """Whether a site of the plan had a probe: events of sockets may replace it."""
        return not (self.start.socket_events and self.plan.covered_by_tracepoint(site))

    def site_hits(self) -> list[int]:
        """Hits of each site of the plan so far."""
        return [self.hits.get(number, (0,))[0] for number in range(len(self.plan.sites))]

    def loss_counts(self) -> dict[str, int]:
        """Everything that was lost or repaired so far, by kind."""
        losses: Iterable[int] = self.window.losses
        counts = dict(zip(layout.LOSS_NAMES, losses, strict=False))
        if self.start.unwind_bytes:
            walks = self.walk_counts()
            counts |= {kind: walks[name] for name, kind in LOSS_KINDS.items()}
        return counts

    def walk_counts(self) -> dict[str, int]:
        """How walks by unwind tables ended, by WALK_COUNTS."""
        return dict(zip(WALK_COUNTS, map(int, self.window.walks), strict=True))

    def program_costs(self) -> dict[str, tuple[str, float | None]]:
        """Kind and mean ns of a run of the programs behind tracepoints and the sampler."""
        costs: dict[str, tuple[str, float | None]] = {}
        for name in (*self.tracepoints, SAMPLER):
            run_ns, runs = self.programs.get(name, (0, 0))
            kind = "perf_event" if name == SAMPLER else "tp_btf"
            kind = "fexit" if name in SOCKET_FUNCTIONS else kind
            costs[name] = (kind, run_ns / runs if runs else None)
        return costs
