# SPDX-License-Identifier: GPL-2.0-only
"""`make dist`: the same bytes from the same commit, and a wheel that needs no compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tlstax.collectors.host.executable import machine_of
from tlstax.probes import objects

PLACES = ("a", "another-place/with a space")  # paths of different lengths
SIZE_MOST = 2 << 20
NEEDED = ("clang", "bpftool", "git", "make")
OBJECTS = {"functions.bpf.o", "ledger.bpf.o", "ledger_guarded.bpf.o"}
# Names of fields of struct pt_regs, as BTF has them.
REGISTERS = {"x86_64": b"\0orig_ax\0", "aarch64": b"\0pstate\0"}
SYSROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tlstax-arm64/sysroot"
# Nothing is fetched for a test: without what `make dist` unpacks, this machine's recorder only.
CROSS = "aarch64" if shutil.which("ld.lld") and (SYSROOT / ".packages").exists() else ""
pytestmark = [
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in NEEDED), reason=f"needs {', '.join(NEEDED)}"
    )
]


def built(repository: Path, place: Path, umask: int) -> dict[str, bytes]:
    """What `.ci/dist` makes of a clone of the repository at `place`, by name."""
    tree = place / "tree"
    git = ["git", "-c", "safe.directory=*"]
    subprocess.run([*git, "clone", "-q", "--no-local", repository, tree], check=True)
    vendor = "analysis/report/html/assets/vendor"
    shutil.copytree(repository / vendor, tree / vendor)
    venv = Path(sys.executable).parents[1]
    done = subprocess.run(
        [tree / ".ci/dist", place / "out", venv],
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
        env={**os.environ, "TZ": "Asia/Tokyo" if umask else "UTC", "CROSS": CROSS},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for line in (place / "out/SHA256SUMS").read_text().splitlines():
        assert line in done.stdout.splitlines()
    return {path.name: path.read_bytes() for path in (place / "out").iterdir()}


@pytest.fixture(scope="module")
def twice(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("dist")
    return [
        built(repository, folder / place, umask)
        for place, umask in zip(PLACES, (0o022, 0o077), strict=True)
    ]


def test_two_builds_of_a_commit_have_the_same_bytes(twice: list[dict[str, bytes]]) -> None:
    """Else the SHA-256 in a line of sudoers belongs to one build only."""
    first, second = twice
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []
    machines = {name.rpartition(".")[2] for name in first if name.startswith("tlstax-recorder.")}
    assert machines == {"x86_64", CROSS or "x86_64"}


def test_recorders_are_small_static_and_named_by_their_machine(
    twice: list[dict[str, bytes]], tmp_path: Path
) -> None:
    for name, content in twice[0].items():
        if name.startswith("tlstax-recorder."):
            path = tmp_path / name
            path.write_bytes(content)
            assert machine_of(path) == name.rpartition(".")[2]
            assert len(content) <= SIZE_MOST
            said = subprocess.check_output(["file", path], text=True)
            assert "statically linked" in said


def test_the_wheel_holds_what_recording_needs(
    twice: list[dict[str, bytes]], tmp_path: Path
) -> None:
    """Executable recorders of each machine, BPF objects, no path of the build."""
    (name,) = (name for name in twice[0] if name.endswith(".whl"))
    assert name.endswith("-py3-none-any.whl")
    path = tmp_path / name
    path.write_bytes(twice[0][name])
    with zipfile.ZipFile(path) as archive:
        files = {info.filename: info for info in archive.infolist()}
        recorders = [name for name in files if name.startswith("tlstax/collectors/recorder/bin/")]
        contents = {archive.read(name) for name in recorders}
        assert all(files[name].external_attr >> 16 & 0o111 for name in recorders)
        assert all(info.external_attr >> 16 & 0o044 == 0o044 for info in files.values())
        for built_file in (*recorders, *(name for name in files if name.endswith(".bpf.o"))):
            assert b"/tree/" not in archive.read(built_file), built_file
    assert contents == {
        content for name, content in twice[0].items() if name.startswith("tlstax-recorder.")
    }


@pytest.mark.parametrize("machine", REGISTERS)
def test_the_wheel_has_the_objects_of_each_machine(
    twice: list[dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """Whatever the machine that it was built on: BPF needs no cross compiler."""
    (name,) = (name for name in twice[0] if name.endswith(".whl"))
    (tmp_path / name).write_bytes(twice[0][name])
    with zipfile.ZipFile(tmp_path / name) as archive:
        archive.extractall(tmp_path)
    monkeypatch.setattr(objects, "FOLDER", tmp_path / "tlstax/probes/bpf")
    found = objects.object_paths(machine)
    assert set(found) == OBJECTS
    for path in found.values():
        content = path.read_bytes()
        assert [one for one in REGISTERS if REGISTERS[one] in content] == [machine], path
