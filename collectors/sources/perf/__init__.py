# SPDX-License-Identifier: GPL-2.0-only
"""`perf record` as a source: the child process, its samples, and their rows in a capture."""

from collections.abc import Sequence
from typing import Final

from tlstax.collectors.capture.known_sources import PERF
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration, Option


def _open(asked: Asked) -> Sequence[Source]:
    from tlstax.collectors.sources.perf.recording import Perf

    directory = asked.capture.absolute().parent
    call_graph = asked.options["perf_call_graph"]
    return (Perf(asked.pid, directory, sample_hz=asked.sample_hz, call_graph=call_graph),)


SOURCE: Final = Declaration(
    name="perf",
    summary="CPU samples with whole stacks",
    needs="linux-perf",
    records="flame graphs; see below",
    open=_open,
    options=(
        Option(
            "--perf-call-graph",
            "how perf walks stacks (default: dwarf); lbr needs a CPU with branch records",
            choices=("dwarf", "fp", "lbr"),
            default="dwarf",
        ),
    ),
    is_cost_counted=False,
    warnings=("the machine counts no CPU cycles or no instructions",),
    alone=PERF,
)
