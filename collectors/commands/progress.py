# SPDX-License-Identifier: GPL-2.0-only
"""The line that `attach` shows while it records."""

import sys

from tlstax.collectors.capture.printable import with_controls
from tlstax.collectors.capture.vocabulary import REPAIRS
from tlstax.collectors.recording.proc_clocks import resident_bytes
from tlstax.collectors.recording.windows import WindowTotals


class Progress:
    """One line on the terminal, rewritten every window."""

    def __init__(self, rewrite: bool) -> None:
        self._rewrite = rewrite
        self._start_ns: int | None = None
        self._last_ns = 0

    def show(self, *windows: WindowTotals) -> None:
        """Show the last window of each server, unless all were shown."""
        end_ns = max(window.end_ns for window in windows)
        if end_ns == self._last_ns:
            return
        self._start_ns = self._start_ns or min(window.start_ns for window in windows)
        self._last_ns = end_ns
        handshakes = commands = cpus = 0.0
        healed = lost = 0
        for window in windows:
            span_s = (window.end_ns - window.start_ns) / 1e9
            handshakes += len(window.handshakes) / span_s
            commands += max(0, window.phase_counts.get("command", 0)) / span_s
            cpus += window.on_cpu_ns / 1e9 / span_s
            healed += sum(window.losses.get(kind, 0) for kind in REPAIRS)
            lost += sum(n for kind, n in window.losses.items() if kind not in REPAIRS)
        line = (
            f"{(end_ns - self._start_ns) / 1e9:6.0f} s"
            + (f"  {len(windows)} servers" if len(windows) > 1 else "")
            + f"  {handshakes:8.1f} handshakes/s  {commands:9.0f} commands/s  {cpus:5.2f} CPUs"
            f"  healed {healed}  lost {lost}  tlstax {resident_bytes() >> 20} MB"
        )
        print(f"\r{line}" if self._rewrite else line, end="" if self._rewrite else "\n",
              file=with_controls(sys.stderr), flush=True)  # fmt: skip

    def end(self) -> None:
        """Leave the line."""
        if self._rewrite:
            print(file=sys.stderr)
