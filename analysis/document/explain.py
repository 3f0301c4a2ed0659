# SPDX-License-Identifier: GPL-2.0-only
"""From the rows of a capture to the whole report."""

import dataclasses
from collections.abc import Mapping, Sequence

from tlstax import TlstaxError
from tlstax.analysis.classify import callers, command_split, profiles, repair
from tlstax.analysis.classify import stacks as folding
from tlstax.analysis.classify.client_samples import count_client_samples
from tlstax.analysis.classify.composition import (
    Counts,
    Stacks,
    UnitCounts,
    compose,
    compose_process,
    count_by_unit,
)
from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.compare import end_to_end, intermediaries, waterfall
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.document import (
    health,
    method,
    primitives,
    recording_facts,
    sentences,
    sources,
)
from tlstax.analysis.findings import gathered
from tlstax.analysis.findings import rules as finding_rules
from tlstax.analysis.model.clients import EndToEnd
from tlstax.analysis.model.composition import Composition
from tlstax.analysis.model.report import (
    DOCUMENT_VERSION,
    Document,
)
from tlstax.analysis.model.tables import (
    Comparison,
    Distribution,
    FlameGraph,
    HandshakeTable,
    LedgerBar,
    LedgerSegment,
)
from tlstax.analysis.rows import (
    coverage,
    handshake_lanes,
    handshakes,
    heatmap,
    latency,
    ledger,
    operations,
    roles,
    untracked,
    window_units,
)
from tlstax.analysis.rows.coverage import Coverage
from tlstax.analysis.rows.edges import open_commands
from tlstax.analysis.rows.tables import Group, Tables, groups
from tlstax.analysis.statistics.medians import Estimate
from tlstax.analysis.whatif import no_tls
from tlstax.collectors.capture.vocabulary import (
    DETAIL_PHASES,
    HANDSHAKE_PHASES,
    LEDGER_LEVELS,
)


def explain(tables: Tables, taxonomy: Taxonomy | None = None) -> Document:
    """The report of a capture; `taxonomy` replaces the one that tlstax ships."""
    rules = taxonomy or builtin()
    resolved = Stacks(tables.frames, tables.stacks, tables.inlined)
    whole = coverage.scale(tables)
    sums = ledger.by_window(whole.ledger)
    filed = callers.file_samples(tables.samples, resolved, rules)
    counts = filed.counts()
    parts = groups(tables)
    seen = {part.name: _seen(part, tables) for part in parts}
    totals = {part.name: ledger.totals(whole.ledger, part.window_ids) for part in parts}
    comparisons = _compare(parts, whole, sums, counts)
    bars = [
        dataclasses.replace(
            _ledger_bar(part, totals[part.name], seen[part.name], tables),
            roles=[
                *roles.tabulate(whole.ledger, tables.threads, part.window_ids),
                *untracked.role_lines(tables, part.window_ids),
            ],
        )
        for part in parts
    ]
    compositions = [
        dataclasses.replace(
            callers.with_callers(
                compose(part, totals[part.name], _unit_counts(part, tables, counts)),
                filed,
                window_units.of_group(part, tables.windows),
            ),
            estimate=seen[part.name].text,
        )
        for part in parts
    ]
    compositions += [line for part in parts for line in _process(part, tables, counts)]
    tables_of = [
        callers.with_tasks(table, compositions) for table in _handshake_tables(parts, tables)
    ]
    mended = repair.repair(tables, resolved)
    both = _end_to_end(parts, whole, counts, resolved, rules)
    found, note = gathered.findings_of(parts, tables, counts, resolved, rules)
    answer = sentences.answer(comparisons, bars, compositions, tables_of, both)
    if without := [text for part in parts if (text := _without_tls(part, tables, rules))]:
        answer = dataclasses.replace(answer, details=[*answer.details, *without])
    return Document(
        version=DOCUMENT_VERSION,
        title="Where the time goes when the server speaks TLS",
        answer=finding_rules.lead(answer, found),
        capture=recording_facts.of_capture(tables),
        health=health.examine(tables, resolved, rules),
        comparisons=comparisons,
        ledgers=bars,
        compositions=compositions,
        handshakes=tables_of,
        latencies=[line for part in parts for line in _latencies(part, tables)],
        primitives=primitives.tabulate(parts, tables, totals),
        flames=[
            graph
            for part in parts
            for graph in _flames(part, tables, totals[part.name], mended, rules)
        ],
        runs=recording_facts.runs(whole),
        method=method.describe(),
        end_to_end=both,
        between=intermediaries.tabulate(parts, whole),
        splits=[line for part in parts if (line := command_split.split(tables, part, resolved))],
        sources=sources.tabulate(tables),
        findings=found,
        findings_note=note,
        heatmaps=heatmap.draw(parts, tables),
    )


def _without_tls(part: Group, tables: Tables, taxonomy: Taxonomy) -> str:
    """What a server without a plaintext arm would spend without TLS; "" where there is no TLS."""
    side = RecordingSelection("the recording", tables, part)
    if part.runs:
        return ""
    try:
        return no_tls.without_tls(side, taxonomy=taxonomy).sentence
    except TlstaxError as error:
        shakes = side.phase_counts.get("handshake", 0)
        return f"What it would cost without TLS is not told: {error.why}." if shakes else ""


def _end_to_end(
    parts: Sequence[Group],
    server: Tables,
    counts: Mapping[int, Counts],
    resolved: Stacks,
    rules: Taxonomy,
) -> list[EndToEnd]:
    """Both sides of each group whose clients were recorded."""
    if server.clients is None:
        return []
    of_clients = count_client_samples(server.clients.samples, resolved, rules)
    lines = end_to_end.end_to_end(parts, server, {"client": of_clients, "server": counts})
    return [
        dataclasses.replace(line, sentence=sentences.both_sides_sentence(line)) for line in lines
    ]


