# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of open connections by what TCP counts for them (the source `sockets`).

Waits between the parts of a command are `idle` in the ledger, as waits for a command are: only the
sockets tell that something had come. What a delayed acknowledgement takes is known from the kernel.
"""

from typing import Final

import numpy as np

from tlstax.analysis.findings.window_metrics import Blocks, Metric, Metrics, exact, ratio
from tlstax.analysis.statistics.units import Floats

DELAYED_NS: Final = 40_000_000
"""Least delay of an acknowledgement: TCP_DELACK_MIN of include/net/tcp.h."""


def add_acknowledgements(found: Metrics, blocks: Blocks, served: Floats) -> None:
    """Delayed acknowledgements on connections with lone ones, and what kind of waits they are."""
    replies = blocks.sums("sockets:waiting_sent_count")
    delayed = blocks.sums("tcp:delayed")
    found["waiting_reply_count"] = exact(float(replies[0]))
    found["ack_delayed_ratio"] = (
        blocks.metric(ratio(delayed, replies)) if blocks.sums("tcp:read")[0] else Metric(None)
    )
    found["ack_parts_ratio"] = blocks.metric(
        ratio(blocks.sums("sockets:waiting_received_count"), replies)
    )
    short, timer, longer = (f"sockets:quiet_{name}_count" for name in ("short", "timer", "longer"))
    found["quiet_timer_share"] = blocks.share(timer, short, longer)
    found["quiet_longer_share"] = blocks.share(longer, short, timer)
    local = float(blocks.sums("sockets:client_count")[0])
    holding = float(blocks.sums("sockets:client_holding_count")[0])
    found["holding_share"] = exact(holding / local) if local else Metric(None)
    # Both as times in a unit of time: the source reads always, the ledger perhaps not.
    waiting = ratio(DELAYED_NS * np.minimum(delayed, replies), blocks.sums("sockets:time"))
    busy = ratio(served, blocks.sums("dense:time"))
    commands = ratio(blocks.sums("ended:command"), blocks.sums("dense:time"))
    found["ack_wait_share"] = blocks.metric(ratio(waiting, waiting + busy))
    found["ack_wait_ns"] = blocks.metric(ratio(waiting, commands))
