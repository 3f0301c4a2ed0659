# SPDX-License-Identifier: GPL-2.0-only
"""Rows that a capture holds once per target: its identity, its probes and their cost."""

from collections.abc import Iterator
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.placement.model import Library, Plan, Site
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.programs.names import SAMPLER, SOCKET_FUNCTIONS, SOCKET_TRACEPOINTS
from tlstax.collectors.recording.stream.replay import Replay

SERVER_ID: Final = 1
"""target_id of the server."""


def ids_before(target_id: int) -> int:
    """Offset for the keys of a target's rows, so that keys of targets are distinct."""
    return (target_id - SERVER_ID) << 32


def target_row(
    target: Target, plan: Plan, target_id: int = SERVER_ID, label: str = ""
) -> schema.Target:
    """What the process is, by the libraries that were recognised in it."""
    tls, kind = plan.library("tls"), plan.library(plan.role)
    return describe(target, tls, kind)._replace(target_id=target_id, role=plan.role, label=label)


def describe(target: Target, tls: Library | None, kind: Library | None) -> schema.Target:
    """A server, by its TLS library and by the definition of the server."""
    # A library without symbols looks like no library. OpenSSL 3 and 1.0 differ by version.
    library = tls.name.split()[0] if tls else "unknown"
    return schema.Target(
        SERVER_ID,
        target.pid,
        target.exe,
        target.program.build_id,
        kind.id if kind else "unknown",
        (kind.version if kind else "") or "unknown",
        library,
        (tls.version.removeprefix(f"{library} ") if tls else "") or "unknown",
        tls.linkage if tls else "unknown",
        own_pid=target.own_pid,
    )


def gap_rows(plan: Plan, target_id: int = SERVER_ID) -> Iterator[schema.Gap]:
    """What was unavailable to the plan, and what the report lacks without it."""
    for missing in (*plan.missing, *plan.gaps):
        why = f" ({missing.why})" if missing.why else ""
        yield schema.Gap(target_id, missing.boundary, f"{missing.consequence}{why}")
    for note in plan.notes:
        yield schema.Gap(target_id, "TLS library", f"{note}.")


def probe_rows(replay: Replay, target_id: int = SERVER_ID) -> list[tuple[int | str, schema.Probe]]:
    """Every probe with the calibrated cost of a hit; its place is what `Counts.of_probe` takes."""
    suffix = "_multi" if replay.multi else ""
    number = ids_before(target_id)
    rows: list[tuple[int | str, schema.Probe]] = []
    measured = replay.plan.host_costs.measured
    for place, site in enumerate(replay.plan.sites):
        number += 1
        if not replay.is_attached(site):
            continue  # events of sockets replace it
        row = probe_row(number, site, suffix, 0, site.cost_ns if measured else None)
        rows.append((place, row._replace(target_id=target_id)))
    for name, (kind, cost_ns) in replay.program_costs().items():
        number += 1
        boundary = "sample" if name == SAMPLER else "scheduler"
        if name in SOCKET_TRACEPOINTS or name in SOCKET_FUNCTIONS:
            boundary = "socket"
        probe = schema.Probe(
            number, boundary, "enter", name, "kernel", "", 0, "", kind, 0, 0, cost_ns, target_id
        )
        rows.append((name, probe))
    return rows


def probe_row(
    number: int, site: Site, suffix: str, hits: int, cost_ns: float | None
) -> schema.Probe:
    """A probe in a file; `suffix` is appended to its kind: how it is attached."""
    return schema.Probe(
        number,
        site.boundary,
        site.event,
        site.function,
        site.object.path,
        site.object.build_id,
        site.file_offset,
        site.instruction,
        site.kind + suffix,
        int(site.stepped),
        hits,
        cost_ns,
    )


def calibration_rows(plan: Plan) -> list[schema.Calibration]:
    """Cost of a hit of each kind of probe on this host."""
    return [schema.Calibration(*row) for row in plan.host_costs.rows]