def _compare(
    parts: Sequence[Group],
    tables: Tables,
    sums: Mapping[int, ledger.Totals],
    counts: Mapping[int, Counts],
) -> list[Comparison]:
    """One comparison for each driver and scenario that has runs."""
    by_name: dict[tuple[str, str], dict[str, Group]] = {}
    for part in parts:
        if part.runs:
            by_name.setdefault((part.driver, part.scenario), {})[part.arm] = part
    lines = []
    for (driver, scenario), arms in by_name.items():
        plaintext, tls = (
            arms.get(
                arm, Group(f"{driver}/{scenario}/{arm}", driver, scenario, arm, (), frozenset())
            )
            for arm in ("plaintext", "tls")
        )
        line = waterfall.compare(plaintext, tls, tables, sums, counts)
        lines.append(dataclasses.replace(line, sentence=sentences.comparison_sentence(line)))
    return lines


def _seen(part: Group, tables: Tables) -> Coverage:
    """The windows in which the group's ledger was kept."""
    return coverage.cover(tables.windows, LEDGER_LEVELS, part.window_ids)


def _ledger_bar(part: Group, totals: ledger.Totals, seen: Coverage, tables: Tables) -> LedgerBar:
    served = {key: time_ns for key, time_ns in ledger.served(totals).items() if time_ns}
    total_ns = sum(served.values())
    known = seen.measured_ns > 0 or seen.is_whole
    bounds = coverage.intervals(ledger.by_window(tables.ledger), seen)
    return LedgerBar(
        name=part.name,
        label=part.label,
        driver=part.driver,
        scenario=part.scenario,
        arm=part.arm,
        operation=part.operation,
        operation_count=part.operation_count,
        total_ns=total_ns if known else None,
        idle_ns=ledger.phase_time(totals, ("idle",)) if known else None,
        background_ns=ledger.phase_time(totals, ("background",)) if known else None,
        unknown_ns=ledger.phase_time(totals, ("unknown",)) if known else None,
        segments=[
            LedgerSegment(
                phase,
                state,
                time_ns,
                time_ns / total_ns,
                operations.per_operation(time_ns, part.operation_count),
                *bounds.get((phase, state), Estimate(time_ns))[1:4],
            )
            for (phase, state), time_ns in served.items()
        ],
        estimate=seen.text,
        measured_ns=seen.measured_ns,
        whole_ns=seen.whole_ns,
    )


def _process(part: Group, tables: Tables, counts: Mapping[int, Counts]) -> list[Composition]:
    """What the whole process did, by samples alone, where not all of it is in the ledger."""
    cpu_ns = [row.target_cpu_ns for row in tables.effects if row.window_id in part.window_ids]
    known_ns = sum(value for value in cpu_ns if value is not None)
    if _seen(part, tables).is_whole or not known_ns:
        return []
    return compose_process(part, known_ns, _unit_counts(part, tables, counts))


def _unit_counts(part: Group, tables: Tables, counts: Mapping[int, Counts]) -> UnitCounts:
    """The samples of a group by round or block."""
    return count_by_unit(counts, window_units.of_group(part, tables.windows))


def _handshake_tables(parts: Sequence[Group], tables: Tables) -> list[HandshakeTable]:
    lines = []
    for part in parts:
        if rows := handshakes.select(tables.handshakes, part):
            seen = coverage.cover(tables.windows, coverage.HANDSHAKE_LEVELS, part.window_ids)
            drawn = handshake_lanes.lanes(part, rows, tables)
            of = window_units.of_group(part, tables.windows)
            table = handshakes.summarize(part, rows, seen, of)
            text = handshake_lanes.note(drawn)
            lines.append(dataclasses.replace(table, lanes=drawn, lanes_note=text))
    return lines


def _latencies(part: Group, tables: Tables) -> list[Distribution]:
    shakes, details = (
        coverage.cover(tables.windows, levels, part.window_ids)
        for levels in (coverage.HANDSHAKE_LEVELS, coverage.DETAILED_LEVELS)
    )
    seen = _seen(part, tables)
    of_phase = dict.fromkeys(HANDSHAKE_PHASES, shakes) | dict.fromkeys(DETAIL_PHASES, details)
    of = window_units.of_group(part, tables.windows)
    by_unit = latency.merge_by_unit(tables.latencies, of.unit_of, of.units.count)
    merged = latency.merge(tables.latencies, part.window_ids)
    longer = open_commands.lengths_ns(tables.unfinished, part.window_ids)
    if longer:
        merged.setdefault("command", {})
    return [
        dataclasses.replace(
            latency.distribution(
                f"{part.name}/{phase}",
                f"{part.label}: {phase}",
                phase,
                buckets,
                by_unit[phase],
                of.units,
                longer if phase == "command" else (),
            ),
            estimate=of_phase.get(phase, seen).text,
        )
        for phase, buckets in merged.items()
    ]


def _flames(
    part: Group,
    tables: Tables,
    totals: ledger.Totals,
    mended: repair.Repaired,
    rules: Taxonomy,
) -> list[FlameGraph]:
    totals, without = profiles.split_times(part, tables, totals)
    graphs = []
    for kind, label in (("on_cpu", "on CPU"), ("off_cpu", "waiting")):
        made = profiles.fold_totals(totals, part, kind, tables, mended, rules)
        if made.folded:
            graph = folding.flame_graph(part, kind, label, made)
            graphs.append(repair.with_repairs(graph, mended) if kind == "on_cpu" else graph)
    estimate = without or _seen(part, tables).text
    return [dataclasses.replace(graph, estimate=estimate) for graph in graphs]
