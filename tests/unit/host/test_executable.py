# SPDX-License-Identifier: GPL-2.0-only
"""Which executable is taken for which machine, and `tlstax recorder`."""

import hashlib
import os
import platform
import resource
import subprocess
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.host import executable
from tlstax.collectors.host.executable import machine_of, recorder_path

X86, ARM = 62, 183  # e_machine


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0" + machine.to_bytes(2, "little") + b"code"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel's folder with both executables, and a file that is none."""
    built = tmp_path / "bin"
    built.mkdir()
    (built / "tlstax-recorder").write_bytes(elf(X86))
    (built / "tlstax-recorder.aarch64").write_bytes(elf(ARM))
    (built / "tlstax-recorder.txt").write_bytes(b"not one")
    monkeypatch.setattr(executable, "FOLDER", built)
    return built


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_header_tells_the_machine(folder: Path, tmp_path: Path, machine: str) -> None:
    path = tmp_path / "written"
    assert main(["recorder", "--arch", machine, "--output", str(path)]) == 0
    assert machine_of(path) == machine
    assert path.stat().st_mode & 0o777 == 0o755


def test_names_of_other_systems_are_known(folder: Path) -> None:
    assert recorder_path("arm64") == recorder_path("aarch64") == folder / "tlstax-recorder.aarch64"
    assert recorder_path("AMD64") == recorder_path("x86_64") == folder / "tlstax-recorder"


def test_a_machine_without_one_is_one_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tlstax-recorder.aarch64").unlink()
    path = tmp_path / "written"
    assert main(["recorder", "--arch", "aarch64", "--output", str(path)]) == ExitCode.HOST
    (line,) = capsys.readouterr().err.splitlines()
    assert "for aarch64 is missing" in line
    assert "there is one for x86_64" in line
    assert not path.exists()
    with pytest.raises(TlstaxError, match="riscv64"):
        recorder_path("riscv64")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree whose executable for aarch64 was built before a source was changed."""
    root = tmp_path / "checkout"
    built = root / "collectors/recorder/bin"
    changed_s = {"collectors/recorder/plan.c": 100, "probes/bpf/ledger.h": 300, "Makefile": 500}
    changed_s |= {f"{built}/tlstax-recorder": 400, f"{built}/tlstax-recorder.aarch64": 200}
    for name, at_s in changed_s.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(elf(ARM if "aarch64" in name else X86))
        os.utime(path, (at_s, at_s))
    (root / "collectors/recorder/.#plan.c").symlink_to("an editor's lock")
    monkeypatch.setattr(executable, "FOLDER", built)
    return root


@pytest.mark.parametrize(("machine", "is_old"), [("x86_64", False), ("aarch64", True)])
def test_one_that_was_built_before_its_sources_is_named(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str, is_old: bool
) -> None:
    """`make recorder` builds that of this host; the other one stays as it was."""
    command = ["recorder", "--force", "--arch", machine, "--output", str(tmp_path / "written")]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert ("written is older than ledger.h, from which it is built" in said) == is_old
    assert (f"run `make recorder ARCH={machine}`" in said) == is_old
    (checkout / "Makefile").unlink()
    assert main(command) == 0
    assert "older" not in capsys.readouterr().err, "files of a wheel have no times of their own"


def test_the_printed_sum_is_that_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recorder"
    assert main(["recorder", "--output", str(path)]) == 0
    said = capsys.readouterr().err
    assert f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n" in said
    assert f"for {platform.machine()}" in said
    assert subprocess.run([path, "--version"], check=False).returncode == 0


def test_an_earlier_file_stays_whole_when_there_is_no_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recorder"
    path.write_bytes(b"earlier")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        assert main(["recorder", "--force", "--output", str(path)]) == ExitCode.IO
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in capsys.readouterr().err
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main(["recorder", "--force", "--output", str(pipe)]) == ExitCode.IO
    assert "it is there and is no file" in capsys.readouterr().err
    assert pipe.is_fifo()


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_bytes(b"other")
    link.symlink_to(other)
    assert main(["recorder", "--force", "--output", str(link)]) == 0
    assert other.read_bytes() == b"other"
    assert not link.is_symlink()
