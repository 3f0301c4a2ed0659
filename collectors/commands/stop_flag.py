# SPDX-License-Identifier: GPL-2.0-only
"""SIGINT, SIGTERM and SIGHUP as a flag, and as a descriptor that ends a wait."""

import os
import signal
from types import FrameType


class StopFlag:
    """Set by SIGINT, SIGTERM and SIGHUP: a recording ends between two steps and not within one.

    SIGHUP comes when the terminal is closed. Where it is ignored (nohup), it stays so.
    """

    def __init__(self) -> None:
        self.requested = False
        self.fd, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._request)

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
