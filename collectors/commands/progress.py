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
        self._handshakes_count = 0
        self._start_ns: int | None = None
        self._last_ns = 0

    def show(self, window: WindowTotals) -> None:
        """Show a window, unless it was shown."""
        if window.end_ns == self._last_ns:
            return
        self._start_ns = self._start_ns or window.start_ns
        self._last_ns = window.end_ns
        self._handshakes_count += len(window.handshakes)
        span_s = (window.end_ns - window.start_ns) / 1e9
        lost = sum(n for kind, n in window.losses.items() if kind not in REPAIRS)
        line = (
            f"{(window.end_ns - self._start_ns) / 1e9:6.0f} s"
            f"  {len(window.handshakes) / span_s:8.1f} handshakes/s"
            f"  {max(0, window.phase_counts.get('command', 0)) / span_s:9.0f} commands/s"
            f"  {window.on_cpu_ns / 1e9 / span_s:5.2f} CPUs"
            f"  healed {sum(window.losses.get(kind, 0) for kind in REPAIRS)}  lost {lost}"
            f"  tlstax {resident_bytes() >> 20} MB"
        )
        print(f"\r{line}" if self._rewrite else line, end="" if self._rewrite else "\n",
              file=with_controls(sys.stderr), flush=True)  # fmt: skip

    def end(self) -> None:
        """Leave the line."""
        if self._rewrite:
            print(file=sys.stderr)
