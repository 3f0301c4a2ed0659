# SPDX-License-Identifier: GPL-2.0-only
"""The list of hazards: what is wrong in it is refused, and the page shows it."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.preflight.hazard_table import table, with_table
from tlstax.collectors.preflight.hazards import load_hazards, parse_hazards
from tlstax.collectors.preflight.host_facts import host_outcomes
from tlstax.collectors.preflight.target_facts import CHECKS
from tlstax.collectors.preflight.trials import TRIALS

ENTRY = """
retired = ["old"]
[[hazard]]
id = "new"
title = "a title"
what = "It hurts"
hurts = "kernel"
kind = "table"
kernels = [["6.1", "6.2.3"], ["6.4", ""]]
variant = "warn"
source = ["a commit"]
"""


def test_ranges_begin_with_an_affected_kernel_and_end_before_a_mended_one() -> None:
    (hazard,) = parse_hazards(ENTRY.encode(), "x.toml")
    versions = [(6, 0, 9), (6, 1), (6, 1, 7), (6, 2, 2), (6, 2, 3), (6, 3), (6, 4), (7, 1)]
    assert [hazard.affects(version) for version in versions] == [
        *(False, True, True, True, False, False, True, True)
    ]
    assert hazard.ranges() == "6.1 to before 6.2.3, 6.4 and later"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('id = "new"', 'id = "old"', "was used before"),
        ('id = "new"', 'id = "New"', "is no id"),
        ('id = "new"', 'id = "new"\nbuilds = ["x"]', "unknown key: builds"),
        ('kind = "table"', 'kind = "trial"\ncheck = "x"', "must not be tried"),
        ('kind = "table"', 'kind = "guess"', "'guess', not one of"),
        ('[["6.1", "6.2.3"], ["6.4", ""]]', "[]", "not empty"),
        ('["6.1", "6.2.3"]', '["6.2.3", "6.1"]', "no range"),
        ('["6.1", "6.2.3"]', '["6.1"]', "pairs"),
        ('["6.1", "6.2.3"]', '["6.1", "6.x"]', "no version"),
        ('kernels = [["6.1", "6.2.3"], ["6.4", ""]]', "", "'kernels' is missing"),
        ('variant = "warn"', 'variant = "hope"', "'hope', not one of"),
        ('variant = "warn"', 'variant = "refuse"', "'exit_code'"),
        ('variant = "warn"', 'variant = "warn"\nexit_code = "HOST"', "'exit_code'"),
        ('source = ["a commit"]', "source = []", "not empty"),
        ('retired = ["old"]', "", "'retired'"),
        ("[[hazard]]", "[[hazard", "not TOML"),
    ],
)
def test_what_is_wrong_is_refused(old: str, new: str, word: str) -> None:
    assert old in ENTRY
    with pytest.raises(TlstaxError, match=word) as raised:
        parse_hazards(ENTRY.replace(old, new).encode(), "x.toml")
    assert raised.value.exit_code == ExitCode.USAGE


def test_an_id_is_not_used_twice() -> None:
    entry = ENTRY.partition("[[hazard]]")[2]
    with pytest.raises(TlstaxError, match="was used before"):
        parse_hazards(f"{ENTRY}\n[[hazard]]{entry}".encode(), "x.toml")


def test_each_check_exists_and_is_used() -> None:
    hazards = load_hazards()
    assert len(hazards) >= 10
    used = {kind: {h.check for h in hazards if h.kind == kind} for kind in ("trial", "host")}
    assert used["trial"] == set(TRIALS)
    assert used["host"] == set(host_outcomes(None))
    assert {h.check for h in hazards if h.kind == "target"} == set(CHECKS)


def test_what_can_hurt_the_kernel_is_never_tried() -> None:
    kinds = {hazard.kind for hazard in load_hazards() if hazard.hurts == "kernel"}
    assert kinds == {"table"}


def test_the_page_shows_the_list(repository: Path) -> None:
    page = (repository / "docs/preflight.md").read_text()
    assert table() in page
    assert page == with_table(page), "run `make capture-docs`"
