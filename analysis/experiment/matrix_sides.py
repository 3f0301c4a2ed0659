# SPDX-License-Identifier: GPL-2.0-only
"""A cell of a matrix and its baseline on both sides: what clients and server did meanwhile."""

from collections.abc import Mapping, Sequence

from tlstax.analysis.compare.side_breakdown import SideBreakdown, Sides
from tlstax.analysis.experiment.client_figures import sums
from tlstax.analysis.experiment.matrix_costs import RunCost, closure_of
from tlstax.analysis.model.matrix import BothSides, SidePart
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.quantities import change_text, time_text
from tlstax.analysis.rows.round_units import RoundUnits


def both_sides(
    base: Sequence[RunCost], cell: Sequence[RunCost], of: RoundUnits, operation: str
) -> BothSides | None:
    """Of the same rounds; None unless the clients were recorded in all of these runs."""
    runs = [*base, *cell]
    if not all(any(key[0] == "client" for key in cost.lanes) for cost in runs):
        return None
    low, high = _sides(base, of), _sides(cell, of)
    before = SideBreakdown(low, {"client": {}, "server": {}}, high, keeps_all=True)
    after = SideBreakdown(high, {"client": {}, "server": {}}, low, keeps_all=True)
    costs = before.summary(), after.summary()
    parts = _parts(before, after)
    return BothSides(
        sentence=_sentence(operation, parts, *costs),
        parts=[*parts, _between(costs[0]["between"], costs[1]["between"], after)],
        closure=closure_of(cost.client_cpu_times for cost in runs),
    )


def _sides(costs: Sequence[RunCost], of: RoundUnits) -> Sides:
    """Runs by unit."""
    keys = sorted({key for cost in costs for key in cost.lanes})
    done = sums([float(cost.rounds.operations.sum()) for cost in costs], of).tolist()
    times = {key: sums([cost.lanes.get(key, 0) for cost in costs], of).tolist() for key in keys}
    return Sides(times, {"client": done, "server": done}, of.units)


def _parts(before: SideBreakdown, after: SideBreakdown) -> list[SidePart]:
    """Both have the same parts in the same order."""
    found = []
    pairs = zip(
        [*before.client(), *before.server()], [*after.client(), *after.server()], strict=True
    )
    for low, high in pairs:
        assert low.name == high.name
        assert high.added is not None
        found.append(
            SidePart(
                high.name,
                high.label,
                high.lane,
                high.kind,
                low.cost,
                high.cost,
                high.added,
                [low.start_ns, high.start_ns],
            )
        )
    return found


def _between(before: Measure, after: Measure, lanes: SideBreakdown) -> SidePart:
    """Below zero, the server computed at least so long while the client did not wait."""
    added = lanes.between(after).added
    assert added is not None
    label = "network and scheduling: the client's wait less the server's CPU time"
    return SidePart("between", label, "between", "between", before, after, added, [0.0, 0.0])


def _sentence(
    operation: str,
    parts: Sequence[SidePart],
    before: Mapping[str, Measure],
    after: Mapping[str, Measure],
) -> str:
    def with_change(name: str) -> str:
        value_ns = after[name].value_ns
        return f"{time_text(value_ns)} ({change_text(value_ns - before[name].value_ns)})"

    ready = next((part for part in parts if part.name == "client_runnable"), None)
    for_cpu = ""
    if ready is not None:
        change = change_text(ready.difference.value_ns)
        for_cpu = f"{time_text(ready.after.value_ns)} ({change}) for a CPU and "
    return (
        f"Of each {operation} the client computed {with_change('client_cpu')} and waited {for_cpu}"
        f"{with_change('client_wait')} for the server, which computed {with_change('server_cpu')}."
    )
