# SPDX-License-Identifier: GPL-2.0-only
"""The recorder of an experiment, passed to `tlstax lab`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tlstax.collectors.recording.by_recorder.recorder import Recorder
from tlstax.collectors.recording.request import Request

_EXPERIMENT_HZ: Final = 997


def open_recorder(pid: int, capture: Path, collect: Sequence[str] = ()) -> Recorder:
    """A recorder for experiments, which are short and want many samples."""
    sources = None
    if collect:
        from tlstax.collectors.sources.registry import asked_by_default, open_sources

        sources = open_sources(asked_by_default(collect, pid, capture))
    return Recorder(Request(pid, capture, sample_hz=_EXPERIMENT_HZ, sources=sources))
