# SPDX-License-Identifier: GPL-2.0-only
"""Where a watch sends its rows: rollups in a data set, and metrics if they are asked for."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.former_hosts import RemoveRaw
from tlstax.analysis.fleet.continuous.rollups import Destination, Rollups
from tlstax.analysis.fleet.continuous.server_counters import ServerCounters
from tlstax.analysis.fleet.rollup.recording import require_names
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.report.live.otlp import OtlpPush, endpoint_of
from tlstax.analysis.report.live.profile_push import ProfilePush
from tlstax.analysis.report.live.prometheus import Exposition


class Sinks:
    """Of all servers of a watch."""

    def __init__(
        self,
        data: Path,
        cluster: str,
        every_s: int,
        keep_s: float,
        profiles: str,
        are_several: bool,
    ) -> None:
        """`are_several`: metrics have a label for the server.

        Raises TlstaxError (HOST) if a package is missing.
        """
        parquet_files.arrow()
        self._data, self._cluster = data, cluster
        self._every_s, self._keep_s = every_s, keep_s
        self._profiles = profiles
        self._servers = ServerCounters(are_several=are_several)

    @contextlib.contextmanager
    def of(
        self,
        host: str,
        tell: Callable[[str], None],
        remove_raw: RemoveRaw = lambda host, end_wall_ns: True,
    ) -> Iterator[Rollups]:
        """The rollups of a server; `remove_raw` is for hosts that are not watched any more.

        Raises TlstaxError: HOST if a package is missing, USAGE, IO.
        """
        require_names("cannot watch", host, self._cluster)
        to = Destination(self._data, host, self._cluster, self._every_s, self._keep_s)
        with contextlib.ExitStack() as stack:
            pushed = ProfilePush(self._profiles, tell) if self._profiles else None
            if pushed:
                stack.callback(pushed.close)  # after the rollups, which explain the last hour
                tell(f"profiles are sent to {pushed.endpoint} every hour")
            counters = Counters()
            explained = pushed.add if pushed else None
            rollups = Rollups(to, tell, counters, explained=explained, remove_raw=remove_raw)
            stack.callback(rollups.close)
            self._servers.add(host, counters)
            stack.callback(self._servers.remove, host)
            yield rollups

    @contextlib.contextmanager
    def served(
        self, listen: tuple[str, int] | None, otlp: str, host: str, tell: Callable[[str], None]
    ) -> Iterator[None]:
        """Metrics of all servers, at one address. Raises TlstaxError: HOST, USAGE."""
        require_names("cannot watch", host, self._cluster)
        with contextlib.ExitStack() as stack:
            if listen is not None:
                exposition = Exposition(self._servers, *listen)
                stack.callback(exposition.close)
                tell(f"metrics at http://{_url_host(listen[0])}:{exposition.port}/metrics")
            if otlp:
                endpoint = endpoint_of(otlp)
                push = OtlpPush(self._servers, endpoint, host, self._every_s, tell)
                stack.callback(push.close)
                tell(f"metrics are sent to {endpoint} every {self._every_s} s")
            yield


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
