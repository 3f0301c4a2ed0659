# SPDX-License-Identifier: GPL-2.0-only
"""Doctor on this very host: the trials have their effect, and leave nothing behind."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tlstax.collectors.host import features

NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.mark.parametrize(
    "trial",
    [
        features.bpf_call,
        features.program_load,
        features.uprobe_perf_event,
        features.task_storage,
        features.tracepoint_with_types,
        features.ring_buffer,
        features.stack_map,
        features.cpu_clock_samples,
    ],
)
def test_a_trial_has_its_effect(trial: Callable[[], str]) -> None:
    assert trial()


def test_doctor_says_the_same_in_json_and_by_its_exit_status() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tlstax", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(result.stdout)
    assert result.returncode == (0 if document["ready"] else 3)
    answers = {answer["check_id"]: answer for answer in document["checks"]}
    assert answers["bpf"]["ok"]
    assert answers["privileges"]["found"].startswith("uid 0")
    assert ("native" in document["engines"]) == document["ready"]


def test_without_privilege_doctor_says_what_is_lacking() -> None:
    code = "import sys; from tlstax.__main__ import main; sys.exit(main(['doctor', '--json']))"
    result = subprocess.run(
        [*NOBODY, sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 3, result.stderr
    document = json.loads(result.stdout)
    lacking = {answer["check_id"] for answer in document["checks"] if not answer["ok"]}
    tried = {"task_storage", "ring_buffer", "stack_map", "cpu_clock"}
    assert {"privileges", "bpf", "program", "uprobe", "uprobe_multi", "tp_btf", *tried} <= lacking
    assert "Traceback" not in result.stderr


def test_doctor_leaves_nothing_in_the_kernel(leftover: Callable[[], set[object]]) -> None:
    features.uprobe_perf_event()
    features.task_storage()
    features.cpu_clock_samples()
    assert not leftover()


@pytest.mark.needs("uprobe_multi")
def test_uprobe_multi_trial_leaves_nothing_in_the_kernel(
    leftover: Callable[[], set[object]],
) -> None:
    features.uprobe_multi()
    assert not leftover()
