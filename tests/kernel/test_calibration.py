# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs on this kernel, and what the kernel emulates, both by trial."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.binary.instructions import TRIAL_FORMS
from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.host.features import HOST, emulated_forms, socket_source
from tlstax.collectors.host.probe_costs.costs import host, load, path, prices_in
from tlstax.collectors.host.probe_costs.prices import HostCosts, host_costs_of
from tlstax.collectors.host.socket_events import SocketSource

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes", "btf")]


class Calibrated(NamedTuple):
    """What doctor printed, and what it kept."""

    document: dict[str, Any]
    kept: HostCosts | None

    @property
    def prices(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Rows by kind and instruction."""
        return {(row["kind"], row["instruction"]): row for row in self.document["calibration"]}


@pytest.fixture
def calibrated(
    measured: Callable[..., Calibrated],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Calibrated:
    def measure() -> Calibrated:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert main(["doctor", "--calibrate", "--json"]) == ExitCode.OK
        return Calibrated(json.loads(capsys.readouterr().out), load(path(), host()))

    return measured("calibrated", measure)


def test_doctor_measures_every_kind_and_keeps_it(calibrated: Calibrated) -> None:
    prices, kept = calibrated.prices, calibrated.kept
    assert {kind for kind, _ in prices} >= {"uprobe", "uretprobe", "tp_btf", "perf_event"}
    assert ("fexit" in {kind for kind, _ in prices}) == (
        socket_source(HOST) == SocketSource.FUNCTIONS
    )
    assert all(row["low_ns"] <= row["cost_ns"] <= row["high_ns"] for row in prices.values())
    assert kept is not None
    assert kept.measured
    assert kept == host_costs_of(kept.rows, calibrated.document["emulated"])


@pytest.mark.timing(emulated=True)
def test_a_single_step_is_a_second_trap(calibrated: Calibrated) -> None:
    prices = calibrated.prices
    emulated, stepped = prices["uprobe", "nop"], prices["uprobe", "mov %rdi,%rax"]
    assert 20 < emulated["cost_ns"] < stepped["cost_ns"]


def test_what_is_emulated_is_seen_and_not_guessed() -> None:
    found = emulated_forms()
    assert found <= TRIAL_FORMS.keys()
    assert found == emulated_forms(), "no timing is involved"
    version = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert ("nop of 5" in found) == (version >= (6, 18)), "since then it is emulated"


@pytest.mark.alone
def test_the_recorder_measures_on_one_and_on_all_cpus() -> None:
    """With every CPU of its affinity, but for those it may not use."""
    usable = os.sched_getaffinity(0)
    bound = ["taskset", "--cpu-list", str(min(usable))]
    for before, counts in ((bound, {1}), ([], {1, len(usable)})):
        command = [*before, str(recorder_path()), "--prices"]
        rows = prices_in(subprocess.check_output(command, text=True, stdin=subprocess.DEVNULL))
        assert {row.cpus_count for row in rows} >= counts
        assert max(row.cpus_count for row in rows) == max(counts)
        assert {row.rounds_count for row in rows} == {9}
        assert all(host_costs_of(rows, ()).on(count).cpus_count == count for count in counts)
