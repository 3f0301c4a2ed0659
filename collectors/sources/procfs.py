# SPDX-License-Identifier: GPL-2.0-only
"""CPU time, pressure and block devices from /proc, second by second.

Sources of the figures: proc(5) for /proc/stat (clock ticks) and /proc/diskstats (sectors of 512
bytes, milliseconds), Documentation/accounting/psi.rst for /proc/pressure (microseconds).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.known_sources import PROCFS
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration

Readings = dict[tuple[str, str], float]
"""Counters by (object, name). They only grow."""

SECTOR_BYTES: Final = 512
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_CPU: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_DISK: Final = (
    ("reads_count", 1), ("", 0), ("read_bytes", SECTOR_BYTES), ("read_wait_ns", 1_000_000),
    ("writes_count", 1), ("", 0), ("write_bytes", SECTOR_BYTES), ("write_wait_ns", 1_000_000),
    ("", 0), ("busy_ns", 1_000_000), ("queue_wait_ns", 1_000_000),
    ("discards_count", 1), ("", 0), ("discard_bytes", SECTOR_BYTES), ("discard_wait_ns", 1_000_000),
    ("flushes_count", 1), ("flush_wait_ns", 1_000_000),
)  # fmt: skip
_DISK_START: Final = 3
"""Columns of /proc/diskstats before the counters: major, minor, name."""


class Procfs:
    """The counters of the host; needs /proc only."""

    name = "procfs"
    warning = ""

    def __init__(self, proc: Path = Path("/proc"), *, devices: bool = True) -> None:
        """`devices`: also read block devices (where iostat does not)."""
        self._proc = proc
        self._devices = devices
        self._last: Readings = {}
        self._last_ns = 0

    def start(self) -> str:
        """Take the first reading, to which the next one is compared."""
        try:
            self._last = self._read()
        except (OSError, ValueError, IndexError) as error:
            raise TlstaxError(
                "cannot read the counters of the host",
                f"{self._proc}: {error}",
                "Mount /proc, or leave procfs out of --collect",
                ExitCode.HOST,
            ) from error
        self._last_ns = monotonic_ns()
        return "/proc"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """The growth of each counter that changed."""
        try:
            readings = self._read()
        except (OSError, ValueError, IndexError) as error:
            raise TlstaxError(
                "the counters of the host can no longer be read",
                str(error),
                "Check that /proc is still mounted",
                ExitCode.HOST,
            ) from error
        interval_ns = now_ns - self._last_ns if self._last_ns else 0
        rows = [
            schema.Metric(now_ns, interval_ns, self.name, thing, name, value - self._last[key])
            for key, value in readings.items()
            for thing, name in (key,)
            if interval_ns and key in self._last and value > self._last[key]
        ]
        self._last, self._last_ns = readings, now_ns
        return rows

    def stop(self) -> Iterable[schema.Row]:
        """Nothing is held."""
        return ()

    def _read(self) -> Readings:
        readings = dict(read_cpu(self._text("stat")))
        readings.update(self._pressure())
        if self._devices:
            readings.update(read_devices(self._text("diskstats")))
        return readings

    def _pressure(self) -> Iterator[tuple[tuple[str, str], float]]:
        """How long some tasks, or all, waited; empty on kernels without PSI."""
        for kind in ("cpu", "io", "memory"):
            path = self._proc / "pressure" / kind
            if path.exists():
                yield from read_pressure(kind, path.read_text("ascii"))

    def _text(self, name: str) -> str:
        return (self._proc / name).read_text("ascii", "replace")


def read_cpu(stat: str) -> Iterator[tuple[tuple[str, str], float]]:
    """CPU time of all CPUs together, by kind, in ns."""
    fields = stat.splitlines()[0].split()
    if fields[0] != "cpu":
        raise ValueError("/proc/stat does not begin with a line for all CPUs")
    for name, ticks in zip(_CPU, fields[1:], strict=False):
        yield ("cpu", f"{name}_ns"), float(int(ticks) * _TICK_NS)


def read_pressure(kind: str, text: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Stall time of `some` and `full` tasks in ns."""
    for line in text.splitlines():
        which, *values = line.split()
        totals = [int(value.removeprefix("total=")) for value in values if "total=" in value]
        yield (f"pressure {kind}", f"{which}_ns"), float(totals[0] * 1000)


def read_devices(diskstats: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Counters of every block device that was used since the host started."""
    for line in diskstats.splitlines():
        fields = line.split()
        counters = [int(value) for value in fields[_DISK_START:]]
        if not any(counters):
            continue
        for (name, scale), value in zip(_DISK, counters, strict=False):
            if name:
                yield (fields[2], name), float(value * scale)


def _open(asked: Asked) -> Sequence[Source]:
    return (Procfs(devices="iostat" not in asked.names),)


SOURCE: Final = Declaration(
    name="procfs",
    summary="CPU time, pressure and, unless iostat is collected, block devices",
    needs="`/proc`",
    open=_open,
    panels=PROCFS,
)
