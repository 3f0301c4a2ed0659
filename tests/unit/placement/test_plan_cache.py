# SPDX-License-Identifier: GPL-2.0-only
"""Plans between runs: equal to planning again, for another process of the same files, or unused."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.host.probe_costs.prices import HostCosts
from tlstax.collectors.placement import plan_cache
from tlstax.collectors.placement.model import NO_LIMITS, Limits, Missing, Plan, RoleMark
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.placement.plan_cache import keep_plan, kept_plan, key_of
from tlstax.collectors.process.target import Target, open_target
from tlstax.probes.definitions import definition_files, load_definitions
from tlstax.probes.model import Level

CONTENTS = [content for _, content in definition_files()]


@pytest.fixture
def targets(repository: Path, spawn: Callable[..., Any]) -> tuple[Target, Target]:
    """Two processes of one program."""
    program = repository / "tests/testprogs/bin/crowd"
    return open_target(_ready(spawn, program)), open_target(_ready(spawn, program))


def _ready(spawn: Callable[..., Any], program: Path) -> int:
    process = spawn([program], stdin=-1, stdout=-1, bufsize=0)
    process.stdout.readline()
    return int(process.pid)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tlstax" / plan_cache.FOLDER


def planned(target: Target) -> Plan:
    """A plan with an address and a note in it, which this small program's has not."""
    made = plan(target, load_definitions())
    segment = target.program.segments[0]
    marks = (RoleMark("main", ("a*",), ((segment.start + 16, segment.start + 48),), True),)
    return replace(made, role_marks=marks)


def key(target: Target, limits: Limits = NO_LIMITS, level: Level = Level.RECORD) -> str:
    return key_of(target, CONTENTS, level, "server", HostCosts(), limits)


def test_a_kept_plan_is_the_plan_of_another_process(
    targets: tuple[Target, Target], cache: Path
) -> None:
    first, second = targets
    keep_plan(key(first), first, planned(first))
    assert key(second) == key(first)
    assert kept_plan(key(second), second) == planned(second)
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_a_plan_depends_on_is_in_its_key(
    targets: tuple[Target, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _ = targets
    other_build = replace(target.objects[0], build_id="00" * 20)
    changed = replace(target, objects=(other_build, *target.objects[1:]))
    costs = replace(HostCosts(), measured=True)
    keys = {
        key(target),
        key(changed),
        key(target, limits=Limits(stepped=False)),
        key(target, level=Level.HANDSHAKE),
        key_of(target, CONTENTS[1:], Level.RECORD, "server", HostCosts(), NO_LIMITS),
        key_of(target, CONTENTS, Level.RECORD, "client", HostCosts(), NO_LIMITS),
        key_of(target, CONTENTS, Level.RECORD, "server", costs, NO_LIMITS),
        key(replace(target, proc=Path("/elsewhere/proc"))),
    }
    assert len(keys) == 8, "that of files which another host sent is another, too"
    with monkeypatch.context() as patched:
        patched.setattr(plan_cache, "may_read_memory", lambda _target: False)
        assert key(target) not in keys, "a plan without roles of threads says why"
    monkeypatch.setattr(plan_cache, "_code", lambda: iter(["another version"]))
    assert key(target) not in keys


def test_a_file_without_a_build_id_is_told_by_its_inode_and_time(
    targets: tuple[Target, Target], tmp_path: Path
) -> None:
    target, _ = targets
    file = tmp_path / "library"
    file.write_bytes(b"1")
    unnamed = replace(target.objects[0], build_id="", open_path=str(file))
    target = replace(target, objects=(unnamed, *target.objects[1:]))
    before = key(target)
    assert key(target) == before
    file.write_bytes(b"22")
    assert key(target) != before


def test_all_code_that_plans_is_in_the_key(repository: Path) -> None:
    """Also that of rooms within rooms, such as prices, by which alternatives are chosen."""
    named = len(list(plan_cache._code()))
    rooms = ("binary", "host", "host/probe_costs", "placement", "process")
    files = [path for room in rooms for path in (repository / "collectors" / room).glob("*.py")]
    assert named == len(files) + len(list((repository / "probes").rglob("*.py"))) + 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda _: "{}",
        lambda _: "[" * 100_000,
        lambda text: text[:-9],
        lambda text: text.replace('"sites":[', '"sites":[7,'),
        lambda text: re.sub(r'"object":\d+', '"object":-1', text),
        lambda text: re.sub(r'"object":\d+', '"object":999', text),
        lambda text: re.sub(r'"file_offset":\d+', '"file_offset":"x"', text),
        lambda text: text.replace('"spans":[[', '"spans":[[-1,0,0],['),
        lambda text: json.dumps({**json.loads(text), "more": 1}),
    ],
)
def test_a_damaged_plan_is_not_used(
    targets: tuple[Target, Target], cache: Path, damage: Callable[[str], str]
) -> None:
    target, _ = targets
    keep_plan(key(target), target, planned(target))
    (file,) = cache.iterdir()
    file.write_text(damage(file.read_text()))
    assert kept_plan(key(target), target) is None


def test_what_is_of_one_process_alone_is_not_kept(
    targets: tuple[Target, Target], cache: Path
) -> None:
    target, _ = targets
    note = Missing("x", (), "", f"/proc/{target.pid}/exe has no names")
    keep_plan(key(target), target, replace(planned(target), gaps=(note,)))
    outside = (RoleMark("main", (), ((1, 2),)),)
    keep_plan(key(target), target, replace(planned(target), role_marks=outside))
    assert not cache.exists()


def test_the_oldest_go(
    targets: tuple[Target, Target], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_cache, "PLANS_MOST", 2)
    target, _ = targets
    for name in ("a", "b", "c"):
        keep_plan(name, target, planned(target))
    assert {file.stem for file in cache.iterdir()} == {"b", "c"}
