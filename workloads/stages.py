# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment needs of the stages behind it, which it may not import.

`workloads` comes first in the flow; `tlstax.__main__` passes it these functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax.workloads.results import OpenRecorder, RenderReport


@dataclass(frozen=True)
class Stages:
    """The later stages."""

    open_recorder: OpenRecorder
    join_captures: Callable[[Sequence[Path], Path], None]  # parts in the order of time, output
    crypto_instructions: Callable[[int], Mapping[str, bool]]  # pid
    render_report: RenderReport
    render_folder: Callable[[Path], Path]  # of a matrix or a comparison of libraries -> the page
