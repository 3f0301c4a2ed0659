# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment needs of the stages behind it, which it may not import.

`workloads` comes first in the flow; `tlstax.__main__` passes it these functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tlstax.workloads.negotiation import Negotiated
from tlstax.workloads.results import OpenRecorder, RenderReport


@dataclass(frozen=True)
class ServerOutcome:
    """One server of a comparison: its capture and what was found out about its TLS beside it."""

    name: str  # in the catalogue
    capture: Path | None  # None where it could not be measured
    failure: str = ""  # why, one sentence
    negotiated: Negotiated | None = None
    instructions: Mapping[str, bool] | None = None  # "aes", "sha": in its TLS library's code

    def as_json(self) -> dict[str, object]:
        """The same as plain values, the capture by its file name."""
        return asdict(self) | {"capture": self.capture.name if self.capture else None}


@dataclass(frozen=True)
class Stages:
    """The later stages."""

    open_recorder: OpenRecorder
    join_captures: Callable[[Sequence[Path], Path], None]  # parts in the order of time, output
    crypto_instructions: Callable[[int], Mapping[str, bool]]  # pid
    render_report: RenderReport
    render_folder: Callable[[Path], Path]  # of a matrix or a comparison of libraries -> the page
