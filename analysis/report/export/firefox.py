# SPDX-License-Identifier: GPL-2.0-only
"""Write stacks as a processed profile of the Firefox Profiler, version 48 of that form.

Each graph is a thread. Stacks carry no time of their own, so a thread's samples stand one behind
the other, each as long as its own time (`tracing-ms`): totals, call trees and flame graphs are
right, the time axis means nothing. Fields and versions:
https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from tlstax import __version__
from tlstax.analysis.classify.stacks import Folded, FoldedFrame
from tlstax.collectors.capture.vocabulary import CATEGORIES

VERSION: Final = 48
"""preprocessedProfileVersion; later profilers upgrade it on loading."""
_GECKO_VERSION: Final = 24
_NS_PER_MS: Final = 1e6
_COLOURS: Final = {
    "asymmetric": "red", "cipher": "orange", "digest": "brown", "record_crypto": "orange",
    "kdf_rng": "yellow", "certificate": "purple", "provider_fetch": "magenta",
    "tls_protocol": "blue", "kernel_network": "lightblue", "kernel_other": "lightblue",
    "memory": "green", "lock_spin": "yellow", "server": "green", "probe": "magenta",
}  # fmt: skip


def render(graphs: Mapping[str, Folded], name: str, time_ns: int, process: str) -> str:
    """All graphs in one profile; `time_ns` is the wall clock of the start."""
    threads = [
        _thread(name, folded, number, process)
        for number, (name, folded) in enumerate(graphs.items())
        if folded
    ]
    document = {
        "meta": _meta(name, time_ns),
        "libs": [],
        "pages": [],
        "counters": [],
        "profilerOverhead": [],
        "threads": threads,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _meta(name: str, time_ns: int) -> dict[str, Any]:
    return {
        "interval": 1,
        "startTime": time_ns / _NS_PER_MS,
        "processType": 0,
        "product": f"tlstax: {name}",
        "appBuildID": __version__,
        "stackwalk": 1,
        "debug": False,
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": VERSION,
        "symbolicated": True,
        "markerSchema": [],
        "categories": [
            {
                "name": category,
                "color": _COLOURS.get(category, "grey"),
                "subcategories": ["Other"],
            }
            for category in CATEGORIES
        ],
        "extensions": {"length": 0, "id": [], "name": [], "baseURL": []},
        "usesOnlyOneStackType": True,
        "doesNotUseFrameImplementation": True,
        "sourceCodeIsNotOnSearchfox": True,
    }


class _Tables:
    """Strings, functions, frames and stacks of one thread."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self.frames: dict[FoldedFrame, int] = {}
        self.stacks: dict[tuple[int | None, int], int] = {}

    def stack(self, path: tuple[FoldedFrame, ...]) -> int | None:
        """The number of a stack, given root first."""
        prefix: int | None = None
        for frame in path:
            self.strings.setdefault(frame.text, len(self.strings))
            number = self.frames.setdefault(frame, len(self.frames))
            prefix = self.stacks.setdefault((prefix, number), len(self.stacks))
        return prefix


def _thread(name: str, folded: Folded, number: int, process: str) -> dict[str, Any]:
    tables = _Tables()
    stacks = [tables.stack(path) for path in folded]
    weights = [value_ns / _NS_PER_MS for value_ns in folded.values()]
    times, at_ms = [], 0.0
    for weight in weights:
        times.append(at_ms)
        at_ms += weight
    return {
        "name": name,
        "processName": process,
        "processType": "default",
        "isMainThread": number == 0,
        "pid": "0",
        "tid": number,
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "samples": {
            "length": len(stacks), "stack": stacks, "time": times, "weight": weights,
            "weightType": "tracing-ms",
        },
        "markers": {
            "length": 0, "data": [], "name": [], "startTime": [], "endTime": [], "phase": [],
            "category": [],
        },
        **_frame_tables(tables),
    }  # fmt: skip


def _frame_tables(tables: _Tables) -> dict[str, Any]:
    """Stacks, frames and functions column by column; every frame is a function of its own."""
    frames, count = list(tables.frames), len(tables.frames)
    nothing: list[None] = [None] * count
    categories = [_category(frame) for frame in frames]
    return {
        "stringArray": list(tables.strings),
        "stackTable": {
            "length": len(tables.stacks),
            "prefix": [prefix for prefix, _ in tables.stacks],
            "frame": [frame for _, frame in tables.stacks],
            "category": [categories[frame] for _, frame in tables.stacks],
            "subcategory": [0] * len(tables.stacks),
        },
        "frameTable": {
            "length": count, "address": [-1] * count, "inlineDepth": [0] * count,
            "category": categories, "subcategory": [0] * count, "func": list(range(count)),
            "nativeSymbol": nothing, "innerWindowID": nothing, "implementation": nothing,
            "line": nothing, "column": nothing,
        },
        "funcTable": {
            "length": count, "name": [tables.strings[frame.text] for frame in frames],
            "isJS": [False] * count, "relevantForJS": [False] * count, "resource": [-1] * count,
            "fileName": nothing, "lineNumber": nothing, "columnNumber": nothing,
        },
        "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
        "nativeSymbols": {
            "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [],
        },
    }  # fmt: skip


def _category(frame: FoldedFrame) -> int:
    known = frame.category if frame.category in CATEGORIES else "unknown"
    return CATEGORIES.index(known)
