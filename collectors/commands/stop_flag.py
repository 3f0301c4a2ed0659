# SPDX-License-Identifier: GPL-2.0-only
"""SIGINT, SIGTERM and SIGHUP as a flag, and as a descriptor that ends a wait; Ctrl-Z is ignored."""

import os
import signal
import sys
from types import FrameType


class StopFlag:
    """Set by SIGINT, SIGTERM and SIGHUP: a recording ends between two steps and not within one.

    SIGHUP comes when the terminal is closed. Where it is ignored (nohup), it stays so.

    SIGTSTP (Ctrl-Z) is blocked from now on, in children, too: the recorder would keep its probes
    attached while nobody takes its windows. `requested` tells the user so, the first time.
    """

    def __init__(self) -> None:
        self.fd, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        self._is_requested = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._request)
        self._tells_ctrl_z = signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})

    @property
    def requested(self) -> bool:
        """Whether the recording is to end."""
        if self._tells_ctrl_z and signal.SIGTSTP in signal.sigpending():
            self._tells_ctrl_z = False
            line_end = "\n" if sys.stderr.isatty() else ""  # of the line that it was typed in
            text = "Ctrl-Z is ignored, as probes would stay attached; Ctrl-C ends the recording"
            print(f"{line_end}tlstax: {text}", file=sys.stderr)
        return self._is_requested

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self._is_requested = True
