# SPDX-License-Identifier: GPL-2.0-only
"""Features of the host: tried when asked for, once, and a refusal is kept as an answer."""

import errno
from dataclasses import fields, replace
from typing import Any

import pytest

from tlstax.collectors.host.checks import CHECKS, Check, examine
from tlstax.collectors.host.features import HOST, Feature
from tlstax.collectors.host.settings import LackError


class Trial:
    """Counts how often it is made."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.count = 0
        self.refusal = refusal

    def __call__(self) -> str:
        self.count += 1
        if self.refusal:
            raise self.refusal
        return "seen"


def test_a_feature_is_tried_once_and_only_when_asked_for() -> None:
    trial = Trial()
    feature = Feature(trial)
    assert trial.count == 0
    assert feature
    assert feature.ask() == "seen"
    assert trial.count == 1


@pytest.mark.parametrize("refusal", [OSError(errno.EPERM, "no"), LackError("no hit")])
def test_a_refusal_is_an_answer_and_tells_why_each_time(refusal: Exception) -> None:
    trial = Trial(refusal)
    feature = Feature(trial)
    assert not feature
    for _ in range(2):
        with pytest.raises(type(refusal), match="no"):
            feature.ask()
    assert trial.count == 1


def test_another_feature_in_its_place_tries_nothing() -> None:
    trials = {field.name: Trial() for field in fields(HOST)}
    others: dict[str, Any] = {name: Feature(trial) for name, trial in trials.items()}
    features = replace(
        replace(HOST, **others), uprobe_multi=Feature(Trial(LackError("as on Linux 6.5")))
    )
    assert not features.uprobe_multi
    assert features.socket_tracepoints
    assert {name for name, trial in trials.items() if trial.count} == {"socket_tracepoints"}


def test_doctor_asks_the_features_themselves() -> None:
    asked = {check.check_id: check.ask for check in CHECKS}
    assert asked["uprobe_multi"] == HOST.uprobe_multi.ask
    check = Check("x", "x", "required", Feature(Trial(LackError("no hit"))).ask, "-", "-")
    assert (examine(check).ok, examine(check).found) == (False, "no hit")
