# SPDX-License-Identifier: GPL-2.0-only
"""Processes as targets: real ones, in every state that must be told apart."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.process.find_process import find_by_name
from tlstax.collectors.process.mappings import open_mapped, read_maps
from tlstax.collectors.process.target import Target, no_program, open_target, require_64_bit

Compile = Callable[..., Path]
WAITING = """
#include <stdio.h>
int main(void) { puts("ready"); fflush(stdout); while (getchar() != EOF) {} return 0; }
"""


@contextmanager
def running(command: list[str | Path]) -> Iterator[int]:
    """Run a program that says "ready" and then waits for the end of its input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid


def refusal(pid: int) -> TlstaxError:
    with pytest.raises(TlstaxError) as caught:
        open_target(pid)
    assert caught.value.exit_code is ExitCode.TARGET
    assert str(pid) in caught.value.what
    return caught.value


def test_a_process_with_tls(tls_process: Target, libraries: dict[str, Path]) -> None:
    assert tls_process.program.path == os.readlink(f"/proc/{tls_process.pid}/exe")
    assert [entry.name for entry in tls_process.tls_objects] == [libraries["libssl"].name]
    for entry in tls_process.objects:
        with Elf(entry.open_path) as elf:
            assert elf.build_id == entry.build_id
        for segment in entry.segments:
            assert segment.start < segment.end
            assert segment.file_offset % 4096 == 0


def test_what_is_no_target(spawn: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    assert "no such process" in refusal((1 << 22) - 1).why
    for nobody in (0, -1):
        assert "above 0" in refusal(nobody).why
    child = spawn([sys.executable, "-c", ""])
    stat = Path(f"/proc/{child.pid}/stat")
    while ") Z " not in stat.read_text():
        time.sleep(0.01)
    assert "has ended" in refusal(child.pid).why
    child.wait()


@pytest.mark.root
def test_a_kernel_thread_is_no_target() -> None:
    assert refusal(2).why == no_program("kthreadd")
    assert "kernel thread" in refusal(2).why


@pytest.mark.root
def test_a_process_of_another_user_is_no_target() -> None:
    own = os.getpid()

    def as_nobody() -> str:
        os.setuid(65534)
        with pytest.raises(TlstaxError) as caught:
            open_target(own)
        return caught.value.why

    assert "another user" in run_in_child("Test", as_nobody)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\x01\x01" + bytes(12) + b"\x03\x00")
    with pytest.raises(TlstaxError, match="32-bit process"):
        require_64_bit(7, program)
    program.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + b"\x16\x00")
    with pytest.raises(TlstaxError, match="not for x86-64 or arm64"):
        require_64_bit(7, program)


@pytest.mark.root
def test_a_deleted_and_a_replaced_program_are_still_read(compile_c: Compile) -> None:
    program = compile_c(WAITING, "-Wl,--build-id=0x1111111111111111")
    other = compile_c(WAITING, "-Wl,--build-id=0x2222222222222222", name="other")
    with running([program]) as pid:
        program.unlink()
        target = open_target(pid)
        assert target.program.deleted
        assert target.program.build_id == "11" * 8
        other.rename(program)
        assert open_target(pid).program.build_id == "11" * 8
        with Elf(open_target(pid).program.open_path) as elf:
            assert elf.build_id == "11" * 8


@pytest.mark.root
def test_a_program_in_a_chroot(compile_c: Compile, tmp_path: Path) -> None:
    program = compile_c(WAITING, "-static", "-Wl,--build-id=0x3333333333333333")
    with running(["chroot", tmp_path, f"/{program.name}"]) as pid:
        target = open_target(pid)
        assert target.program.build_id == "33" * 8
        assert target.program.open_path
        assert target.exe == target.program.path == f"/{program.name}", "as the process sees it"
        assert target.own_pid == pid


@pytest.mark.root
def test_a_program_that_only_its_own_mount_namespace_has(
    compile_c: Compile, tmp_path: Path
) -> None:
    program = compile_c(WAITING, "-static", "-Wl,--build-id=0x4444444444444444")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = f"mount -t tmpfs none {hidden} && cp {program} {hidden}/p && exec {hidden}/p"
    with running(["unshare", "--mount", "sh", "-c", script]) as pid:
        assert not (hidden / "p").exists()
        assert open_target(pid).program.build_id == "44" * 8


@pytest.mark.root
def test_a_process_with_another_pid_in_its_own_namespace(compile_c: Compile) -> None:
    program = compile_c(WAITING)
    with running(["unshare", "--pid", "--fork", "--kill-child", program]) as outer:
        (pid,) = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        target = open_target(int(pid))
        assert (target.pid, target.own_pid) == (int(pid), 1)


def test_a_file_that_took_the_place_of_the_mapped_one_is_refused(compile_c: Compile) -> None:
    program = compile_c(WAITING)
    other = compile_c(WAITING, name="other")
    with running([program]) as pid:
        mapped = open_target(pid).program
        os.close(open_mapped(mapped))
        other.rename(program)
        with pytest.raises(TlstaxError, match="replaced after the process was examined"):
            open_mapped(mapped)


@pytest.mark.parametrize(
    ("stat", "status"),
    [
        ("", "Tgid:\t17\n"),
        ("17 (mysqld) S 1", "Tgid:\t17\n"),
        ("17 (mysqld) S" + " ²" * 40, "Tgid:\t17\n"),
        ("17 (mysqld) S" + " 1" * 40, "Name:\tmysqld\n"),
        ("17 (mysqld) S" + " 1" * 40, "Tgid:\tx\n"),
        ("17 (mysqld) S" + " 1" * 40, "Tgid:\t17\nNSpid:\n"),
        ("17 (mysqld) S" + " 1" * 40, "Tgid:\t" + "9" * 5000 + "\n"),
    ],
)
def test_texts_that_linux_does_not_write_are_refused(
    stat: str, status: str, tmp_path: Path
) -> None:
    """Those of another host are what that host sends."""
    (tmp_path / "17").mkdir()
    (tmp_path / "17/stat").write_text(stat)
    (tmp_path / "17/status").write_text(status)
    with pytest.raises(TlstaxError, match="not as Linux writes them") as refused:
        open_target(17, tmp_path)
    assert refused.value.exit_code == ExitCode.TARGET


def test_names(compile_c: Compile) -> None:
    program = compile_c(WAITING, name="tlstax-test-it")
    with pytest.raises(TlstaxError, match="No process is called"):
        find_by_name(program.name)
    with running([program, "of two\nlines"]) as first:
        assert find_by_name(program.name) == first
        with running([program]) as second, pytest.raises(TlstaxError) as caught:
            find_by_name(program.name)
        assert "2 processes" in caught.value.what
        assert f"{first} (" in caught.value.why
        assert caught.value.why.isprintable()
        assert f"{second} (" in caught.value.why
        assert caught.value.exit_code is ExitCode.TARGET


def test_maps_with_strange_names() -> None:
    lines = [
        "7f0000000000-7f0000001000 r-xp 00001000 08:01 42 /tmp/with space\x85\u2028(deleted)",
        "7f0000001000-7f0000002000 r--p 00002000 08:01 42 /tmp/not executable",
        "7f0000002000-7f0000003000 r-xp 00000000 00:00 0 [vdso]",
        "nonsense",
        "",
    ]
    (entry,) = read_maps(1 << 22, "\n".join(lines))
    assert entry.path == "/tmp/with space\x85\u2028(deleted)"
    assert entry.open_path == ""
    assert entry.segments[0].file_offset == 0x1000
