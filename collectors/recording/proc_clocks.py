# SPDX-License-Identifier: GPL-2.0-only
"""CPU times of the host, memory of this process, CPU quota and TCP timers of a target."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.collectors.host.child import own_cpu_ns
from tlstax.collectors.host.clock import cpu_used_ns
from tlstax.collectors.preflight.cgroups import group_of
from tlstax.collectors.recording.stream.replay import UNKNOWN, Replay

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def host_times() -> tuple[int, int, int, int, int]:
    """User, system, interrupt, steal and idle time of the host in ns (10 ms resolution)."""
    with open("/proc/stat", "rb", buffering=0) as file:
        fields = [int(field) for field in file.read(256).split(b"\n", 1)[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = fields
    times = (user + nice, system, irq + softirq, steal, idle + iowait)
    return tuple(ticks * _TICK_NS for ticks in times)  # type: ignore[return-value]


def resident_bytes() -> int:
    """Resident memory of this process."""
    text = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(text.split()[1]) * _PAGE_BYTES


class Counters(NamedTuple):
    """Counters of the kernel about a process's CPU quota and its network; they only grow."""

    quota_period_count: int = 0
    throttled_period_count: int = 0
    delayed_ack_count: int | None = None
    listen_drop_count: int | None = None


Readings = tuple[dict[int, tuple[int, int]], tuple[int | None, int | None]]
"""Periods and throttled periods of a quota by group; `tcp_counts`."""


class TargetCounters:
    """Differences of the quotas of a process's cgroups and of its network's acknowledgements.

    A group without a quota counts no periods, and the groups above may have one, too: the group
    that throttled most often counts.
    """

    def __init__(self, read: Callable[[], Readings]) -> None:
        """`read`: the counters as they are now."""
        self._read = read
        self._last = read()

    def growth(self) -> Counters:
        """Since the last call."""
        now, last = self._read(), self._last
        self._last = now
        none = (0, 0)
        grown = [
            (after[1] - last[0].get(group, none)[1], after[0] - last[0].get(group, none)[0])
            for group, after in now[0].items()
        ]
        throttled, periods = max(grown, default=none)
        acks, drops = (
            None if after is None or before is None else max(0, after - before)
            for after, before in zip(now[1], last[1], strict=True)
        )
        return Counters(max(0, periods), max(0, throttled), acks, drops)


def counters_of(pid: int) -> TargetCounters:
    """Those of a process on this host."""
    group = group_of(pid, "cpu")
    quotas = [place / "cpu.stat" for place in group.upwards()] if group else []
    netstat = Path(f"/proc/{pid}/net/netstat")

    def read() -> Readings:
        periods = {number: quota_periods(_text(path)) for number, path in enumerate(quotas)}
        return periods, tcp_counts(_text(netstat))

    return TargetCounters(read)


def quota_periods(cpu_stat: str) -> tuple[int, int]:
    """Periods of a quota, and how many of them were throttled, by cpu.stat of a cgroup."""
    values = dict(line.partition(" ")[::2] for line in cpu_stat.splitlines())
    periods, throttled = (values.get(name, "") for name in ("nr_periods", "nr_throttled"))
    if not periods.isdigit() or not throttled.isdigit():
        return 0, 0
    return int(periods), int(throttled)


def tcp_counts(netstat: str) -> tuple[int | None, int | None]:
    """DelayedACKs and ListenOverflows of /proc/PID/net/netstat; None where they are not there.

    Its lines are pairs of names and values.
    """
    known: dict[str, str] = {}
    lines = netstat.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        known |= dict(zip(names.split(), values.split(), strict=False))
    acks, drops = (
        int(known[name]) if known.get(name, "").isdigit() else None
        for name in ("DelayedACKs", "ListenOverflows")
    )
    return acks, drops


def _text(path: Path) -> str:
    """The text of a file of the kernel; "" where it is not there."""
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


class Clocks:
    """The clocks of a recording by this process, and the memory that it uses."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns`: CLOCK_MONOTONIC."""
        self.now_ns = now_ns

    def host_times(self) -> tuple[int, int, int, int, int]:
        """As the function of that name."""
        return host_times()

    def own_cpu_ns(self) -> int:
        """CPU time of the recorder, with the children that work for it."""
        return own_cpu_ns()

    def resident_bytes(self) -> int:
        """Memory of the recorder."""
        return resident_bytes()

    def target_counters(self, pid: int) -> TargetCounters | None:
        """Quota and TCP timers of the target; None where they are not recorded."""
        return counters_of(pid)


class RecordedClocks(Clocks):
    """The recorder's clocks at the end of the present window."""

    def __init__(self, replay: Replay) -> None:
        super().__init__(lambda: int(replay.window.read_ns))
        self._replay = replay

    def host_times(self) -> tuple[int, int, int, int, int]:
        """Of the host that recorded."""
        now = self._replay.window
        busy = (now.host_user_ns, now.host_system_ns, now.host_interrupt_ns)
        return (*busy, now.host_steal_ns, now.host_idle_ns)

    def target_counters(self, pid: int) -> TargetCounters:
        """Of the target that was recorded."""
        replay = self._replay

        def read() -> Readings:
            now = replay.window
            acks, drops = (
                None if count == UNKNOWN else int(count)
                for count in (now.delayed_ack_count, now.listen_drop_count)
            )
            return dict(replay.quotas), (acks, drops)

        return TargetCounters(read)

    def own_cpu_ns(self) -> int:
        """CPU time of the recorder."""
        return int(self._replay.window.own_cpu_ns)

    def resident_bytes(self) -> int:
        """Memory of the recorder."""
        return int(self._replay.window.resident_bytes)


class BothClocks(RecordedClocks):
    """CPU time and memory of the recorder and of this process."""

    def __init__(self, replay: Replay) -> None:
        super().__init__(replay)
        self._before_ns = cpu_used_ns()

    def own_cpu_ns(self) -> int:
        """CPU time of both since the recording began."""
        return super().own_cpu_ns() + cpu_used_ns() - self._before_ns

    def resident_bytes(self) -> int:
        """Memory of both."""
        return super().resident_bytes() + resident_bytes()
