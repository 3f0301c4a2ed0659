# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace programs as sources: attach points, rendered programs, their output and its rows."""

from collections.abc import Sequence
from typing import Final

from tlstax.collectors.capture.known_sources import BPFTRACE
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration, Option, parse_list
from tlstax.probes import programs


def _parse_programs(text: str) -> tuple[str, ...]:
    return parse_list(text, programs.names())


def _open(asked: Asked) -> Sequence[Source]:
    from tlstax.collectors.sources.bpftrace.source import DEFAULT, Bpftrace

    return (Bpftrace(asked.pid, asked.options["bpftrace_programs"] or DEFAULT),)


def _return_probes(asked: Asked) -> str:
    from tlstax.collectors.sources.bpftrace.source import DEFAULT

    names = asked.options["bpftrace_programs"] or DEFAULT
    return ", ".join(name for name in names if programs.load(name).has_exits)


SOURCE: Final = Declaration(
    name="bpftrace",
    summary="the output of programs of probes/*.bt",
    needs="bpftrace 0.17, root",
    records="handshakes, samples, waits; see below",
    open=_open,
    options=(
        Option(
            "--bpftrace-programs",
            "programs of `tlstax probes list` for bpftrace (default: handshake,oncpu,offcpu)",
            "LIST",
            _parse_programs,
            default=(),
        ),
    ),
    return_probes=_return_probes,
    is_cost_counted=False,
    warnings=("a boundary of the program is missing in the process",),
    alone=BPFTRACE,
)
