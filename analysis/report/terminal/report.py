# SPDX-License-Identifier: GPL-2.0-only
"""Print a document on the terminal: what can be trusted, the answer, the numbers behind it.

Every number is one of the document's, written as in the HTML page. Readable from 80 columns on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tlstax.analysis import quantities
from tlstax.analysis.report import layout
from tlstax.analysis.report.terminal import both_sides, console
from tlstax.analysis.report.terminal import findings as terminal_findings
from tlstax.analysis.report.terminal import intermediaries as terminal_between
from tlstax.analysis.report.terminal import primitives as terminal_primitives
from tlstax.analysis.report.terminal import roles as terminal_roles
from tlstax.analysis.report.terminal import sources as terminal_sources

Json = Mapping[str, Any]

SMALLEST_SHARE: Final = 0.01
"""Phases and categories below this share of the CPU time are in the JSON and the HTML only."""
MOST_CATEGORIES: Final = 6
"""Categories of a phase, largest first; the others likewise."""
FEW_HANDSHAKES: Final = 30
"""Fewer are no distribution: one line instead of a table."""
ESTIMATE_MARK: Final = "≈ "
"""In front of every number that was measured in part of the time and scaled to the whole."""
FEW_MARK: Final = " °"
"""Behind steps that rest on too few samples for a share."""
SMALLEST_STEP: Final = 0.005
"""Steps of the waterfall below this share of the difference, likewise."""


def print_report(
    document: Json, html_path: str | None = None, stream: TextIO | None = None
) -> None:
    """Print the report of a document; the last line says where its HTML page is."""
    screen = console.screen(stream)
    for part in _parts(document, screen.width):
        screen.print(part)
    screen.print(_last_line(html_path), soft_wrap=True)


def _parts(document: Json, width: int) -> Iterable[RenderableType]:
    yield _trust(document["health"], width)
    yield Text()
    yield console.sentence(document["answer"]["sentence"], width, style="bold")
    for detail in document["answer"]["details"]:
        yield console.sentence(detail, width, mark="· ")
    yield console.sentence(_subject(document["capture"]), width, style="dim")
    yield from terminal_findings.render(document, width)
    minimum = layout.minimum_sample_count(document)
    for comparison in document["comparisons"]:
        yield _comparison(comparison, width, minimum)
    if not document["comparisons"]:
        yield from (_ledger(item, width) for item in document["ledgers"] if item["segments"])
        yield from (
            terminal_roles.render(item, width, _estimated(item))
            for item in document["ledgers"]
            if item["roles"]
        )
    both = [item for item in document["end_to_end"] if both_sides.is_of_interest(item)]
    yield from (both_sides.render(item, width) for item in both)
    yield from (terminal_between.render(item, width) for item in document["between"])
    yield from (_handshake(item, width) for item in document["handshakes"])
    compositions = [item for item in document["compositions"] if _is_of_interest(item)]
    yield from (_composition(item, width) for item in compositions)
    for item in both:
        yield _composition(
            {"label": f"client, {item['label']}", "phases": item["phases"], "estimate": ""}, width
        )
    yield from (terminal_primitives.render(item, width) for item in document["primitives"])
    for flame in document["flames"]:
        if flame["repair"]:
            yield Text()
            yield console.sentence(f"flame graph: {flame['repair']}", width)
    if document["sources"]:
        yield from terminal_sources.render(document["sources"], width)
    yield _observer(document["health"], width)
    yield from _gaps(document["health"], width)


def _trust(health: Json, width: int) -> RenderableType:
    """What stands above the first number."""
    symbols, closure, observer = health["symbols"], health["closure"], health["observer"]
    lost = ", ".join(
        f"{quantities.count(loss['count'])} {console.name(loss['kind'])}"
        for loss in health["losses"]
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("lost, healed", Text(lost or "nothing", style="yellow" if lost else "green"))
    table.add_row(
        "samples",
        f"{quantities.count(symbols['sample_count'])}; "
        f"unattributed {quantities.share(symbols['unknown_share'])}; "
        f"named {quantities.share(symbols['named_share'])}; "
        f"without a stack {quantities.share(symbols['no_stack_share'])}",
    )
    style = {True: "green", False: "bold red", None: ""}[closure["ok"]]
    table.add_row(
        "closure",
        Text(
            f"worst window {quantities.share(closure['worst'])}, "
            f"all {quantities.share(closure['overall'])}, "
            f"needed {quantities.share(closure['threshold'])}; "
            f"healed {quantities.count(closure['healed_count'])}, "
            f"uncertain {quantities.time(closure['uncertain_ns'])}",
            style=style,
        ),
    )
    table.add_row(
        "observer",
        f"probes {quantities.share(observer['probe_cpu_share'])} of one CPU, "
        f"tlstax itself {quantities.share(observer['engine_cpu_share'])}, "
        f"{quantities.size(observer['engine_rss_bytes'])}",
    )
    if health["gaps"]:
        lacking = ", ".join(gap["subject"] for gap in health["gaps"])
        table.add_row("not to be had", Text(console.clean(lacking)))
    for effect in observer["effects"][-1:]:
        table.add_row("its cost", _cost(effect, observer["budget_share"]))
    warnings = [
        console.sentence(warning, width, mark="! ", style="yellow")
        for warning in health["warnings"]
    ]
    return Group(table, *warnings)


def _gaps(health: Json, width: int) -> Iterable[RenderableType]:
    """What could not be had of the process, and what the result lacks for it."""
    if health["gaps"]:
        yield Text()
        yield Text("not to be had", style="bold")
    for gap in health["gaps"]:
        yield console.sentence(f"{gap['subject']}: {gap['consequence']}", width, mark="- ")


def _cost(effect: Json, budget: float | None) -> str:
    """Predicted and observed cost of measuring, side by side."""
    text = f"observed {quantities.share(effect['observed_share'])} of the server's CPU time"
    if effect["predicted_share"] is not None:
        text = f"predicted {quantities.share(effect['predicted_share'])}, {text}"
    return text if budget is None else f"{text}, allowed {quantities.share(budget)}"


def _estimated(item: Json) -> str:
    """The mark in front of a scaled number."""
    return ESTIMATE_MARK if item["estimate"] else ""


def _subject(capture: Json) -> str:
    """What was measured, in one line."""
    targets = [
        f"{target['server']}, {target['tls']}, "
        + quantities.process(target["pid"], target["own_pid"])
        for target in capture["targets"]
    ]
    host = [capture["meta"][key] for key in ("hostname", "kernel") if key in capture["meta"]]
    start = quantities.moment(capture["recorded_at"])
    length = quantities.time(capture["duration_ns"])
    return console.clean(" · ".join([*targets, *host, f"recorded {start} for {length}"]))


def _comparison(comparison: Json, width: int, minimum: int) -> RenderableType:
    """The waterfall of one driver."""
    title = f"{console.name(comparison['driver'])}: {console.name(comparison['scenario'])}"
    if comparison["refusal"] is not None:
        return Group(
            Text(),
            Text(console.clean(title), style="bold"),
            Text(console.clean(comparison["refusal"])),
        )
    table = console.table(
        f"{title}, per {comparison['operation']}",
        "step",
        "difference",
        "95 % interval",
        "share",
        "",
    )
    table.columns[-1].justify = "left"
    ends = [cell[key] for cell in comparison["cells"] for key in ("start_ns", "end_ns")]
    latencies = comparison["latency"]
    whole = max([*ends, *(latency["value_ns"] for latency in latencies.values())], default=0.0)
    for arm in ("plaintext", "tls"):
        if arm == "tls":
            _add_cells(table, comparison["cells"], whole, minimum)
        if arm in latencies:
            latency = latencies[arm]
            table.add_row(
                Text(console.name(arm), style="bold"),
                Text(quantities.time(latency["value_ns"]), style="bold"),
                console.interval(latency),
                "",
                Text(console.bar(0, latency["value_ns"], whole), style="bright_black"),
            )
    return console.titled(table, width, *_comparison_notes(comparison, minimum))


def _add_cells(table: Table, cells: Sequence[Json], whole: float, minimum: int) -> None:
    """The steps that matter, and what is left unexplained; the HTML has them all."""
    for cell in cells:
        # Without a difference to explain there are no shares of it: judge by the whole then.
        share = cell["share"]
        if share is None:
            share = cell["difference"]["value_ns"] / whole if whole else 0.0
        if cell["name"] != "unexplained" and abs(share) < SMALLEST_STEP:
            continue
        is_few = layout.rests_on_few(cell, minimum)
        is_seen = cell["verdict"] in ("more", "less")
        style = "" if is_seen and not is_few else "dim"
        table.add_row(
            Text(f"  {console.clean(cell['label'])}{FEW_MARK * is_few}", style=style),
            Text(quantities.time_change(cell["difference"]["value_ns"]), style=style),
            Text(console.interval(cell["difference"]), style=style),
            Text("" if is_few else quantities.share(cell["share"]), style=style),
            Text(
                console.bar(cell["start_ns"], cell["end_ns"], whole),
                style="cyan" if is_seen else "dim",
            ),
        )


def _comparison_notes(comparison: Json, minimum: int) -> Iterable[str]:
    difference, ratio = comparison["difference"], comparison["ratio"]
    if difference is not None and ratio is not None:
        yield (
            f"TLS less plaintext {console.change(difference)}, {quantities.ratio(ratio['value'])} "
            f"the plaintext latency: {comparison['verdict']}"
        )
    for cell in comparison["beside"]:
        yield f"beside the sum: {cell['label']} {console.change(cell['difference'])}"
    if any(layout.rests_on_few(cell, minimum) for cell in comparison["cells"]):
        yield f"{FEW_MARK.strip()} fewer than {quantities.count(minimum)} samples"
    yield comparison["note"]


def _ledger(item: Json, width: int) -> RenderableType:
    """The ledger of one arm; a comparison shows it as a waterfall instead."""
    mark = _estimated(item)
    columns = ["phase", "state", "time", *(["95 % interval"] if mark else []), "share", ""]
    table = console.table(item["label"], *columns)
    table.columns[1].justify = table.columns[-1].justify = "left"
    for segment in item["segments"]:
        bounds = quantities.time_interval(segment["time_ns"], segment["low_ns"], segment["high_ns"])
        table.add_row(
            console.name(segment["phase"]),
            console.name(segment["state"]),
            f"{mark}{quantities.time(segment['time_ns'])}",
            *([bounds] if mark else []),
            quantities.share(segment["share"]),
            Text(console.bar(0, segment["share"], 1), style="cyan"),
        )
    return console.titled(
        table,
        width,
        *([f"{mark}{item['estimate']}"] if mark else []),
        f"served {mark}{quantities.time(item['total_ns'])}; beside it idle "
        f"{mark}{quantities.time(item['idle_ns'])}, background threads "
        f"{mark}{quantities.time(item['background_ns'])}, before a first boundary "
        f"{mark}{quantities.time(item['unknown_ns'])}",
    )


def _handshake(item: Json, width: int) -> RenderableType:
    """The mean handshake and its parts."""
    title = f"handshake: {item['label']}"
    quantiles = "  ".join(
        f"{quantities.quantile(one['q'])} {quantities.time(one['value_ns'])}"
        for one in item["distribution"]["quantiles"]
    )
    if item["mean"] is not None:
        quantiles = f"mean {quantities.time(item['mean']['value_ns'])}  {quantiles}"
    kinds = ("versions", "ciphers", "groups", "resumptions", "outcomes")
    facts = ", ".join(
        f"{value} {quantities.count(number)}"
        for kind in kinds
        for value, number in item[kind].items()
    )
    counted = f"{quantities.count(item['count'])} handshakes"
    if item["estimated_count"] is not None:
        number = quantities.count(round(item["estimated_count"]["value"]))
        counted += f" seen, {ESTIMATE_MARK}{number} in all ({item['estimate']})"
    notes = (f"{counted}  {quantiles}", facts)
    if item["count"] < FEW_HANDSHAKES:
        lines = (console.sentence(note, width, style="dim") for note in notes)
        return Group(Text(), Text(console.clean(title), style="bold"), *lines)
    table = console.table(title, "part", "mean", "95 % interval", "share", "")
    table.columns[-1].justify = "left"
    for part in item["parts"]:
        table.add_row(
            console.clean(part["label"]),
            quantities.time(part["mean"]["value_ns"]),
            console.interval(part["mean"]),
            quantities.share(part["share"]),
            Text(console.bar(0, part["share"], 1), style="cyan"),
        )
    return console.titled(table, width, *notes)


def _is_of_interest(composition: Json) -> bool:
    """The TLS arms and whole recordings; plaintext arms are in the HTML."""
    return bool(composition["phases"]) and "plaintext" not in composition["name"].split("/")


def _composition(item: Json, width: int) -> RenderableType:
    """What the CPU did, phase by phase, largest categories first."""
    table = console.table(f"CPU: {item['label']}", "phase", "CPU time", "samples", "made of")
    table.columns[-1].justify = "left"
    made_of_columns = width - 42
    total_ns = sum(phase["on_cpu_ns"] for phase in item["phases"])
    for phase in item["phases"]:
        if phase["on_cpu_ns"] < SMALLEST_SHARE * total_ns:
            continue
        per_operation = phase["per_operation_ns"]
        table.add_row(
            console.name(phase["phase"]),
            f"{_estimated(item)}"
            f"{quantities.time(phase['on_cpu_ns'] if per_operation is None else per_operation)}",
            "exact" if phase["exact"] else quantities.count(phase["sample_count"]),
            console.sentence(_made_of(phase), made_of_columns),
        )
    mark = _estimated(item)
    return console.titled(table, width, *([f"{mark}{item['estimate']}"] if mark else []))


def _made_of(phase: Json) -> str:
    """The largest categories of a phase; too few samples make no shares."""
    largest = [
        share for share in phase["shares"][:MOST_CATEGORIES] if share["share"] >= SMALLEST_SHARE
    ]
    if not largest:
        return "no samples"
    if phase["enough"]:
        return ", ".join(
            f"{console.name(share['category'])} {quantities.share(share['share'])}"
            for share in largest
        )
    counts = ", ".join(
        f"{console.name(share['category'])} {quantities.count(share['sample_count'])}"
        for share in largest
    )
    return f"too few samples to split: {counts}"


def _observer(health: Json, width: int) -> RenderableType:
    """Losses with their consequences, and the price of the probes."""
    observer = health["observer"]
    lines = [
        f"{quantities.name(loss['kind'])} {quantities.count(loss['count'])}: {loss['consequence']}"
        for loss in health["losses"]
    ]
    lines += [f"{effect['label']}: {_cost(effect, None)}" for effect in observer["effects"][:-1]]
    if observer["budget_choice"]:
        lines.append(observer["budget_choice"])
    if observer["start_cpu_ns"] is not None:
        lines.append(
            f"to begin took tlstax {quantities.time(observer['start_cpu_ns'])} of CPU time, which "
            "is in none of these shares"
        )
    if observer["hits_count"]:
        lines.append(
            f"{quantities.count(observer['hits_count'])} probe hits, "
            f"{quantities.rate(observer['hits_per_second'])}, "
            f"{quantities.time(observer['probe_ns'])} in all; nothing is subtracted for them"
        )
    return Group(Text(), *(console.sentence(line, width, style="dim") for line in lines))


def _last_line(html_path: str | None) -> Text:
    if html_path is None:
        return Text("Add --html FILE for charts and flame graphs.", style="dim")
    return Text(f"Report: {console.clean(html_path)}", style="bold")
