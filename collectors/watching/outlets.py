# SPDX-License-Identifier: GPL-2.0-only
"""The outlets of the servers of a watch: opened with the first recording, closed long after."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.by_recorder.several import SERVERS_MOST
from tlstax.collectors.watching.outlet import Outlet

_S: Final = 1_000_000_000
GONE_MOST: Final = SERVERS_MOST
"""Outlets that are kept for servers that have gone; of more the one that went first is closed."""
GONE_NS: Final = 24 * 3600 * _S
"""An outlet whose server has been gone for so long is closed."""


class Outlets:
    """By label."""

    def __init__(self, open_outlet: Callable[[str], Outlet]) -> None:
        """`open_outlet` may be called again for a label whose outlet was closed."""
        self._open = open_outlet
        self._outlets: dict[str, Outlet] = {}
        self._gone_ns: dict[str, int] = {}  # since when, the first one first
        self._closed_cpu_ns = 0  # of those that were closed

    def of(self, label: str) -> Outlet:
        """That of a server. Raises TlstaxError if it cannot be opened."""
        if label not in self._outlets:
            self._outlets[label] = self._open(label)
            self._gone_ns[label] = monotonic_ns()
        return self._outlets[label]

    def recorded(self, label: str) -> None:
        """Its server is recorded now."""
        self._gone_ns.pop(label, None)

    def gone(self, label: str) -> None:
        """It is no longer recorded."""
        self._gone_ns[label] = monotonic_ns()

    @property
    def awaited(self) -> bool:
        """Whether servers are gone that may come again."""
        return bool(self._gone_ns)

    def close_old(self) -> Iterator[str]:
        """Finish what is left of those that are gone; close old ones, whose labels it yields."""
        for label, since_ns in list(self._gone_ns.items()):
            if len(self._gone_ns) > GONE_MOST or monotonic_ns() - since_ns > GONE_NS:
                outlet = self._outlets.pop(label)
                del self._gone_ns[label]
                self._closed_cpu_ns += outlet.own_cpu_ns
                outlet.close()
                yield label
            else:
                self._outlets[label].settle()

    def costs(self) -> str:
        """CPU time of tlstax for each, as a sentence; "" if there was none."""
        costs = {label: one.own_cpu_ns for label, one in sorted(self._outlets.items())}
        if self._closed_cpu_ns:
            costs["those that are gone"] = self._closed_cpu_ns
        if not costs:
            return ""
        each = ", ".join(f"{spent / _S:.1f} s for {label}" for label, spent in costs.items())
        return f"tlstax and its recorders used {sum(costs.values()) / _S:.1f} s: {each}"

    def close(self) -> None:
        """Close all, also if one of them fails to."""
        with ExitStack() as stack:
            for outlet in self._outlets.values():
                stack.callback(outlet.close)
            self._outlets = {}
