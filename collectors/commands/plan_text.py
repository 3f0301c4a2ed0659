# SPDX-License-Identifier: GPL-2.0-only
"""What `tlstax probes plan` prints: the plan as text and as plain data."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tlstax.collectors.capture.printable import visible
from tlstax.collectors.host.features import HOST, socket_source
from tlstax.collectors.host.probe_costs.prices import one_of_each
from tlstax.collectors.host.socket_events import FUNCTIONS, TRACEPOINTS, SocketSource

if TYPE_CHECKING:
    from tlstax.collectors.placement.model import Missing, Plan, Site
    from tlstax.collectors.process.target import Target

_WHY_NONE = {
    "sock_recv_length": "after a command a thread receives only the next command; the next "
    "boundary shows any exception",
    "sock_send_length": "the result is sent when a send ends and none follows before the next "
    "boundary",
}
_EVENTS = {
    SocketSource.NONE: "",
    SocketSource.TRACEPOINTS: ", ".join(TRACEPOINTS),
    SocketSource.FUNCTIONS: f"returns of {', '.join(FUNCTIONS)}",
}
_BY_FUNCTIONS = {
    event: f"returns of {', '.join(name for name in FUNCTIONS if name.endswith(verb))}"
    for event, verb in zip(TRACEPOINTS, ("recvmsg", "sendmsg"), strict=True)
}
_WHY_FLOW = (
    "a command begins when data of its client is received, and ends at its last send; the ledger "
    "ends it at the next receive"
)
_WHY_PROBED = {
    "connection": "crossed once or a few times for each connection",
    "handshake": "crossed only in handshakes",
    "wait": "reached only to wait, or to make a commit durable",
    "turn": "crossed each time that a thread of a pool waits for work",
    "command": "nothing else marks a connection as ready; hit for each command",
    "": "crossed rarely",
}


def as_document(
    target: "Target", planned: "Plan", sockets: SocketSource | None = None
) -> dict[str, Any]:
    """The plan as plain data. Times are nanoseconds, offsets and addresses bytes.

    `sockets`: what the kernel's events of sockets come from; None: as on this host.
    """
    covered = sites_covered_by_sockets(planned, sockets)
    return {
        "pid": target.pid,
        "exe": target.exe,
        "level": planned.level.name.lower(),
        "socket_events": (sockets or socket_source(HOST)).value,
        "libraries": [
            {
                "id": library.id,
                "kind": library.kind,
                "version": library.version,
                "linkage": library.linkage,
                "objects": [{"path": o.path, "build_id": o.build_id} for o in library.objects],
            }
            for library in planned.libraries
        ],
        "sites": [
            {
                "boundary": site.boundary,
                "action": site.action,
                "phase": site.phase,
                "event": site.event,
                "kind": site.kind,
                "function": site.function,
                "object": site.object.path,
                "file_offset": site.file_offset,
                "instruction": site.instruction,
                "stepped": site.stepped,
                "cost_ns": site.cost_ns,
                "per": site.per,
                "register": site.register,
                "stack_bytes": site.stack_bytes,
                "only_in": site.only_in,
                "reason": site.reason,
                "kernel_event": site.kernel_event if site in covered else "",
            }
            for site in planned.sites
        ],
        "missing": [
            {
                "boundary": m.boundary,
                "functions": list(m.functions),
                "consequence": m.consequence,
                "why": m.why,
            }
            for m in planned.missing
        ],
        "refused": [asdict(refused) for refused in planned.refused],
        "notes": list(planned.notes),
        "prices": {
            **asdict(planned.host_costs.prices),
            "measured": planned.host_costs.measured,
            "cpus_count": planned.host_costs.cpus_count,
        },
        "totals": [
            asdict(total) for total in totals_of(s for s in planned.sites if s not in covered)
        ],
        "gaps": [{"subject": g.boundary, "consequence": g.consequence} for g in planned.gaps],
        "accessors": planned.accessors,
    }


@dataclass(frozen=True)
class Total:
    """Cost of the probe hits of one operation that crosses each of its boundaries once."""

    per: str
    hits: float
    cost_ns: float


def totals_of(sites: Iterable["Site"]) -> list[Total]:
    """Hits and cost for each command, turn of a pool, handshake, connection and wait.

    A boundary with several entries (a function seen at its callers) or exits is crossed at one of
    them, so the most expensive one counts.
    """
    crossed: dict[tuple[str, str], list[Site]] = {}
    for site in sites:
        crossed.setdefault((site.per, site.boundary), []).append(site)
    found = []
    for per in ("command", "turn", "handshake", "connection", "wait"):
        parts = [group for (of, _), group in crossed.items() if of == per]
        if parts:
            hits = sum(one_of_each((site.event, site.hits) for site in part) for part in parts)
            costs_ns = [
                one_of_each((site.event, site.hits * site.cost_ns) for site in part)
                for part in parts
            ]
            found.append(Total(per, hits, sum(costs_ns)))
    return found


def as_lines(
    target: "Target", planned: "Plan", verbose: bool = False, sockets: SocketSource | None = None
) -> list[str]:
    """The plan as text for a terminal; names from binaries are shown with escapes."""
    lines = [f"{visible(target.name)} (pid {target.pid}), level {planned.level.name.lower()}"]
    for library in planned.libraries:
        paths = ", ".join(visible(entry.path) for entry in library.objects)
        version = visible(library.version) or f"{library.name}, version unknown"
        lines.append(f"  {version} ({library.linkage}): {paths}")
    lines.append("")
    if planned.is_flow:
        told = _EVENTS[sockets or socket_source(HOST)]
        lines += [f"commands{'':20} no probe: {told}", f"    {_WHY_FLOW}"]
    covered = sites_covered_by_sockets(planned, sockets)
    for site in planned.sites:
        lines += site_lines(site, covered, sockets)
        if planned.is_flow:
            lines.append(f"    stays probed: {_WHY_PROBED[site.per]}")
    probed = [site for site in planned.sites if site not in covered]
    stepped = sum(site.stepped for site in probed)
    lines.append("")
    lines.append(f"{len(probed)} probes, {stepped} of them on a single-stepped instruction")
    if needless := len(planned.sites) - len(probed):
        lines.append(f"{needless} boundaries need no probe here: events of sockets cover them")
    lines += [
        f"for each {total.per}: {total.hits:g} hits, {total.cost_ns / 1000:.1f} us, if every"
        " boundary is crossed once"
        for total in totals_of(probed)
    ]
    lines.append(_costs_line(planned))
    lines += [f"note: {visible(note)}" for note in planned.notes]
    if planned.accessors and min(planned.accessors.values()) >= 0:
        lines.append("all fields for handshake records were found")
    lines += [f"unavailable: {g.boundary}: {visible(g.consequence)}" for g in planned.gaps]
    lines += [_missing_line(missing) for missing in planned.missing]
    if verbose:
        lines += [
            f"rejected: {r.boundary}: {visible(r.function)}, {r.what}: {visible(r.why)}"
            for r in planned.refused
        ]
    return lines


def _costs_line(planned: "Plan") -> str:
    """Where the costs are from."""
    if not planned.host_costs.measured:
        return "costs were measured on another machine: they could not be measured on its host"
    count = planned.host_costs.cpus_count
    return f"costs were measured on its host, on {count} CPU{'s' * (count > 1)} at once"


def _missing_line(missing: "Missing") -> str:
    why = f" ({visible(missing.why)})" if missing.why else ""
    return f"missing: {missing.boundary}: {missing.consequence}{why}"


def sites_covered_by_sockets(
    planned: "Plan", sockets: SocketSource | None = None
) -> frozenset["Site"]:
    """Boundaries that need no probe, because the kernel's events of sockets cover them."""
    if (sockets or socket_source(HOST)) == SocketSource.NONE:
        return frozenset()
    return frozenset(filter(planned.covered_by_tracepoint, planned.sites))


def site_lines(
    site: "Site", covered: frozenset["Site"] = frozenset(), sockets: SocketSource | None = None
) -> list[str]:
    """One probe: its place, cost and reason; or why the boundary needs none."""
    start = f"{site.boundary} {site.event}"
    if site in covered:
        event = site.kernel_event
        is_function = (sockets or socket_source(HOST)) == SocketSource.FUNCTIONS
        told = _BY_FUNCTIONS[event] if is_function else event
        return [f"{start:28} no probe: {told}", f"    {_WHY_NONE[event]}"]
    where = f"{visible(site.object.name)}+{site.file_offset:#x}"
    price = "stepped" if site.stepped else "emulated"
    inside = f", only in {site.only_in}" if site.only_in else ""
    cost = f"{site.cost_ns / 1000:6.2f} us"
    return [
        f"{start:28} {where:26} {site.instruction:20} {price:9} {cost} {site.kind}{inside}",
        f"    {visible(site.function)}: {visible(site.reason)}",
    ]
