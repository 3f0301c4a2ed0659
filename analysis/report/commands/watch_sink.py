# SPDX-License-Identifier: GPL-2.0-only
"""Where a watch sends its rows: rollups in a data set, and metrics if they are asked for."""

import contextlib
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.fleet.continuous.rollups import Destination, Rollups
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.report.live.otlp import OtlpPush, endpoint_of
from tlstax.analysis.report.live.profile_push import ProfilePush
from tlstax.analysis.report.live.prometheus import Exposition


@contextlib.contextmanager
def open_sink(
    data: Path,
    host: str,
    cluster: str,
    every_s: int,
    keep_s: float,
    listen: tuple[str, int] | None,
    otlp: str,
    profiles: str,
    tell: Callable[[str], None],
) -> Iterator[Rollups]:
    """Rollups for `tlstax watch`. Raises TlstaxError: HOST if a package is missing, USAGE, IO."""
    parquet_files.arrow()
    counters = Counters()
    to = Destination(data, host or platform.node(), cluster, every_s, keep_s)
    with contextlib.ExitStack() as stack:
        pushed = ProfilePush(profiles, tell) if profiles else None
        if pushed:
            stack.callback(pushed.close)  # after the rollups, which explain the last hour
            tell(f"profiles are sent to {pushed.endpoint} every hour")
        rollups = Rollups(to, tell, counters, explained=pushed.add if pushed else None)
        stack.callback(rollups.close)
        if listen is not None:
            exposition = Exposition(counters, *listen)
            stack.callback(exposition.close)
            tell(f"metrics at http://{_url_host(listen[0])}:{exposition.port}/metrics")
        if otlp:
            endpoint = endpoint_of(otlp)
            push = OtlpPush(counters, endpoint, to.host, every_s, tell)
            stack.callback(push.close)
            tell(f"metrics are sent to {endpoint} every {every_s} s")
        yield rollups


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
