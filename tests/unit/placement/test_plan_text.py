# SPDX-License-Identifier: GPL-2.0-only
"""Plans as text: a stream brings one from another host, and a capture keeps what it says."""

import json
from typing import Any, Final

import pytest

from tlstax.collectors.host.probe_costs.prices import HostCosts, Price
from tlstax.collectors.placement.plan_text import NoFitError, made_of, text_of

COSTS: Final = HostCosts(
    rows=(Price("uprobe", "nop", 1.0, 1, 1.5, 9, 2),), emulated=frozenset({"nop of 5"})
)
ROW: Final = json.loads(text_of(COSTS))["rows"][0]


def changed(**parts: Any) -> Any:
    return made_of(HostCosts, json.loads(text_of(COSTS)) | parts, ())


def row(number: int, value: Any) -> list[list[Any]]:
    return [[*ROW[:number], value, *ROW[number + 1 :]]]


def test_what_is_written_is_read() -> None:
    assert changed() == COSTS


@pytest.mark.parametrize(
    "parts",
    [
        {"rows": row(0, {})},
        {"rows": row(2, "1.0")},
        {"rows": row(2, None)},
        {"rows": row(5, 1.5)},
        {"rows": [[*ROW, 1]]},
        {"rows": [ROW[:-1]]},
        {"rows": ["uprobes"]},
        {"rows": {"a": ROW}},
        {"emulated": "nop"},
        {"emulated": [5]},
        {"emulated": {"nop": 5}},
        {"measured": 1},
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused(parts: dict[str, Any]) -> None:
    """It would be a traceback where the capture is written."""
    with pytest.raises(NoFitError):
        changed(**parts)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_a_price_is_a_number(value: float) -> None:
    """A report would print it as measured."""
    with pytest.raises(NoFitError):
        changed(rows=row(2, value))
