# SPDX-License-Identifier: GPL-2.0-only
"""Doctor's judgement and text, from answers made by hand; the trials are in tests/kernel."""

import errno
import subprocess
from dataclasses import replace

import pytest

from tlstax.collectors.commands.doctor import render, verdict
from tlstax.collectors.host.checks import CHECKS, ROOT, Answer, Check, engines, examine, ready
from tlstax.collectors.host.settings import LackError


def answer(check_id: str, need: str, ok: bool) -> Answer:
    return Answer(check_id, f"the {check_id}", need, ok, "seen", "something", "Do this")


def check(error: Exception, need: str = "required") -> Check:
    def ask() -> str:
        raise error

    return Check("it", "the thing", need, ask, "something", "Do this")


def test_ready_needs_every_required_check_and_one_kind_of_uprobe() -> None:
    required = answer("bpf", "required", True)
    single, multi = answer("uprobe", "uprobe", True), answer("uprobe_multi", "uprobe", True)
    no_single, no_multi = replace(single, ok=False), replace(multi, ok=False)
    assert ready([required, single, no_multi])
    assert ready([required, no_single, multi])
    assert not ready([required, no_single, no_multi])
    assert not ready([replace(required, ok=False), single, multi])


def test_what_is_only_useful_does_not_stop_the_engine() -> None:
    answers = [
        answer("uprobe", "uprobe", True),
        answer("cpu_clock", "useful", False),
        answer("perf", "engine", True),
        answer("bcc", "engine", False),
    ]
    assert ready(answers)
    assert engines(answers) == ["native", "perf"]
    assert verdict(answers) == (
        "This host can be measured. Engines: native, perf. Without: the cpu_clock."
    )


def test_a_refusal_names_what_it_is_needed_for_and_what_to_do() -> None:
    text = render([answer("bpf", "required", False), answer("uprobe", "uprobe", True)])
    assert "NO     the bpf" in text
    assert "needed for: something" in text
    assert "what to do: Do this" in text
    assert text.endswith("This host cannot be measured. Missing: the bpf. What to do: see above.")


def test_a_refused_system_call_is_an_answer() -> None:
    found = examine(check(OSError(errno.EINVAL, "Invalid argument")))
    assert (found.ok, found.found, found.do) == (False, "Invalid argument", "Do this")


def test_a_lacking_permission_says_how_to_get_it() -> None:
    assert examine(check(PermissionError(errno.EPERM, "Operation not permitted"))).do == ROOT


def test_a_missing_file_is_named() -> None:
    found = examine(check(FileNotFoundError(errno.ENOENT, "No such file or directory", "/a/b")))
    assert found.found == "No such file or directory (/a/b)"


def test_a_tool_that_hangs_is_an_answer() -> None:
    assert examine(check(subprocess.TimeoutExpired(["x"], 10))).found == "no answer within 10 s"


def test_a_lack_is_told_in_its_own_words() -> None:
    assert examine(check(LackError("no CAP_BPF"))).found == "no CAP_BPF"


def test_a_defect_of_doctor_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        examine(check(ZeroDivisionError()))


def test_every_check_says_what_it_is_for_and_what_to_do() -> None:
    assert len({entry.check_id for entry in CHECKS}) == len(CHECKS)
    for entry in CHECKS:
        assert entry.needed_for
        assert entry.do
        assert not entry.do.endswith(".")
        assert entry.need in {"required", "uprobe", "useful", "engine", "note"}
