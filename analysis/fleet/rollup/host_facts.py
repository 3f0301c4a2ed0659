# SPDX-License-Identifier: GPL-2.0-only
"""The facts about a host and its server, by the hour."""

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, Row
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.quantities import library
from tlstax.analysis.rows.tables import Tables


def host_rows(tables: Tables, of: Recording) -> list[Row]:
    """The facts about the host, for each hour."""
    server = tables.targets[0] if tables.targets else None
    meta = tables.meta
    count = meta.get("cpu_count", "")
    first: dict[int, int] = {}
    for window in tables.windows:
        hour, at_ns = of.start_of(window, HOUR_NS), window.start_ns + of.wall_offset_ns
        first[hour] = min(first.get(hour, at_ns), at_ns)
    return [
        columns.Host(
            *(of.host, hour, of.source_id, of.cluster),
            *((server.server, server.server_version) if server else ("unknown", "unknown")),
            server.build_id if server else "",
            library(server.tls_library, server.tls_version) if server else "unknown",
            server.tls_linkage if server else "unknown",
            meta.get("kernel", ""),
            meta.get("cpu_model", ""),
            int(count) if count.isascii() and count.isdigit() and len(count) < 9 else 0,
            meta.get("command_level", ""),
            meta.get("tlstax_version", ""),
            first_ns,
        )
        for hour, first_ns in sorted(first.items())
    ]
