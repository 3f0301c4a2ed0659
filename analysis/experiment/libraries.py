# SPDX-License-Identifier: GPL-2.0-only
"""TLS libraries side by side: what a handshake and a KB of result cost in each server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tlstax.analysis.classify import hot_functions
from tlstax.analysis.classify.composition import Counts, Stacks, count_samples
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.experiment import library_costs
from tlstax.analysis.experiment.matrix_results import Results, Row
from tlstax.analysis.model.libraries import Build, Cost, HotFunction, Libraries, ServerCosts
from tlstax.analysis.rows import ledger, round_units
from tlstax.analysis.rows.tables import Group, Tables, groups
from tlstax.analysis.statistics.units import Units, interval_note, rounds, server_starts
from tlstax.collectors.capture.schema import Target
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

CONNECT: Final = "storm/connect"
BULK: Final = "pooled/bulk_result"
RECORD_PHASES: Final = ("record_read", "record_write")
NEWEST: Final = "TLSv1.3"
MODERN: Final = frozenset({"TLSv1.2", NEWEST})


@dataclass(frozen=True)
class ComparedServer:
    """What the results say of one server."""

    name: str  # in the catalogue
    captures: tuple[str, ...] = ()  # files below the folder of the results; none: not measured
    failure: str = ""  # why it was not measured, or not in all of its runs
    facts: Mapping[str, str] = field(default_factory=dict)  # what it was found to have


def compared_servers(results: Results) -> list[ComparedServer]:
    """The servers of an experiment in the order of its cells."""
    found = []
    for name in dict.fromkeys(cell["server"] for cell in results.cells.values()):
        cells = {key: cell for key, cell in results.cells.items() if cell["server"] == name}
        done = [run for key in cells for run in results.runs.get(key, ())]
        failed = [row for row in results.undone if row["server"] == name and row["reason"]]
        captures = dict.fromkeys(run["capture"] for run in done)
        session = next(iter(cells.values()))["label"].partition(" ")[0]
        facts = results.servers.get(session, {})
        found.append(ComparedServer(name, tuple(captures), _failure(failed, len(done)), facts))
    return found


def _failure(failed: Sequence[Row], done_count: int) -> str:
    """One sentence; '' if nothing failed."""
    if not failed:
        return ""
    if not done_count:
        return str(failed[0]["reason"])
    failed_count = sum(row["run_count"] for row in failed)
    return f"{failed_count} of {failed_count + done_count} runs failed; {failed[0]['reason']}"


def compare_libraries(
    title: str, key: str, compared: Sequence[ComparedServer], tables: Mapping[str, Tables]
) -> Libraries:
    """The comparison; `tables` are the captures by server."""
    servers = [_server(server, tables[server.name]) for server in compared if server.name in tables]
    return Libraries(
        title=title,
        key=key,
        host=_host(next(iter(tables.values())).meta) if tables else "unknown",
        note=interval_note([_units(server) for server in servers]),
        servers=servers,
        left_out={server.name: server.failure for server in compared if server.failure},
    )


def _server(server: ComparedServer, tables: Tables) -> ServerCosts:
    counts = count_samples(tables.samples, Stacks(tables.frames, tables.stacks), builtin())
    arms = {group.name: group for group in groups(tables)}
    connect, bulk = _pair(arms, CONNECT), _pair(arms, BULK)
    target = next(iter(tables.targets), None)
    shakes = connect[1] if connect else None
    records = bulk[1] if bulk else None
    return ServerCosts(
        name=server.name,
        server=_known(target.server, target.server_version) if target else "unknown",
        build=_build(server.facts, target, tables),
        round_count=len({run.round for run in tables.runs}),
        start_count=round_units.of_runs(tables.runs).start_count,
        handshake=_cost(connect, ledger.SERVED_PHASES, "handshake", tables, counts),
        private_key_ns=_private_key_ns(tables, shakes),
        record=_cost(bulk, RECORD_PHASES, "KB", tables, counts),
        hot_handshake=_hot(shakes, HANDSHAKE_PHASES, tables),
        hot_record=_hot(records, RECORD_PHASES, tables),
        unknown_share=_unknown(counts, shakes, records),
    )


def _units(server: ServerCosts) -> Units:
    """Those of its bounds."""
    if server.start_count > 1:
        return server_starts(server.start_count)
    return rounds(server.round_count)


def _pair(arms: Mapping[str, Group], name: str) -> tuple[Group, Group] | None:
    plaintext, tls = arms.get(f"{name}/plaintext"), arms.get(f"{name}/tls")
    return (plaintext, tls) if plaintext and tls else None


def _cost(
    pair: tuple[Group, Group] | None,
    phases: Sequence[str],
    per: str,
    tables: Tables,
    counts: Mapping[int, Counts],
) -> Cost | None:
    return library_costs.cost(*pair, phases, per, tables, counts) if pair else None


def _hot(group: Group | None, phases: Sequence[str], tables: Tables) -> list[HotFunction]:
    return hot_functions.hot_functions(group, phases, tables, builtin()) if group else []


def _private_key_ns(tables: Tables, group: Group | None) -> float | None:
    """CPU time of the operation with the private key, per handshake of a group."""
    if group is None:
        return None
    count = sum(entry.window_id in group.window_ids for entry in tables.handshakes)
    sums = ledger.totals(tables.ledger, group.window_ids)
    return sums.get(("sign", "on_cpu"), 0) / count if count else None


def _unknown(counts: Mapping[int, Counts], shakes: Group | None, records: Group | None) -> float:
    """The larger of the two shares that nothing explains."""
    shares = [
        library_costs.unknown_share(counts, group, phases)
        for group, phases in ((shakes, HANDSHAKE_PHASES), (records, RECORD_PHASES))
        if group
    ]
    return max(shares, default=0.0)


def _build(facts: Mapping[str, str], target: Target | None, tables: Tables) -> Build:
    """What the TLS library is and lacks: recognised, negotiated, disassembled."""
    lacks = []
    if facts.get("instructions aes") == "no":
        lacks.append("no AES-NI code")
    sha_ni = "sha_ni" in tables.meta.get("cpu_flags", "").split()
    if facts.get("instructions sha") == "no" and sha_ni:
        lacks.append("no SHA extensions code")
    if facts.get("x25519") == "no":
        lacks.append("no X25519")
    versions = facts.get("tls_versions", "").split()
    if versions and not MODERN.intersection(versions):
        lacks.append(f"{' and '.join(versions)} only")
    elif versions and NEWEST not in versions:
        lacks.append(f"no {NEWEST}")
    agreed = (*facts.get("negotiated", "").split(), facts.get("temporary_key", ""))
    return Build(
        library=_known(target.tls_library, target.tls_version) if target else "unknown",
        linkage=target.tls_linkage if target else "unknown",
        agreed=", ".join(value for value in agreed if value),
        versions=versions,
        lacks=lacks,
    )


def _known(name: str, version: str) -> str:
    return name if version == "unknown" else f"{name} {version}"


def _host(meta: Mapping[str, str]) -> str:
    cpu, kernel = meta.get("cpu_model", "unknown CPU"), meta.get("kernel", "unknown kernel")
    return f"{cpu}, {meta.get('cpu_count', '?')} CPUs, Linux {kernel}"
