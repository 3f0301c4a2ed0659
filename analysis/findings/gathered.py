# SPDX-License-Identifier: GPL-2.0-only
"""The findings of a whole capture: metrics of all groups, judged by the rules."""

from collections.abc import Mapping, Sequence

from tlstax.analysis.classify import wait_causes, work
from tlstax.analysis.classify.client_samples import count_client_samples
from tlstax.analysis.classify.composition import Counts, Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.findings import arm_metrics, finding_metrics, flow_commands, rules
from tlstax.analysis.findings.flow_commands import Windows
from tlstax.analysis.model.findings import Finding
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import Group, Tables


def findings_of(
    parts: Sequence[Group],
    tables: Tables,
    counts: Mapping[int, Counts],
    resolved: Stacks,
    taxonomy: Taxonomy,
) -> tuple[list[Finding], str]:
    """The findings of all groups, the first one first, and how far the rules could be applied."""
    sums = ledger.by_window(tables.ledger)
    waits = wait_causes.classify(tables.waits, resolved)
    waits = wait_causes.with_long_waits(waits, sums, "connect")
    works = work.count_work(
        tables.samples, resolved, tables.frames, tables.meta.get("cpu_flags", "")
    )
    windows = Windows(sums, counts, works)
    for part in parts:
        windows = flow_commands.split(windows, part, tables, resolved, taxonomy)
    clients = tables.clients
    client_counts = count_client_samples(clients.samples, resolved, taxonomy) if clients else {}
    judged = {
        part.name: finding_metrics.gather(part, tables, windows, waits, client_counts)
        for part in parts
    }
    if clients is None or not clients.windows:
        for part in parts:
            plaintext = arm_metrics.partner_of(part, tuple(parts))
            if plaintext is not None:
                arm_metrics.add_client_of_arms(judged[part.name], part, plaintext)
    found = [line for part in parts for line in rules.judge(part, judged[part.name])]
    return rules.arrange(found), rules.note(judged.values())
