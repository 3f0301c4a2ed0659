# SPDX-License-Identifier: GPL-2.0-only
"""A budget that nothing fits on any host: the least share of the CPU time of an idle process.

0.1 % of the tenth of a CPU that such a process counts as using pays, on a fast host, for a window
in 10 s, or for 999 samples a second. Here it counts as using a thousandth, which pays for 1 us a
second; only the recorder's own command line takes such a number.
"""

import sys
from typing import Final

FLOOR: Final = ("--floor-cpus", "0.001")
OPTIONS: Final = ("--budget", "0.1%")
_PROGRAM: Final = f"""
import sys
from tlstax.collectors.recording.by_recorder import ready_server
from tlstax.collectors.remote.remote_recording import RecordRequest
local, remote = ready_server._arguments, RecordRequest.options
ready_server._arguments = lambda *given, **named: [*local(*given, **named), *{FLOOR}]
RecordRequest.options = lambda *given: " ".join([remote(*given), *{FLOOR}])
from tlstax.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
TLSTAX: Final = [sys.executable, "-c", _PROGRAM]
