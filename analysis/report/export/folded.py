# SPDX-License-Identifier: GPL-2.0-only
"""Write stacks in the folded form: one line per stack, frames from the root, then its time.

The form that FlameGraph, inferno and speedscope read. The first frame is the workload and the
kind of time, the second the phase; the number is the stack's own time in nanoseconds.
"""

from collections.abc import Mapping

from tlstax.analysis.classify.stacks import Folded, folded_lines


def render(graphs: Mapping[str, Folded]) -> str:
    """All stacks of all graphs, each under a frame with the graph's name."""
    lines = (
        f"{name.replace(';', ':')};{line}\n"
        for name, folded in graphs.items()
        for line in folded_lines(folded)
    )
    return "".join(lines)
