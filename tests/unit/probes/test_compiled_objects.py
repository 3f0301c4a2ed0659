# SPDX-License-Identifier: GPL-2.0-only
"""Which compiled BPF programs are taken on which machine; none of another one."""

import os
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host import engine_trial
from tlstax.collectors.host.settings import LackError
from tlstax.probes import objects
from tlstax.probes.objects import object_paths

NAMES = ["functions.bpf.o", "ledger.bpf.o", "ledger_guarded.bpf.o"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel's folder with the objects of both machines."""
    for below in (tmp_path, tmp_path / "arm64"):
        below.mkdir(exist_ok=True)
        for name in NAMES:
            (below / name).write_bytes(b"")
            (below / f"{name}.gz").write_bytes(b"")
    monkeypatch.setattr(objects, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("machine", "below"), [("x86_64", "."), ("aarch64", "arm64")])
def test_the_machine_chooses_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str, below: str
) -> None:
    expected = {name: folder / below / name for name in NAMES}
    assert object_paths(machine) == expected
    host = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*host[:4], machine)))
    assert object_paths() == expected


@pytest.mark.parametrize(
    ("machine", "why"), [("aarch64", "not built"), ("riscv64", "for x86_64 and aarch64")]
)
def test_those_of_another_machine_are_no_substitute(folder: Path, machine: str, why: str) -> None:
    for path in (folder / "arm64").iterdir():
        path.unlink()
    with pytest.raises(TlstaxError, match=f"for {machine} are missing: .*{why}") as raised:
        object_paths(machine)
    assert raised.value.exit_code == ExitCode.HOST


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_doctor_loads_those_of_its_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """All but the one that only newer kernels take; none is a lack in words."""
    loaded: list[str] = []
    host = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*host[:4], machine)))
    monkeypatch.setattr(engine_trial, "open_library", lambda: None)
    monkeypatch.setattr(engine_trial, "_load", lambda _library, path: loaded.append(path))
    said = engine_trial.engine_object()
    assert said == "the verifier took functions.bpf.o, ledger.bpf.o"
    paths = object_paths(machine)
    assert loaded == [str(paths[name]) for name in NAMES[:2]]
    for path in paths.values():
        path.unlink()
    with pytest.raises(LackError, match=f"for {machine} are missing: they were not built"):
        engine_trial.engine_object()
