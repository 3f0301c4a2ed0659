# SPDX-License-Identifier: GPL-2.0-only
"""The clocks and counters of the host and the target that a stream holds."""

from tlstax.collectors.host.clock import cpu_used_ns
from tlstax.collectors.recording.proc_clocks import Clocks, TargetCounters, resident_bytes
from tlstax.collectors.recording.stream.replay import UNKNOWN, Replay


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

        def read() -> tuple[dict[int, tuple[int, int]], int | None]:
            delayed = int(replay.window.delayed_ack_count)
            return dict(replay.quotas), None if delayed == UNKNOWN else delayed

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
