# SPDX-License-Identifier: GPL-2.0-only
"""bcc's tools and libbpf-tools as sources: child processes, their text, its rows in a capture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tlstax.collectors.capture.known_sources import BCC
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration, Option, parse_list


def _parse_tools(text: str) -> tuple[str, ...]:
    from tlstax.collectors.sources.bcc.source import TOOLS

    return parse_list(text, TOOLS)


def _open(asked: Asked) -> Sequence[Source]:
    from tlstax.collectors.sources.bcc.source import TOOLS, BccTool, Watched

    watched = Watched(asked.pid, asked.sample_hz, asked.options["bcc_directory"])
    if tools := asked.options["bcc_tools"]:
        return [BccTool(tool, watched) for tool in tools]
    return [BccTool(tool, watched, part_of=SOURCE.name) for tool in TOOLS]


def _return_probes(asked: Asked) -> str:
    tools = asked.options["bcc_tools"]
    return "funclatency" if not tools or "funclatency" in tools else ""


SOURCE: Final = Declaration(
    name="bcc",
    summary="off-CPU time, CPU samples, handshakes and block I/O, by tools of bcc or libbpf-tools",
    needs="libbpf-tools, or bcc and kernel headers; root",
    records="flame graphs, handshakes, a table; see [bcc](bcc.md)",
    open=_open,
    options=(
        Option(
            "--bcc-tools",
            "tools to run for bcc: some of offcputime, profile, funclatency, biolatency (default:"
            " all that are installed)",
            "LIST",
            _parse_tools,
            default=(),
        ),
        Option("--bcc-directory", "directory to search first for bcc's tools", "DIR", Path),
    ),
    return_probes=_return_probes,
    is_cost_counted=False,
    warnings=("a tool is missing", "frames have names but no addresses"),
    alone=BCC,
)
