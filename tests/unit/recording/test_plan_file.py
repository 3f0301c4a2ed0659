# SPDX-License-Identifier: GPL-2.0-only
"""Plan files: what is written is read back, by Python and by the recorder, and nothing else."""

import json
import platform
import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.placement.function_sites import plan_functions
from tlstax.collectors.placement.model import FunctionPlan, Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.preflight.safety import Note, Safety
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.programs.site_cookies import cookie_of
from tlstax.collectors.recording.stream.function_points import cookie
from tlstax.collectors.recording.stream.plan_file import (
    PlanFileError,
    plan_file_text,
    read_plan_file,
)
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import Level
from tlstax.tests.unit.recording.plan_mutants import plan_mutants

USAGE, TARGET = 2, 4
NOBODY = "1073741823"  # more than the kernel's most pids
SAFETY = Safety(notes=(Note("made-up", "A note.\nWith two lines."),), guarded=True)
Refusal = Callable[[str], str]


@pytest.fixture(scope="module")
def functions(tls_target: Target) -> FunctionPlan:
    return plan_functions(tls_target, load_definitions(), ("cipher", "digest", "rng"))


@pytest.fixture(scope="module")
def text(tls_target: Target, tls_plan: Plan, functions: FunctionPlan) -> str:
    return plan_file_text(tls_target, tls_plan, SAFETY, functions)


@pytest.fixture
def refusal(tmp_path: Path) -> Refusal:
    """Why the recorder refuses a text; "" if it takes it (and then finds no such process)."""

    def run(text: str) -> str:
        path = tmp_path / "x.plan"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        done = subprocess.run(
            [recorder_path(), "--plan", path, "--pid", NOBODY],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,
        )
        if done.returncode == TARGET:
            assert "no such process" in done.stderr
            return ""
        assert done.returncode == USAGE, done.stderr
        return done.stderr

    return run


def test_what_is_written_is_read(text: str, tls_plan: Plan, tls_target: Target) -> None:
    read = read_plan_file(text)
    assert read.exe == tls_target.exe
    assert read.safety == replace(SAFETY, limits=read.safety.limits)
    assert len(read.plan.sites) == len(tls_plan.sites) > 10
    for number, (site, other) in enumerate(zip(tls_plan.sites, read.plan.sites, strict=True)):
        assert replace(other, object=site.object) == site
        assert (other.object.path, other.object.build_id) == (
            site.object.path,
            site.object.build_id,
        )
        assert cookie_of(number, other) == cookie_of(number, site)
    for name in ("missing", "accessors", "role", "notes", "host_costs", "gaps", "level"):
        assert getattr(read.plan, name) == getattr(tls_plan, name)
    assert [each.id for each in read.plan.libraries] == [each.id for each in tls_plan.libraries]


def test_functions_that_are_written_are_read(text: str, functions: FunctionPlan) -> None:
    read = read_plan_file(text).functions
    assert read is not None
    assert (read.asked, read.absent) == (("cipher", "digest", "rng"), functions.absent)
    assert len(read.functions) == len(functions.functions) > 2
    for number, (probed, other) in enumerate(zip(functions.functions, read.functions, strict=True)):
        assert other.primitive == probed.primitive
        assert (other.function, other.why_not_timed) == (probed.function, probed.why_not_timed)
        assert other.object.build_id == probed.object.build_id
        for site, same in zip(probed.sites, other.sites, strict=True):
            assert cookie(number, other, same) == cookie(number, probed, site)
            assert same.file_offset == site.file_offset
    timed = [not one.why_not_timed for one in functions.functions]
    assert text.count("\npoint ") == sum(len(one.sites) for one in functions.functions)
    assert text.count(" exit=none ") == timed.count(False)


def test_a_plan_without_functions_has_none(tls_target: Target, tls_plan: Plan) -> None:
    text = plan_file_text(tls_target, tls_plan, SAFETY)
    assert read_plan_file(text).functions is None
    assert "function" not in [line.partition(" ")[0] for line in text.splitlines()]


