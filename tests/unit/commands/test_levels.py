# SPDX-License-Identifier: GPL-2.0-only
"""Who gets the level that the recorder chooses, and who `record`."""

import argparse
from typing import Any

import pytest

from tlstax.collectors.commands import attach_request
from tlstax.collectors.commands.options import NO_BUDGET
from tlstax.probes.model import Level


class Host:
    """One with the events of sockets, or without."""

    def __init__(self, *, socket_events: bool) -> None:
        self.socket_events = socket_events


def settled(monkeypatch: pytest.MonkeyPatch, has_events: bool = True, **given: Any) -> Any:
    monkeypatch.setattr(attach_request, "HOST", Host(socket_events=has_events))
    defaults: dict[str, Any] = {
        "level": None, "budget": None, "calibrate": False, "client": [], "functions": (),
        "window": None, "collect": ("native",), "ssh": None,
    }  # fmt: skip
    options = argparse.Namespace(**defaults | given)
    attach_request.settle_level(options)
    return options


@pytest.mark.parametrize("given", [{}, {"budget": 0.01}, {"has_events": False, "ssh": "there"}])
def test_the_recorder_chooses_within_a_budget(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    options = settled(monkeypatch, **given)
    assert (options.level, options.chooses_level, options.calibrate) == (Level.FLOW, True, True)


@pytest.mark.parametrize(
    "given",
    [
        {"budget": NO_BUDGET},
        {"window": 0.1},
        {"client": ["1"]},
        {"functions": ("cipher",)},
        {"collect": ("procfs",)},
        {"has_events": False},
    ],
    ids=str,
)
def test_without_a_budget_or_socket_events_everything_is_recorded(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    options = settled(monkeypatch, **given)
    assert (options.level, options.chooses_level, options.calibrate) == (Level.RECORD, False, False)


def test_a_level_that_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    options = settled(monkeypatch, level=Level.FLOW)
    assert (options.level, options.chooses_level, options.calibrate) == (Level.FLOW, False, False)


def test_stretches_alone_choose_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """`attach` then says that they belong to level flow."""
    assert not settled(monkeypatch, calibrate=True).chooses_level
