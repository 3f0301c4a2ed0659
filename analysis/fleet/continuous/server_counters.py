# SPDX-License-Identifier: GPL-2.0-only
"""The counters of all servers of a watch: what one endpoint serves, and one push sends.

Servers come and go in the thread that records, while others read.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tlstax.analysis.fleet.continuous.counters import Counters

LABEL: Final = "server"
"""What tells the metrics of several servers from each other."""
_Read = TypeVar("_Read")


class ServerCounters:
    """Counters by server: of those that are recorded, and of those that are awaited."""

    def __init__(
        self, known: Mapping[str, Counters] | None = None, *, are_several: bool = False
    ) -> None:
        """`are_several`: metrics have a label for the server, even while there is one."""
        self.labels = (LABEL,) if are_several else ()
        self._known = dict(known or {})
        self._lock = threading.Lock()

    def add(self, server: str, counters: Counters) -> None:
        """Its metrics begin."""
        with self._lock:
            self._known[server] = counters

    def remove(self, server: str) -> None:
        """Its metrics end here."""
        with self._lock:
            del self._known[server]

    def read(self, of: Callable[[Counters], _Read]) -> list[tuple[tuple[str, ...], _Read]]:
        """What `of` makes of each, with the values of `labels`, while nothing is added to it."""
        with self._lock:
            known = sorted(self._known.items())
        found: list[tuple[tuple[str, ...], _Read]] = []
        for server, counters in known:
            with counters.held():
                found.append(((server,) if self.labels else (), of(counters)))
        return found
