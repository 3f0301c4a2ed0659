# SPDX-License-Identifier: GPL-2.0-only
"""What measuring was expected to cost, and how a budget is used, from what the recorder chose."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tlstax.collectors.capture import schema

FLOOR_CPUS: Final = 0.1
"""A server that uses less CPU is counted as using this much: FLOOR_CPUS of budget.h."""
EVENTS_PART: Final = 0.6
"""The share of a budget for the ledger's events: ROOM of levels.c."""
_CAUSES: Final = ("probe", "scheduler", "neighbour", "sample", "engine")
_WHAT: Final = {
    "none": "nothing",
    "sample": "CPU samples only",
    "connection": "handshakes, beginnings and ends of connections and CPU samples",
    "handshake": "handshakes and CPU samples",
    "signature": "handshakes with their signatures and CPU samples",
    "flow": "handshakes, waits and commands",
    "command": "handshakes and commands",
    "record": "everything",
}


def shares_of(spent_ns: Sequence[float], base_ns: float) -> dict[str, float]:
    """The capture's facts of an overhead by cause: its shares of `base_ns` of CPU time."""
    shares = {"predicted_share": sum(spent_ns) / base_ns}
    for cause, value in zip(_CAUSES, spent_ns, strict=True):
        shares[f"predicted_{cause}_share"] = value / base_ns
    return shares


def shares_of_budget(budget: Any) -> dict[str, float]:
    """The same of a choice."""
    by_cause = (
        budget.probes_ns, budget.scheduler_ns, budget.neighbours_ns, budget.samples_ns,
        budget.recorder_ns,
    )  # fmt: skip
    return shares_of(by_cause, budget.base_ns)


def hit_cost_facts(price: Any, whole: Any) -> Iterator[schema.Meta]:
    """Where the cost of a hit comes from, and what was measured in the server.

    `price` is of hits, `whole` of all that recording costs; None: that was not measured.
    """
    is_scaled = whole is not None and whole.is_server_used
    is_measured = price is not None and price.is_used
    source = "scaled" if is_scaled else "measured" if is_measured else "default"
    yield schema.Meta("hit_cost_source", source)
    if price is not None:
        for end in ("", "low_", "high_"):
            yield schema.Meta(f"hit_cost_{end}ns", str(getattr(price, f"{end or 'hit_'}ns")))
        yield schema.Meta("hit_cost_pair_count", str(price.pairs_count))
    if whole is not None:
        for end in ("", "low_", "high_", "said_", "told_"):
            yield schema.Meta(f"send_cost_{end}ns", str(getattr(whole, f"server_{end}ns")))
            if whole.has_clients:
                yield schema.Meta(f"send_host_cost_{end}ns", str(getattr(whole, f"host_{end}ns")))
        yield schema.Meta("send_cpu_ns", str(whole.send_ns))
        yield schema.Meta("send_cost_pair_count", str(whole.pairs_count))
        yield schema.Meta("send_host_cost_is_used", str(whole.is_host_used))


def budget_is_continuous(budget: Any) -> bool:
    """Whether everything is on all the time."""
    return bool(budget.cycle_ns <= budget.dense_ns)


def budget_summary(budget: Any) -> str:
    """How the budget is used, as a sentence; "" where there is no limit."""
    if not budget.share_ppm:
        return ""
    share = shares_of_budget(budget)["predicted_share"]
    start = f"Budget {budget.share_ppm / 1e4:g}% of the server's CPU time"
    what = _WHAT[budget.dense.decode("ascii")]
    if budget_is_continuous(budget):
        return f"{start}: {what}, all the time; expected cost {share:.2%}.{_why_level(budget)}"
    per_second = budget.dense_ns / budget.cycle_ns * 1000
    return (
        f"{start}: {what}, in windows of {budget.dense_ns // 1_000_000} ms, about "
        f"{per_second:.0f} of 1,000 ms; in between {_WHAT[budget.light.decode('ascii')]}; "
        f"expected cost {share:.2%}.{_why_level(budget)}"
    )


def _why_level(budget: Any) -> str:
    """Why the recorder chose its level; "" where it was given."""
    if not budget.level_base_ns:
        return ""
    costs_ns = budget.record_ns, budget.flow_ns
    exact, flow = (f"{ns / budget.level_base_ns:.2%}" for ns in costs_ns)
    room_ns = EVENTS_PART * budget.share_ppm / 1e6 * budget.level_base_ns
    if budget.record_ns <= room_ns:
        text = f"record: its events were expected to cost {exact}"
        text += "" if budget_is_continuous(budget) else "; the trial cost more"
    elif budget.flow_ns <= room_ns:
        text = f"flow: its events were expected to cost {flow}, those of level record {exact}"
    else:
        text = f"record: even the events of level flow were expected to cost {flow}"
    return f" Level {text}. --level sets another."
