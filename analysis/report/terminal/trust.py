# SPDX-License-Identifier: GPL-2.0-only
"""What stands above the first number: losses, closure, symbols, and what measuring cost."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]


def render(health: Json, width: int) -> RenderableType:
    """What stands above the first number."""
    symbols, closure, observer = health["symbols"], health["closure"], health["observer"]
    lost = ", ".join(
        f"{quantities.count(loss['count'])} {texts.name(loss['kind'])}" for loss in health["losses"]
    )
    if closure["uncertain_ns"]:
        lost += f"; {quantities.time(closure['uncertain_ns'])} uncertain"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("lost, healed", Text(lost or "nothing", style="yellow" if lost else "green"))
    if untracked := health["untracked"]:
        lacking = (
            f"{quantities.count(untracked['thread_count'])} of "
            f"{quantities.count(untracked['process_thread_count'])} are not in the ledger, "
            f"with {quantities.share(untracked['cpu_share'])} of the CPU time"
        )
        table.add_row("threads", Text(lacking, style="bold red"))
    table.add_row(
        "samples",
        f"{quantities.count(symbols['sample_count'])}; "
        f"unattributed {quantities.share(symbols['unknown_share'])}; "
        f"named {quantities.share(symbols['named_share'])}; "
        f"without a stack {quantities.share(symbols['no_stack_share'])}",
    )
    style = {True: "green", False: "bold red", None: "yellow"}[closure["ok"]]
    table.add_row("closure", Text(closure["summary"], style=style))
    table.add_row(
        "observer",
        f"probes {quantities.share(observer['probe_cpu_share'])} of one CPU, "
        f"tlstax itself {quantities.share(observer['engine_cpu_share'])}, "
        f"{quantities.size(observer['engine_rss_bytes'])}{_shared(observer['recorded_with'])}",
    )
    if health["gaps"]:
        lacking = ", ".join(gap["subject"] for gap in health["gaps"])
        table.add_row("unavailable", Text(texts.clean(lacking)))
    for effect in observer["effects"][-1:]:
        table.add_row("overhead", _cost(effect, observer["budget_share"]))
    warnings = [
        console.sentence(warning, width, mark="! ", style="yellow")
        for warning in health["warnings"]
    ]
    return Group(table, *warnings)


def gaps(health: Json, width: int) -> Iterable[RenderableType]:
    """What was unavailable in the process, and what the result lacks as a consequence."""
    if health["gaps"]:
        yield Text()
        yield Text("unavailable", style="bold")
    for gap in health["gaps"]:
        yield console.sentence(f"{gap['subject']}: {gap['consequence']}", width, mark="- ")


def observer(health: Json, width: int) -> RenderableType:
    """Losses with their consequences, and the price of the probes."""
    observer = health["observer"]
    lines = [
        f"{quantities.name(loss['kind'])} {quantities.count(loss['count'])}: {loss['consequence']}"
        for loss in health["losses"]
    ]
    lines += [f"{effect['label']}: {_cost(effect, None)}" for effect in observer["effects"][:-1]]
    lines += _send_cost(observer)
    lines += _hit_cost(observer)
    if observer["budget_choice"]:
        lines.append(observer["budget_choice"])
    if pids := observer["recorded_with"]:
        lines.append(
            f"the same recorder recorded process {pids}, too: CPU time of tlstax is this server's "
            "part, memory is that of all"
        )
    if observer["start_cpu_ns"] is not None:
        lines.append(
            f"startup used {quantities.time(observer['start_cpu_ns'])} of CPU time "
            "(not included above)"
        )
    if observer["end_cpu_ns"] is not None:
        lines.append(
            f"the end used {quantities.time(observer['end_cpu_ns'])} of CPU time "
            "(not included above)"
        )
    lines += _whole(observer)
    if observer["thread_room"] is not None:
        lines.append(
            f"the ledger had room for {quantities.count(observer['thread_room'])} threads "
            f"({quantities.size(observer['thread_room_bytes'])} of kernel memory)"
        )
    if observer["hits_count"]:
        lines.append(
            f"{quantities.count(observer['hits_count'])} probe hits, "
            f"{quantities.rate(observer['hits_per_second'])}, "
            f"{quantities.time(observer['probe_ns'])} in total; nothing is subtracted for them"
        )
    return Group(Text(), *(console.sentence(line, width, style="dim") for line in lines))


def _whole(observer: Json) -> Iterable[str]:
    """What tlstax took in all."""
    if observer["whole_share"] is not None:
        outside = {"startup": observer["start_cpu_ns"], "the end": observer["end_cpu_ns"]}
        known = [name for name, used_ns in outside.items() if used_ns is not None]
        yield (
            f"the overhead together with {' and '.join(known)}: "
            f"{quantities.share(observer['whole_share'])} of the server's CPU time"
        )


def _send_cost(observer: Json) -> Iterable[str]:
    """What recording costs for a send, if that was measured."""
    cost = observer["send_cost"]
    if cost is None:
        return
    if observer["hit_cost_source"] != "scaled":
        yield (
            "what recording costs for a send was measured, and is not used, as it is of fewer than "
            f"16 pairs of stretches or not above 0: {_ends(cost, 'server')} "
            f"({quantities.count(cost['pair_count'])} pairs)"
        )
        return
    text = (
        "the cost was measured in this server, by recording it and not in turn: a send took "
        f"{_ends(cost, 'server')} more of the server's CPU time, which is "
        f"{quantities.share(cost['server_share'])}{_told(cost, 'server')}"
    )
    if cost["host_ns"] is not None:
        text += f", with its clients on this host {_ends(cost, 'host')}{_told(cost, 'host')}"
    elif cost["host_is_used"]:
        text += "; what its clients on this host pay cannot be told apart: the usual part of it"
    yield f"{text} ({quantities.count(cost['pair_count'])} pairs of stretches)"


def _ends(cost: Json, what: str) -> str:
    """A cost with its interval."""
    low, high = (quantities.time(cost[f"{what}_{end}_ns"]) for end in ("low", "high"))
    return f"{quantities.time(cost[f'{what}_ns'])} ({low}..{high})"


def _told(cost: Json, what: str) -> str:
    """What windows tell instead of what was measured, where prices have a part in it."""
    told, said = (quantities.time(cost[f"{what}_{which}_ns"]) for which in ("told", "said"))
    if told == quantities.time(cost[f"{what}_ns"]):
        return ""
    return f" (prices say {said}; {told} by both, each as certain as it is)"


def _hit_cost(observer: Json) -> Iterable[str]:
    """Where the overhead has the cost of a probe hit from."""
    if observer["hit_cost_source"] in ("", "scaled"):
        return
    measured = ""
    if observer["hit_cost_ns"] is not None:
        ends = (quantities.time(observer[f"hit_cost_{end}_ns"]) for end in ("low", "high"))
        measured = (
            f"{quantities.time(observer['hit_cost_ns'])} a hit ({'..'.join(ends)}; "
            f"{quantities.count(observer['hit_cost_pair_count'])} pairs of stretches)"
        )
    if observer["hit_cost_source"] == "measured":
        yield f"probe hits cost what was measured in this server: {measured}"
    elif measured:
        yield f"probe hits cost the default: what was measured here is too uncertain, {measured}"
    else:
        yield "probe hits cost the default: not measured in this server"


def _shared(pids: str) -> str:
    """Whose memory it is, if the recorder had several servers."""
    return f" for {pids.count(',') + 2} servers" if pids else ""


def _cost(effect: Json, budget: float | None) -> str:
    """Predicted and observed cost of measuring, side by side."""
    text = f"observed {quantities.share(effect['observed_share'])} of the server's CPU time"
    if effect["predicted_share"] is not None:
        text = f"predicted {quantities.share(effect['predicted_share'])}, {text}"
    return text if budget is None else f"{text}, allowed {quantities.share(budget)}"
