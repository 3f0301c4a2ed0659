# SPDX-License-Identifier: GPL-2.0-only
"""Write stacks as a file of speedscope: one sampled profile for each graph, weights in ns.

Form: https://www.speedscope.app/file-format-schema.json
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from tlstax import __version__
from tlstax.analysis.classify.stacks import Folded

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def render(graphs: Mapping[str, Folded], name: str) -> str:
    """All graphs in one file; empty ones are left out."""
    frames: dict[str, int] = {}
    profiles = [_profile(name, folded, frames) for name, folded in graphs.items() if folded]
    document = {
        "$schema": SCHEMA,
        "exporter": f"tlstax {__version__}",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": text} for text in frames]},
        "profiles": profiles,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _profile(name: str, folded: Folded, frames: dict[str, int]) -> dict[str, Any]:
    weights = [round(value_ns) for value_ns in folded.values()]
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [
            [frames.setdefault(frame.text, len(frames)) for frame in path] for path in folded
        ],
        "weights": weights,
    }
