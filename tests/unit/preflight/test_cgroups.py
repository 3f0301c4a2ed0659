# SPDX-License-Identifier: GPL-2.0-only
"""Cgroups of both versions, as directories made by hand."""

from pathlib import Path

import pytest

from tlstax.collectors.preflight import cgroups

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """An empty /proc with a process 17."""
    place = tmp_path / "proc"
    for name in ("self", "17"):
        (place / name).mkdir(parents=True)
    return place


def mounted(proc: Path, kind: str, options: str, group: str, root: str = "/") -> Path:
    """The directory of process 17's group below a mount."""
    top = proc.parent / "cgroup"
    line = f"30 20 0:26 {root} /cgroup rw,nosuid - {kind} cgroup rw,{options}"
    (proc / "self/mountinfo").write_text(line + "\n")
    controller = options if kind == "cgroup" else ""
    (proc / "17/cgroup").write_text(f"5:{controller}:{group}\n")
    place = top / group.removeprefix(root).lstrip("/")
    place.mkdir(parents=True)
    return place


@pytest.mark.parametrize(("state", "frozen"), [("FROZEN", True), ("FREEZING", True)])
def test_v1_frozen(proc: Path, state: str, frozen: bool) -> None:
    place = mounted(proc, "cgroup", "freezer", "/db")
    (place / "freezer.state").write_text(f"{state}\n")
    assert cgroups.is_frozen(17, proc) is frozen


def test_v1_thawed(proc: Path) -> None:
    place = mounted(proc, "cgroup", "freezer", "/db")
    (place / "freezer.state").write_text("THAWED\n")
    assert cgroups.is_frozen(17, proc) is False


@pytest.mark.parametrize("frozen", [False, True])
def test_v2(proc: Path, frozen: bool) -> None:
    place = mounted(proc, "cgroup2", "nsdelegate", "/system.slice/db.service")
    (place / "cgroup.events").write_text(f"populated 1\nfrozen {int(frozen)}\n")
    assert cgroups.is_frozen(17, proc) is frozen


def test_the_top_group_is_never_frozen(proc: Path) -> None:
    mounted(proc, "cgroup2", "nsdelegate", "/")
    assert cgroups.is_frozen(17, proc) is False


def test_a_hidden_group_is_unknown(proc: Path) -> None:
    (proc / "self/mountinfo").write_text("")
    (proc / "17/cgroup").write_text("0::/db\n")
    assert cgroups.is_frozen(17, proc) is None
    assert cgroups.memory_left_bytes(17, proc) is None


def test_a_mount_of_a_part_of_the_hierarchy(proc: Path) -> None:
    place = mounted(proc, "cgroup", "freezer", "/docker/1234/db", root="/docker/1234")
    (place / "freezer.state").write_text("FROZEN\n")
    assert place.name == "db"
    assert cgroups.is_frozen(17, proc) is True


def limit(place: Path, limit_bytes: object, usage_bytes: int, cache_bytes: int = 0) -> None:
    (place / "memory.max").write_text(f"{limit_bytes}\n")
    (place / "memory.current").write_text(f"{usage_bytes}\n")
    (place / "memory.stat").write_text(f"anon 1\ninactive_file {cache_bytes}\nactive_file 0\n")


@pytest.mark.parametrize("text", ["²", "1 2", "", "-1", "\udcff"])
@pytest.mark.parametrize("name", ["memory.max", "memory.current", "memory.stat"])
def test_texts_of_another_host_that_are_no_numbers(proc: Path, name: str, text: str) -> None:
    """Preflight of that host ended, and said that memory might be short here."""
    place = mounted(proc, "cgroup2", "nsdelegate", "/db")
    limit(place, 100 * MIB, 60 * MIB)
    (place / name).write_text(f"active_file {text}" if name == "memory.stat" else text,
                              errors="surrogateescape")  # fmt: skip
    left = cgroups.memory_left_bytes(17, proc)
    assert left == (40 * MIB if name == "memory.stat" else None)


@pytest.mark.parametrize("line", ["", "5", "5:cpu", "5:cpu:", "5:\udcff:/db:x"])
@pytest.mark.parametrize("mount", ["", "-", "1 2 3 4 5 - ", "1 2 3 4 5 6", "1 2 - 3 4 5 6 7"])
def test_lines_of_another_host_that_linux_does_not_write(proc: Path, line: str, mount: str) -> None:
    place = mounted(proc, "cgroup2", "nsdelegate", "/db")
    (place / "cgroup.events").write_text("frozen 1\n")
    for name, strange in (("17/cgroup", line), ("self/mountinfo", mount)):
        known = (proc / name).read_text()
        (proc / name).write_text(f"{strange}\n{known}", errors="surrogateescape")
    (proc / "17/cgroup").write_text((proc / "17/cgroup").read_text(errors="replace") + "0::/db\n")
    assert cgroups.is_frozen(17, proc) is True


def test_the_tightest_limit_counts_and_the_page_cache_does_not(proc: Path) -> None:
    place = mounted(proc, "cgroup2", "nsdelegate", "/system.slice/db.service")
    limit(place, 100 * MIB, 99 * MIB, cache_bytes=40 * MIB)
    assert cgroups.memory_left_bytes(17, proc) == 41 * MIB
    limit(place.parent, 500 * MIB, 497 * MIB)
    assert cgroups.memory_left_bytes(17, proc) == 3 * MIB


def test_no_limit(proc: Path) -> None:
    place = mounted(proc, "cgroup2", "nsdelegate", "/system.slice/db.service")
    limit(place, "max", 99 * MIB)
    assert cgroups.memory_left_bytes(17, proc) is None


def test_v1_memory(proc: Path) -> None:
    place = mounted(proc, "cgroup", "memory", "/db")
    (place / "memory.limit_in_bytes").write_text(str(64 * MIB))
    (place / "memory.usage_in_bytes").write_text(str(60 * MIB))
    (place / "memory.stat").write_text("inactive_file 9\ntotal_inactive_file 1048576\n")
    assert cgroups.memory_left_bytes(17, proc) == 5 * MIB
    (place / "memory.limit_in_bytes").write_text("9223372036854771712")
    assert cgroups.memory_left_bytes(17, proc) is None
