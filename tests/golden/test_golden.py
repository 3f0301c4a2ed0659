# SPDX-License-Identifier: GPL-2.0-only
"""Saved inputs give the saved outputs; the taxonomy is complete and without contradiction."""

import subprocess
from pathlib import Path

import pytest

from tlstax.analysis.classify.taxonomy import Sample, builtin
from tlstax.collectors.capture.schema import Frame
from tlstax.collectors.capture.vocabulary import CATEGORIES, PHASES
from tlstax.tests.golden import render

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("stem", "source", "target"), render.pairs(), ids=lambda value: getattr(value, "name", value)
)
def test_the_output_is_as_recorded(stem: str, source: Path, target: Path) -> None:
    made = render.RENDERERS[stem](source.read_text(encoding="utf-8"))
    assert made == target.read_text(encoding="utf-8"), "see tests/golden/render.py --record"


def golden_samples() -> list[Sample]:
    return [
        render.parse_sample(line)
        for path in sorted((HERE / "taxonomy").glob("*.in"))
        for line in render.content(path.read_text(encoding="utf-8"))
    ]


def test_no_golden_stack_hits_two_categories() -> None:
    for sample in golden_samples():
        assert len({rule.category for rule in builtin().hits(sample)}) <= 1, sample


def test_every_rule_is_hit_by_a_golden_stack() -> None:
    hit = {rule.id for sample in golden_samples() for rule in builtin().hits(sample)}
    assert hit == {rule.id for rule in builtin().rules}


def test_every_category_is_reached() -> None:
    assert {builtin().category(sample) for sample in golden_samples()} == set(CATEGORIES)


def exported(path: Path) -> list[str]:
    """Names of the functions that an object exports."""
    output = subprocess.run(
        ["nm", "-D", "--demangle", "--defined-only", str(path)], capture_output=True, check=True
    ).stdout.decode()
    lines = (line.split(" ", 2) for line in output.splitlines())
    return [line[2].split("@")[0] for line in lines if len(line) == 3 and line[1] in "TtWi"]


@pytest.mark.parametrize(
    "path",
    [
        *Path("/usr/lib").glob("*/libcrypto.so.3"),
        *Path("/usr/lib").glob("*/libssl.so.3"),
        *Path("/usr/lib").glob("*/libc.so.6"),
        Path("/usr/sbin/mariadbd"),
    ],
    ids=lambda path: path.name,
)
def test_no_name_that_a_real_object_exports_is_contradicted(path: Path) -> None:
    names = exported(path)
    assert names
    for name in names:
        for phase, code in (("handshake", ""), ("record_write", ""), ("command", "bignum")):
            frame = Frame(1, str(path), "", 0, name, 0, "dynsym", code)
            hits = builtin().hits(Sample(phase, -1, (frame,), ()))
            assert len({rule.category for rule in hits}) <= 1, (name, code, hits)


def test_every_kernel_sample_has_a_category() -> None:
    for phase in PHASES:
        for syscall in range(-1, 460):
            for symbol in ("tcp_sendmsg", "uprobe_notify_resume", "schedule"):
                frame = Frame(1, "kernel", "", 0, symbol, 0, "kallsyms", "")
                hits = builtin().hits(Sample(phase, syscall, (), (frame,)))
                assert len({rule.category for rule in hits}) == 1
