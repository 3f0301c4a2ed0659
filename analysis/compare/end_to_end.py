# SPDX-License-Identifier: GPL-2.0-only
"""An operation on both sides: the client, the server, and the time between them.

The client's side is the time of its connecting threads, exact, by stage and state. While it waits
for the network the server works on the same operation: that is the server's side, from the same
windows. The client's wait less the server's CPU time is network and scheduling: wake-ups, and
threads without a CPU. Both sides also compute at the same time (a server creates session tickets
after the client has all that it needs), so this difference is a lower bound; if it is negative,
both computed at the same time for at least that long.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tlstax.analysis.classify.composition import Counts, compose_phases, count_by_unit
from tlstax.analysis.compare.side_breakdown import STAGE_OF, Key, SideBreakdown, Sides, by_stage
from tlstax.analysis.model.clients import EndToEnd
from tlstax.analysis.model.composition import PhaseComposition
from tlstax.analysis.rows import closure, ledger, operations, round_units, window_units
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics import units as units_of


def end_to_end(
    parts: Sequence[Group], server: Tables, counts: Mapping[str, Mapping[int, Counts]]
) -> list[EndToEnd]:
    """One for each group whose clients were recorded; `counts` are samples by side and window."""
    clients = server.clients
    if clients is None:
        return []
    lines = []
    plain: dict[tuple[str, str], tuple[list[int], Sides]] = {}
    # A plaintext arm stands before its TLS arm.
    for part in parts:
        run_ids = {run.run_id for run in part.runs}
        ids = {w.window_id for w in clients.windows if not part.runs or w.run_id in run_ids}
        sides, operation = _sides(part, server, clients, ids)
        if sides is None:
            continue
        rounds = sorted({run.round for run in part.runs})
        other_rounds, plaintext = plain.get((part.driver, part.scenario), ([], None))
        if part.arm == "plaintext":
            plain[part.driver, part.scenario] = rounds, sides
        elif rounds != other_rounds:
            plaintext = None
        composed = {
            side: _composed(
                replace(part, window_ids=window_ids), tables, counts[side], sides.operations[side]
            )
            for side, tables, window_ids in (
                ("client", clients, frozenset(ids)),
                ("server", server, part.window_ids),
            )
        }
        made_of = {side: by_stage(composed[side]) for side in composed}
        breakdown = SideBreakdown(sides, made_of, plaintext if part.arm == "tls" else None)
        line = _line(part, operation, sides, breakdown, (server, clients), ids)
        phases = [phase for phase in composed["client"] if phase.on_cpu_ns > 0]
        lines.append(replace(line, phases=phases))
    return lines


# ---- gathering ----


def _sides(
    part: Group, server: Tables, clients: Tables, ids: Collection[int]
) -> tuple[Sides | None, str]:
    """Both sides of a group unit by unit, and what an operation is; None without operations."""
    unit_of = _units(part, server, clients, ids)
    size = max(unit_of.values(), default=-1) + 1
    times: dict[Key, list[float]] = defaultdict(lambda: [0.0] * size)
    for key, unit, time_ns in side_times(server, clients, unit_of, is_driven=bool(part.runs)):
        times[key][unit] += time_ns
    done, operation = _operations(part, server, clients, unit_of, size)
    if not times or not all(sum(done[side]) for side in ("client", "server")):
        return None, ""
    units = round_units.of_runs(part.runs).units if part.runs else units_of.blocks(size)
    return Sides(dict(times), done, units), operation


def side_times(
    server: Tables, clients: Tables, unit_of: Mapping[int, int], *, is_driven: bool
) -> Iterator[tuple[Key, int, int]]:
    """(key, unit, nanoseconds) of both sides; `unit_of` is that of each window.

    The client's side is its threads that connect. A driver (`is_driven`) does nothing else: if none
    of its threads is known to connect (its library is not probed), all of its threads count.
    """
    connecting = [row for row in clients.threads if row.role == "connection"]
    threads = {row.thread_id for row in connecting}
    if is_driven:
        known = {row.target_id for row in connecting}
        threads |= {row.thread_id for row in clients.threads if row.target_id not in known}
    for side, tables in (("client", clients), ("server", server)):
        for row in tables.ledger:
            unit = unit_of.get(row.window_id)
            stage = STAGE_OF.get(row.phase, "own")
            if unit is None or (side == "server" and stage == "own"):
                continue
            if side == "server" or row.thread_id in threads:
                yield (side, stage, _kind(row.state)), unit, row.time_ns


def _kind(state: str) -> str:
    """What a state is in a side."""
    return {"on_cpu": "cpu", "runnable": "runnable", "blocked_network": "peer"}.get(state, "wait")


def _units(part: Group, server: Tables, clients: Tables, ids: Collection[int]) -> dict[int, int]:
    """The unit of each window: its round or server start, or its block in time."""
    mine = [w for w in server.windows if w.window_id in part.window_ids]
    mine += [w for w in clients.windows if w.window_id in ids]
    if part.runs:
        unit_of = round_units.of_runs(part.runs).unit_of
        places = {run.run_id: unit_of[run.round] for run in part.runs}
        return {w.window_id: places[w.run_id] for w in mine if w.run_id in places}
    starts = sorted({w.start_ns for w in clients.windows if w.window_id in ids})
    order = dict(zip(starts, units_of.block_numbers([1] * len(starts)), strict=True))
    return {w.window_id: order[w.start_ns] for w in mine if w.start_ns in order}


def _operations(
    part: Group, server: Tables, clients: Tables, unit_of: Mapping[int, int], size: int
) -> tuple[dict[str, list[float]], str]:
    """Operations by side and unit: the driver's, else connections, else the server's commands."""
    if part.runs:
        done = [0.0] * size
        places = round_units.of_runs(part.runs).unit_of
        for run in part.runs:
            done[places[run.round]] += run.operation_count
        return {"client": done, "server": done}, part.operation
    ended: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * size)
    for side, tables in (("client", clients), ("server", server)):
        for row in tables.phase_counts:
            if row.window_id in unit_of:
                ended[side, row.phase][unit_of[row.window_id]] += row.ended_count
    for phase in ("connect", "handshake"):
        connections = {side: ended[side, phase] for side in ("client", "server")}
        if all(sum(counts) for counts in connections.values()):
            # A pool connects rarely: its operations are commands.
            if sum(connections["server"]) * 10 >= sum(ended["server", "command"]):
                return connections, "connection"
            break
    commands = ended["server", "command"]
    return {"client": commands, "server": commands}, "command"


def _composed(
    part: Group, tables: Tables, counts: Mapping[int, Counts], done: Sequence[float]
) -> list[PhaseComposition]:
    """What the CPU did in each phase, of all threads."""
    totals = ledger.on_cpu(ledger.totals(tables.ledger, part.window_ids))
    by_unit = count_by_unit(counts, window_units.of_group(part, tables.windows))
    return compose_phases(totals, by_unit, round(sum(done)))


# ---- the result ----


def _line(
    part: Group,
    operation: str,
    sides: Sides,
    breakdown: SideBreakdown,
    tables: tuple[Tables, Tables],
    ids: Collection[int],
) -> EndToEnd:
    server, clients = tables
    costs = breakdown.summary()
    return EndToEnd(
        name=part.name,
        label=part.label,
        driver=part.driver,
        scenario=part.scenario,
        arm=part.arm,
        operation=operation,
        operation_counts={
            side: round(sum(sides.operations[side])) for side in ("client", "server")
        },
        process_count=len({w.target_id for w in clients.windows if w.window_id in ids}),
        libraries=_libraries(clients, ids),
        handshake_counts={
            "client": _handshakes(clients, ids),
            "server": _handshakes(server, part.window_ids),
        },
        latency=costs["latency"],
        client_cpu=costs["client_cpu"],
        server_cpu=costs["server_cpu"],
        client_wait=costs["client_wait"],
        between=costs["between"],
        sentence="",
        notes=_notes(part, sides, operation),
        parts=[*breakdown.client(), *breakdown.server(), breakdown.between(costs["between"])],
        beside=breakdown.beside(),
        phases=[],
        closure=closure.agreement(closure.cpu_times(clients), ids),
        probe_ns=_probe_ns(clients, ids, round(sum(sides.operations["client"]))),
        latency_added=breakdown.latency_added(),
    )


# ---- trust ----


def _handshakes(tables: Tables, ids: Collection[int]) -> int:
    return sum(row.window_id in ids and row.outcome == "success" for row in tables.handshakes)


def _libraries(clients: Tables, ids: Collection[int]) -> list[str]:
    seen = {window.target_id for window in clients.windows if window.window_id in ids}
    names = {
        f"{row.server} {row.server_version}, {row.tls_library} {row.tls_version}"
        for row in clients.targets
        if row.target_id in seen
    }
    return sorted(names)


def _probe_ns(clients: Tables, ids: Collection[int], count: int) -> float | None:
    """Hits x calibrated cost of the clients' own probes, per operation."""
    seen = {window.target_id for window in clients.windows if window.window_id in ids}
    costs = [
        row.cost_ns * row.hits_count
        for row in clients.probes
        if row.target_id in seen and row.cost_ns is not None
    ]
    return operations.per_operation(sum(costs), count) if costs else None


def _notes(part: Group, sides: Sides, operation: str) -> list[str]:
    notes = []
    if not part.runs:
        client, server = (round(sum(sides.operations[side])) for side in ("client", "server"))
        if operation == "command":
            notes.append(
                "Commands are counted by the server, including those of clients that were not "
                "recorded: both sides are divided by that count."
            )
        elif server > client * 1.01:
            notes.append(
                f"The server accepted {server:,} connections and the recorded clients made "
                f"{client:,}: the server's side is an average over all of its connections."
            )
    notes.append(units_of.interval_note([sides.units]))
    return notes
