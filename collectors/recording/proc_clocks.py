# SPDX-License-Identifier: GPL-2.0-only
"""The clocks of a recording: CPU times of the host, of what records, quota and TCP of a target."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.collectors.host.child import own_cpu_ns
from tlstax.collectors.recording.stream.replay import UNKNOWN, Replay

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


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
"""Periods and throttled periods by group; DelayedACKs and ListenOverflows of the network."""


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


class Clocks:
    """The recorder's clocks at the end of the present window."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def now_ns(self) -> int:
        """When the window's accounts had been read."""
        return int(self._replay.window.read_ns)

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


class BothClocks(Clocks):
    """CPU time and memory of the recorder and of this process."""

    def __init__(self, replay: Replay, used_ns: Callable[[], int] = own_cpu_ns) -> None:
        """`used_ns`: CPU time of this process, with what works for it."""
        super().__init__(replay)
        self._used_ns = used_ns
        self._before_ns = used_ns()

    def own_cpu_ns(self) -> int:
        """CPU time of both since the recording began."""
        return super().own_cpu_ns() + self._used_ns() - self._before_ns

    def resident_bytes(self) -> int:
        """Memory of both."""
        return super().resident_bytes() + resident_bytes()