def test_the_probes_of_stretches_are_read(
    tls_target: Target, tls_plan: Plan, refusal: Refusal
) -> None:
    flow = plan(tls_target, load_definitions(), Level.FLOW)
    text = plan_file_text(tls_target, flow, SAFETY, stretches=tls_plan)
    read = read_plan_file(text)
    assert read.plan.level == Level.FLOW
    assert [site.file_offset for site in read.plan.sites] == [
        site.file_offset for site in flow.sites
    ]
    assert read.as_recorded("flow").plan.level == Level.FLOW
    chosen = read.as_recorded("record").plan
    assert (chosen.level, chosen.gaps, chosen.notes) == (
        Level.RECORD, tls_plan.gaps, tls_plan.notes
    )  # fmt: skip
    assert [(site.file_offset, site.action) for site in chosen.sites] == [
        (site.file_offset, site.action) for site in tls_plan.sites
    ]
    assert refusal(text) == ""
    assert "not numbered from 0" in refusal(text.replace("stretch-site 1 ", "stretch-site 2 ", 1))
    with pytest.raises(PlanFileError, match="site"):
        read_plan_file(text.replace("stretch-site 1 ", "stretch-site 2 ", 1))


def test_stretches_need_their_sites(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    path.write_text(text)
    done = subprocess.run(
        [recorder_path(), "--plan", path, "--pid", NOBODY, "--calibrate", "2s"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == USAGE
    assert "--calibrate needs a plan of level flow" in done.stderr


def test_no_budget_is_kept_where_functions_are_counted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    path.write_text(text)
    for more in (["--budget", "1%"], ["--level", "handshake"]):
        done = subprocess.run(
            [recorder_path(), "--plan", path, "--pid", NOBODY, *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == USAGE
        assert "the plan counts functions" in done.stderr


def test_a_dba_can_read_what_is_probed(text: str, tls_plan: Plan) -> None:
    for number, site in enumerate(tls_plan.sites):
        (line,) = (line for line in text.splitlines() if line.startswith(f"site {number} "))
        assert f"offset={site.file_offset:#x} event={site.event}" in line
        assert f'"function":"{site.function}"' in line
        assert f'"reason":"{site.reason}"' in line


def test_the_recorder_takes_it(text: str, refusal: Refusal) -> None:
    assert refusal(text) == ""


def test_a_cut_plan_is_refused(text: str, refusal: Refusal) -> None:
    lines = text.splitlines(keepends=True)
    for count in random.Random(1).sample(range(len(lines)), 25):
        for cut in ("".join(lines[:count]), "".join(lines[:count]) + lines[count][:-9]):
            with pytest.raises(PlanFileError):
                read_plan_file(cut)
            assert "refused" in refusal(cut)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("tlstax-plan 6\n", "tlstax-plan 7\n", "format is version 7"),
        ("tlstax-plan 6\n", "", "not a plan file"),
        ("architecture x86_64", "architecture aarch64", "it is for aarch64, this host is"),
        ("level record", "level all", "not one of its values"),
        ("level record", "level record\nlevel record", "given twice"),
        ("level record\n", "", "lines are missing"),
        ("role server", "rule server", "unknown"),
        ("accessor ssl_version ", "accessor ssl_password ", "does not know"),
        ("site 1 file=", "site 2 file=", "not numbered from 0"),
        ("site 1 file=", "site 1 file=9", "does not list"),
        ("event=enter", "event=entry", "not the event"),
        ("cookie=0x", "cookie=0xf0000000000000000", "cookie is not"),
        (" price-ns=", " price-ns=-", "no price"),
        (" bytes=", " bytes=zz", "no bytes"),
        ("build-id=", "build-id=xyz", "not a build-id"),
        ("\nend ", "\nend 1", "lines are missing"),
        ("\nfunction 0 ", "\nfunction 1 ", "functions are not numbered"),
        (" entry=", " entry=un", "not the entry"),
        (" exit=none {", " exit=some {", "not the exit"),
        (" exit=none {", " exit=none [{", "no description of the function"),
        ("\npoint 1 ", "\npoint 2 ", "probes of functions are not numbered"),
        (" function=0 ", " function=62 ", "a function that the plan does not list"),
        (" function=1 ", " function=0 ", "not that of this function"),
    ],
)
def test_a_changed_plan_is_refused_by_name(
    text: str, refusal: Refusal, old: str, new: str, why: str
) -> None:
    assert old in text
    assert why in refusal(text.replace(old, new, 1))


def test_a_plan_of_another_kernel_needs_a_word(text: str, refusal: Refusal) -> None:
    (kernel,) = (line for line in text.splitlines() if line.startswith("kernel "))
    said = refusal(text.replace(kernel, "kernel 5.14.0-1.el9"))
    assert "judged on Linux 5.14.0-1.el9" in said
    assert "--any-kernel" in said


def test_the_seed_of_the_fuzzer_is_a_plan_of_today(repository: Path, refusal: Refusal) -> None:
    """Else `make test-recorder-sanitizers` changes a text that the reader leaves at once."""
    text = (repository / "tests/recorder/seed.plan").read_text()
    sites = {line.partition(" ")[0] for line in text.splitlines()}
    assert sites >= {"site", "stretch-site", "function", "point", "file", "accessor"}
    assert read_plan_file(text).plan.sites
    here = re.sub(r"^kernel .*$", f"kernel {platform.release()}", text, flags=re.MULTILINE)
    assert refusal(here) == ""


def test_words_and_description_of_a_site_agree(text: str) -> None:
    for old, new in (("event=enter", "event=exit"), ("from=handshake", "from=connection"),
                     ("\npoint 0 ", "\npoint 9 "), (" exit=none ", " exit=return ")):  # fmt: skip
        with pytest.raises(PlanFileError, match=r"site|function"):
            read_plan_file(text.replace(old, new, 1))


def test_flipped_bytes_end_neither_reader(text: str, refusal: Refusal) -> None:
    chance = random.Random(7)
    raw = text.encode()
    for _ in range(60):
        place = chance.randrange(len(raw))
        flipped = bytearray(raw)
        flipped[place] ^= 1 << chance.randrange(8)
        mutant = bytes(flipped).decode("utf-8", "surrogateescape")
        refusal(mutant)  # fails if the recorder ends in another way
        try:
            read_plan_file(mutant)
        except PlanFileError:
            continue


def test_a_made_up_description_is_refused_or_read(text: str) -> None:
    """Whoever sends a stream chooses its plan: `tlstax import` must not end in a traceback."""
    refused = 0
    for what, mutant in plan_mutants(text, seed=11, count=80):
        try:
            read_plan_file(mutant)
        except PlanFileError:
            refused += 1
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"{what}: {type(error).__name__}: {error}")
    assert refused > 20


@pytest.mark.parametrize(
    ("about", "new", "why"),
    [("exe", '""', "none of the files"), ("functions", '{"asked":[[]],"absent":[]}', "no names")],
)
def test_what_is_said_about_a_plan_is_checked(text: str, about: str, new: str, why: str) -> None:
    (known,) = (each for each in text.splitlines() if each.startswith(f"about {about} "))
    with pytest.raises(PlanFileError, match=why):
        read_plan_file(text.replace(known, f"about {about} {new}"))


@pytest.mark.parametrize(
    ("line", "change", "why"),
    [
        ("function 0 ", {"sites": []}, "has no entry"),
        ("site 0 ", {"cost_ns": 1e400}, "inf is no number"),
    ],
)
def test_descriptions_that_no_planner_makes(
    text: str, line: str, change: dict[str, object], why: str
) -> None:
    (known,) = (each for each in text.splitlines() if each.startswith(line))
    words, brace, rest = known.partition("{")
    changed = json.dumps(json.loads(brace + rest) | change, separators=(",", ":"))
    with pytest.raises(PlanFileError, match=why):
        read_plan_file(text.replace(known, words + changed))


def test_registers_of_both_architectures(functions: FunctionPlan) -> None:
    """COOKIE_REGISTER of functions.h: their places in arch.h."""
    probed = functions.functions[0]
    for register, place in (("r15", 0), ("rdi", 14), ("x0", 0), ("x2", 2), ("x19", 8)):
        site = replace(probed.sites[0], register=register)
        assert cookie(0, probed, site) >> 48 == place
