# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels and proxies on the terminal: what they cost each operation."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from tlstax.analysis import quantities
from tlstax.analysis.report import texts
from tlstax.analysis.report.terminal import console

Json = Mapping[str, Any]


def render(item: Json, width: int) -> RenderableType:
    """One line for each process, the busiest first."""
    per = f", per {item['operation']}" if item["operation"] else ""
    title = f"intermediaries: {item['label']}{per}"
    bounds, write = texts.bounds_column(line["cpu"] for line in item["processes"])
    table = console.table(title, "process", "CPU", bounds, "waits for CPU", "other waits")
    for line in item["processes"]:
        waits = sorted(line["blocked_ns"].items(), key=lambda wait: -wait[1])
        longest = f"{quantities.time(waits[0][1])} {texts.name(waits[0][0])}" if waits else ""
        table.add_row(
            texts.clean(line["label"]),
            quantities.time(line["cpu"]["value_ns"]),
            write(line["cpu"]),
            quantities.time(line["runnable"]["value_ns"]),
            longest,
        )
    return console.titled(table, width, *_notes(item))


def _notes(item: Json) -> Iterable[str]:
    yield item["sentence"]
    for line in item["processes"]:
        shakes = f", {quantities.count(line['handshake_count'])} TLS handshakes"
        yield (
            f"{texts.clean(line['label'])}: {line['role']}, TLS library {line['tls']}, threads "
            f"{quantities.count(line['thread_count'])}, closure {quantities.share(line['closure'])}"
            f"{shakes if line['handshake_count'] else ''}"
        )
    if item["idle_count"]:
        yield f"{quantities.count(item['idle_count'])} others were recorded but idle"
