# SPDX-License-Identifier: GPL-2.0-only
"""One run of a cell, from a quiet server to a quiet server, recorded and proven."""

from collections.abc import Mapping, Sequence

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.workloads import listen_drops
from tlstax.workloads.drivers.model import DriveResult, Tick
from tlstax.workloads.matrix.cells import Cell, PlannedRun
from tlstax.workloads.matrix.server_session import ServerSession
from tlstax.workloads.matrix.store import Outcome
from tlstax.workloads.proof import Evidence
from tlstax.workloads.results import Recorder, RunTotals
from tlstax.workloads.servers.status import Status

UNKNOWN = "unknown"  # of a version or cipher in a capture


def run_cell(session: ServerSession, cell: Cell, run: PlannedRun, recorder: Recorder) -> Outcome:
    """Do one run; TlstaxError with the reason if it did something else than it was asked to."""
    recipe, route = session.recipe, session.route_of(cell)
    length = recipe.length_of(cell)
    # The driver is ready when it stands at the gate: what is counted begins there.
    seen: list[tuple[Status, int | None, dict[str, int]]] = []

    def at_gate(pids: Sequence[int]) -> None:
        session.come_to_rest(cell, recorder.poll)
        refused = listen_drops.read(session.server.pid, route)
        seen.append((session.status.read(), route.carried() if route.carried else None, refused))
        if "client" in recipe.watch:
            for pid in pids:
                recorder.add_client(pid)
        recorder.begin_run(run.run_id)

    tick = Tick(recorder.poll, at_gate)
    driven = session.drive(cell, length.seconds, length.operation_count, tick)
    session.come_to_rest(cell, recorder.poll)
    totals = recorder.end_run()
    (before, carried_bytes, refused), after = seen[0], session.status.read()
    refused_since = listen_drops.read(session.server.pid, route)
    if route.carried is not None and carried_bytes is not None:
        carried_bytes = route.carried() - carried_bytes
        if carried_bytes <= 0:
            raise _unproven(cell, "the transport carried nothing by its own count")
    evidence = Evidence(
        cell.label,
        cell.arm,
        session.server.request.client_choice(recipe.tls[cell.tls].choice),
        driven,
        before,
        after,
        totals,
        session.counts_handshakes,
        {name: count - refused[name] for name, count in refused_since.items()},
        is_direct=session.is_direct(cell),
    )
    row = _row(recipe.recorded_as(cell), cell, run, driven, totals, evidence.prove())
    recorder.add([row, *_status_rows(run.run_id, before), *_status_rows(run.run_id, after)])
    version, cipher = driven.negotiated or _negotiated(session, totals)
    return Outcome(row, driven, version, cipher, carried_bytes)


def _row(
    recorded_as: tuple[str, str],
    cell: Cell,
    run: PlannedRun,
    driven: DriveResult,
    totals: RunTotals,
    proof: str,
) -> schema.Run:
    driver, scenario = recorded_as
    return schema.Run(
        run_id=run.run_id,
        driver=driver,
        scenario=scenario,
        arm=cell.arm,
        round=run.round,
        start_ns=totals.start_ns,
        end_ns=totals.end_ns,
        threads_count=cell.threads,
        connection_count=driven.connection_count,
        operation_count=driven.operation_count,
        client_mean_ns=driven.latencies.mean_ns,
        client_p95_ns=driven.latencies.p95_ns,
        client_max_ns=driven.latencies.max_ns,
        client_cpu_ns=driven.client_cpu_ns,
        proof=proof,
        server_start=run.server_start,
    )


def _negotiated(session: ServerSession, totals: RunTotals) -> tuple[str, str]:
    """As the recorder saw it; where the library does not tell it, as a client was answered."""
    version, cipher = _names(totals.tls_versions), _names(totals.ciphers)
    if UNKNOWN in (version, cipher) and session.agreed is not None:
        return session.agreed.version, session.agreed.cipher
    return version, cipher


def _names(counts: Mapping[str, int]) -> str:
    return " ".join(sorted(counts))


def _status_rows(run_id: int, status: Status) -> list[schema.Status]:
    return [
        schema.Status(status.time_ns, run_id, name, str(value))
        for name, value in sorted(status.values.items())
    ]


def _unproven(cell: Cell, why: str) -> TlstaxError:
    return TlstaxError(
        f"run of {cell.label} did not do what was asked",
        why,
        "Look at the logs of client and server, and run it again",
        ExitCode.FAILED,
    )
