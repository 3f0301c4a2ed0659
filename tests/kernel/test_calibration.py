# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs on this kernel, and what the kernel emulates, both by trial."""

import json

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.binary.instructions import TRIAL_FORMS
from tlstax.collectors.host.costs import load
from tlstax.collectors.host.emulation import emulated_forms
from tlstax.collectors.host.prices import host_costs_of

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes", "btf")]


@pytest.mark.timing(emulated=True)
def test_doctor_measures_every_kind_and_keeps_it(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["doctor", "--calibrate", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    prices = {(row["kind"], row["instruction"]): row for row in document["calibration"]}
    assert {kind for kind, _ in prices} >= {"uprobe", "uretprobe", "tp_btf", "perf_event"}
    assert all(row["low_ns"] <= row["cost_ns"] <= row["high_ns"] for row in prices.values())
    emulated, stepped = prices["uprobe", "nop"], prices["uprobe", "mov %rdi,%rax"]
    assert 20 < emulated["cost_ns"] < stepped["cost_ns"], "a single step is a second trap"
    kept = load()
    assert kept is not None
    assert kept.measured
    assert kept == host_costs_of(kept.rows, document["emulated"])


def test_what_is_emulated_is_seen_and_not_guessed() -> None:
    found = emulated_forms()
    assert found <= TRIAL_FORMS.keys()
    assert found == emulated_forms(), "no timing is involved"
