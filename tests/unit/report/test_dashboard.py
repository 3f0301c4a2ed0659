# SPDX-License-Identifier: GPL-2.0-only
"""The dashboard for Grafana: fields that Grafana has, and metrics that a watch has.

That each query returns data is tested with a real Prometheus, in tests/e2e/recording.
"""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tlstax.analysis.fleet.continuous.counters import Counters
from tlstax.analysis.report.live.measures import distributions, measures

SUFFIXES = {"counter": "_total", "gauge": "", "info": "_info"}


@pytest.fixture(scope="module")
def dashboard(repository: Path) -> dict[str, Any]:
    text = (repository / "docs/monitoring/tlstax-dashboard.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def lost(given: Any, known: Any, at: str = "") -> Iterator[str]:
    """Where Grafana's own model lacks what is given, or has another value."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            yield from lost(value, known.get(key, "no such field"), f"{at}.{key}")
    elif isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        for number, (one, other) in enumerate(zip(given, known, strict=True)):
            yield from lost(one, other, f"{at}[{number}]")
    elif given != known:
        yield f"{at}: {given!r} is {known!r}"


def test_grafanas_model_knows_every_field(dashboard: dict[str, Any]) -> None:
    register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    assert list(lost(dashboard, known)) == []
    wrong = {**dashboard, "panels": [{**dashboard["panels"][0], "titel": "x"}]}
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(wrong)))
    assert list(lost(wrong, known)) == [".panels[0].titel: 'x' is 'no such field'"]


def test_queries_are_of_metrics_that_a_watch_has(dashboard: dict[str, Any]) -> None:
    counters = Counters()
    known = {f"tlstax_{one.name}{SUFFIXES[one.kind]}" for one in measures(counters)}
    classic = {f"tlstax_{one.name}_bucket" for one in distributions(counters)}
    known |= classic | {name.removesuffix("_bucket") for name in classic}
    used = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"tlstax_\w+", target["expr"])
    }
    assert used <= known
    assert len(used) > 12


def test_panels_do_not_overlap_and_say_what_they_show(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"].endswith(".") for panel in panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
