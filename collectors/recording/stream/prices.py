# SPDX-License-Identifier: GPL-2.0-only
"""What frames say of a budget and of what recording costs, if a recorder can have written it."""

from typing import Any, Final

from tlstax.collectors.recording.stream.frames import record
from tlstax.probes.model import Level

_LEVELS: Final = {b"none", *(level.name.lower().encode() for level in Level)}
_PAIRS: Final = range(8, 33)
"""That an estimate has: PAIRS_LEAST to PAIRS_MOST of median.h."""
_PAIRS_USED: Final = 16
_SEND_MOST_NS: Final = 3_600_000_000_000


def budget_of(content: bytes) -> Any:
    """The budget of a frame. Raises ValueError for one that no recorder writes."""
    budget = record("budget", content)
    require_levels(budget.dense, budget.light)
    if not (budget.base_ns and budget.cycle_ns):
        raise ValueError("a budget of nothing")
    return budget


def require_levels(*names: bytes) -> None:
    """Raises ValueError for one that there is not."""
    for name in names:
        if name not in _LEVELS:
            raise ValueError(f"level {name!r}")


def whole_price_of(content: bytes) -> Any:
    """What recording costs for a send. Raises ValueError for figures that no recorder writes."""
    price = record("whole_price", content)
    ends = (
        (price.server_low_ns, price.server_ns, price.server_high_ns),
        (price.host_low_ns, price.host_ns, price.host_high_ns),
    )
    told_ns = (price.server_said_ns, price.host_said_ns, price.server_told_ns, price.host_told_ns)
    all_ns = (price.send_ns, *(abs(ns) for end in (*ends, told_ns) for ns in end))
    if price.pairs_count not in _PAIRS or max(all_ns) > _SEND_MOST_NS:
        raise ValueError(f"a price of {price.pairs_count} pairs, or of hours")
    if any(sorted(end) != list(end) for end in ends):
        raise ValueError("a price beyond its own interval")
    if not price.is_host_used <= price.is_server_used <= 1 or price.has_clients > 1:
        raise ValueError("a price of clients that is told without the server's")
    if price.is_server_used and not (
        price.pairs_count >= _PAIRS_USED
        and price.ratio_ppm
        and 0 <= price.server_told_ns <= price.host_told_ns
        and price.server_told_ns <= max(price.server_ns, price.server_said_ns)
        and price.has_clients <= price.is_host_used
    ):
        raise ValueError("a price that is told, and is none")
    return price
