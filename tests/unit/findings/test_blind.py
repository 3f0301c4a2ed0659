# SPDX-License-Identifier: GPL-2.0-only
"""The blind set follows from its seed, and keeps what each case is made of."""

import re
from pathlib import Path

from tlstax.analysis.findings.rules import rules
from tlstax.tests.truth.causes import blind
from tlstax.tests.truth.causes.causes import (
    CASES,
    MIXED,
    PLAIN_WOLFSSL,
    PORTABLE,
    YASSL,
    true_of,
)
from tlstax.tests.truth.causes.uninjected import UNINJECTED
from tlstax.workloads.servers.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[3]


def test_a_seed_gives_one_set_and_another_seed_another() -> None:
    assert blind.cases(7) == blind.cases(7)
    assert blind.cases(7) != blind.cases(8)
    assert blind.controls(7) == blind.controls(7)
    assert blind.controls(7) != blind.controls(8)


def test_a_drawn_case_has_its_cause_and_is_no_case_that_was_seen() -> None:
    drawn = blind.cases(1)
    assert drawn.keys() == CASES.keys()
    for name, case in drawn.items():
        assert case.expected == CASES[name].expected
        assert len(case.parameters) == blind.PER_CAUSE
        for one in case.parameters:
            old = CASES[name].parameters
            assert any((one.script, one.stranger) == (was.script, was.stranger) for was in old)
            assert bool(one.rtt_ms) == any(was.rtt_ms for was in old)
            assert one.threads >= 1
    seen = {repr(one) for case in CASES.values() for one in case.parameters}
    new = [one for case in drawn.values() for one in case.parameters if repr(one) not in seen]
    assert len(new) > len(CASES)


def test_healthy_loads_have_no_cause() -> None:
    controls = blind.controls(1)
    assert len(controls) == blind.CONTROLS_COUNT
    assert {one.kind for one in controls.values()} == {*blind.SERVERS}
    slow = {*YASSL, *PLAIN_WOLFSSL}
    assert not any(true_of(one) for one in controls.values() if one.kind not in slow)


def test_the_servers_are_those_of_the_catalogue() -> None:
    assert {*blind.SERVERS} == {*load_catalogue()}
    assert {*YASSL} == {
        name for name, kind in load_catalogue().items() if kind.tls_library.startswith("yaSSL")
    }


def test_causes_that_are_no_matter_of_the_library_are_drawn_on_all_servers() -> None:
    drawn = [blind.cases(seed) for seed in range(20)]
    kinds = {one.kind for cases in drawn for name in PORTABLE for one in cases[name].parameters}
    assert kinds == {*blind.SERVERS}
    others = {name: case for cases in drawn for name, case in cases.items() if name not in PORTABLE}
    for name, case in others.items():
        known = {one.kind for one in CASES[name].parameters}
        assert {one.kind for one in case.parameters} <= known, name


def test_every_finding_is_injected_or_says_why_not() -> None:
    """A rule that nobody has seen fire on a real server is a guess.

    What a case accepts besides its first is no injection: the case passes where it never fires.
    """
    injected = {
        name
        for case in (*CASES.values(), *MIXED.values())
        for name in (case.expected if case.every else case.expected[:1])
    }
    known = {rule.id for rule in rules()}
    assert injected <= known
    assert known - injected == UNINJECTED.keys()


def test_the_page_of_findings_lists_what_is_not_injected() -> None:
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| not injected | why |\n|---|---|\n")
    rows, _, _ = table.partition("\n\n")
    listed = [match.group(1) for match in re.finditer(r"^\| `(\w+)`", rows, re.MULTILINE)]
    assert listed == [*UNINJECTED]
