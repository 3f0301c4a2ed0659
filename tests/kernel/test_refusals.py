# SPDX-License-Identifier: GPL-2.0-only
"""Each thing that can be wrong gives one clear error, its exit status, and no traceback."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

HOST, TARGET, IO = 3, 4, 6
USAGE = 2
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
WITHOUT_BPF = ["setpriv", "--bounding-set", "-sys_admin,-bpf,-perfmon"]
ONE_SENTENCE = re.compile(r"tlstax: [^\n]+: [^\n]+\. [^\n]+\.\n")

Target = subprocess.Popen[bytes]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that anybody may write to; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o777)
        yield directory


def refused(command: list[str], status: int, *words: str) -> str:
    """Run a command that must fail with one error; the error."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert result.returncode == status, (result.returncode, result.stderr)
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines(keepends=True) if ": " in line]
    assert len(errors) == 1, result.stderr
    assert ONE_SENTENCE.fullmatch(errors[0]), result.stderr
    for word in words:
        assert word in errors[0], errors[0]
    return errors[0]


def attach(tlstax: list[str], pid: object, capture: Path, *more: str) -> list[str]:
    return [*tlstax, "attach", str(pid), "--for", "1s", "--quiet", "-o", str(capture), *more]


def test_wrong_pid(tlstax: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    refused(attach(tlstax, process.pid, tmp_path / "a"), TARGET, str(process.pid))
    assert not list(tmp_path.iterdir())


def test_a_name_that_nothing_has(tlstax: list[str], tmp_path: Path) -> None:
    command = [*tlstax, "attach", "--name", "no-such-server", "-o", str(tmp_path / "a")]
    refused(command, TARGET, "no-such-server")


def test_the_process_of_another_user(
    tlstax: list[str], target: Target, open_directory: Path
) -> None:
    command = NOBODY + attach(tlstax, target.pid, open_directory / "a")
    refused(command, TARGET, "another user")
    assert not list(open_directory.iterdir())


def test_a_thread_is_not_its_process(tlstax: list[str], tmp_path: Path) -> None:
    threaded = "import threading as t; t.Thread(target=input).start(); print('ready', flush=True)"
    command = [tlstax[0], "-c", threaded]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        threads = {int(entry.name) for entry in Path(f"/proc/{process.pid}/task").iterdir()}
        (other,) = threads - {process.pid}
        error = refused(attach(tlstax, other, tmp_path / "a"), TARGET, "thread of process")
        assert f"Pass the pid of the process: {process.pid}" in error
        process.kill()


def test_a_zombie(tlstax: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        while ") Z " not in Path(f"/proc/{process.pid}/stat").read_text():
            time.sleep(0.01)
        refused(attach(tlstax, process.pid, tmp_path / "a"), TARGET, "has ended")


def test_a_name_that_several_have(
    tlstax: list[str], target: Target, program: Path, tmp_path: Path
) -> None:
    with subprocess.Popen([program, "tls", "s"], stdin=subprocess.PIPE, stdout=-3) as second:
        try:
            command = [*tlstax, "attach", "--name", program.name, "-o", str(tmp_path / "a")]
            error = refused(command, TARGET, f"{second.pid} (", f"{target.pid} (")
            assert "processes are called truth" in error
        finally:
            second.kill()


def test_a_32_bit_process(tlstax: list[str], tmp_path: Path) -> None:
    source, program = tmp_path / "old.c", tmp_path / "old"
    source.write_text('void _start(void) { for (;;) __asm__("pause"); }')
    flags = ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"]
    subprocess.run(["gcc", *flags, "-o", program, source], check=True, capture_output=True)
    with subprocess.Popen([program]) as process:
        try:
            refused(attach(tlstax, process.pid, tmp_path / "a"), TARGET, "32-bit")
        finally:
            process.kill()


def test_a_process_that_proc_hides(tlstax: list[str], target: Target, open_directory: Path) -> None:
    remount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", remount, "sh", *NOBODY]
    refused(command + attach(tlstax, target.pid, open_directory / "a"), TARGET, "hidepid")


def test_a_name_that_proc_hides(
    tlstax: list[str], target: Target, program: Path, open_directory: Path
) -> None:
    remount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", remount, "sh", *NOBODY, *tlstax]
    capture = str(open_directory / "a")
    command += ["attach", "--name", program.name, "-o", capture]
    assert target.poll() is None
    refused(command, TARGET, "No process is called truth", "hidepid")


@pytest.mark.parametrize(
    "command", ["attach 1 -o x", "probes plan 1", "probes plan --name x", "doctor"]
)
def test_an_empty_proc(command: str, tlstax: list[str], tmp_path: Path) -> None:
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    namespace = ["unshare", "-m", "sh", "-c", hide, "sh"]
    refused([*namespace, *tlstax, *command.split()], HOST, "/proc is empty", "mount -t proc")


FEW_FILES = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]


def test_a_limit_of_open_files_is_raised(tlstax: list[str], target: Target, tmp_path: Path) -> None:
    soft = ["sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh"]
    command = [*soft, *attach(tlstax, target.pid, tmp_path / "a")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert result.returncode == 0, result.stderr


def test_a_limit_of_open_files_that_may_not_be_raised(
    tlstax: list[str], target: Target, tmp_path: Path
) -> None:
    confined = [*FEW_FILES, "setpriv", "--bounding-set", "-sys_resource"]
    command = [*confined, *attach(tlstax, target.pid, tmp_path / "a")]
    refused(command, HOST, "too few files may be open", "the limit is 64", "ulimit -n")
    assert not list(tmp_path.iterdir())


def test_tlstax_in_a_pid_namespace_of_its_own(tlstax: list[str], tmp_path: Path) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", *tlstax]
    refused([*command, "attach", "1", "-o", str(tmp_path / "a")], HOST, "pid namespace")


def test_a_replaced_library_without_the_privilege_to_follow_it(
    tlstax: list[str], program: Path, tmp_path: Path
) -> None:
    found = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    original = Path(next(line.split()[2] for line in found.splitlines() if "libssl" in line))
    library = tmp_path / original.name
    library.write_bytes(original.read_bytes())
    with subprocess.Popen(
        [program, "tls", "s"],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            library.unlink()
            library.write_bytes(original.read_bytes())
            command = ["setpriv", "--bounding-set", "-sys_admin,-checkpoint_restore", *tlstax]
            error = refused([*command, "probes", "plan", str(process.pid)], TARGET, "map_files")
            assert str(library) in error
        finally:
            process.kill()


def test_without_bpf_permission(tlstax: list[str], target: Target, tmp_path: Path) -> None:
    refused(WITHOUT_BPF + attach(tlstax, target.pid, tmp_path / "a"), HOST)


def test_a_process_without_tls(tlstax: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        refused(attach(tlstax, process.pid, tmp_path / "a"), TARGET, "TLS")
    finally:
        process.kill()
        process.wait()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "more",
    [
        ["probes", "run", "offcpu", "--for", "1s", "--pid"],
        ["attach", "--for", "1s", "--collect", "bpftrace", "-o", "a", "--budget", "none"],
    ],
    ids=["run", "attach"],
)
def test_return_probes_on_a_program_need_to_be_accepted(
    tlstax: list[str], target: Target, repository: Path, tmp_path: Path, more: list[str]
) -> None:
    # An exception that passes one ends the server.
    definitions = ["--definitions", str(repository / "tests/testprogs")]
    command = [*tlstax, *more, str(target.pid), *definitions]
    before = Path(f"/proc/{target.pid}/maps").read_text()
    refused(command, USAGE, "--accept return-probes", "ends the server")
    assert Path(f"/proc/{target.pid}/maps").read_text() == before, "no probe was ever set"
    assert not list(tmp_path.iterdir())


def test_without_kernel_types(tlstax: list[str], target: Target, tmp_path: Path) -> None:
    # In a mount namespace of its own an empty directory hides the kernel's BTF.
    hide = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", hide, "sh"]
    refused(command + attach(tlstax, target.pid, tmp_path / "a"), HOST, "BTF")


def test_the_target_ends(tlstax: list[str], program: Path, tmp_path: Path) -> None:
    capture = tmp_path / "a.tlstax"
    with subprocess.Popen(
        [program, "tls", "ss"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as target:
        assert target.stdin is not None
        assert target.stdout is not None
        target.stdout.readline()
        command = [*tlstax, "attach", str(target.pid), "-o", str(capture), "--quiet"]
        command += ["--budget", "none"]  # which may have something to say, too
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "attached" in process.stderr.readline()
            target.stdin.write(b"gx")
            assert target.wait(120) == 0
            _, errors = process.communicate(timeout=COMMAND_S)
    assert process.returncode == TARGET, errors
    assert ONE_SENTENCE.fullmatch(errors), errors
    assert capture.exists()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tiny", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_disk_full(tlstax: list[str], target: Target, tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(200 * 1024))
    assert target.stdin is not None
    target.stdin.write(b"g")
    command = [*tlstax, "attach", str(target.pid), "--quiet", "--window", "50ms", "--for", "20s"]
    before = time.monotonic()
    result = subprocess.run(
        [*command, "-o", str(tiny_disk / "a")],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert result.returncode == IO, result.stderr
    assert "Traceback" not in result.stderr
    assert ONE_SENTENCE.fullmatch(result.stderr.splitlines(keepends=True)[-1]), result.stderr
    assert time.monotonic() - before < 20


def test_a_directory_that_is_not_there(tlstax: list[str], target: Target, tmp_path: Path) -> None:
    refused(attach(tlstax, target.pid, tmp_path / "no" / "a"), IO)


def test_a_capture_is_never_replaced_unasked(
    tlstax: list[str], target: Target, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("precious")
    result = subprocess.run(
        attach(tlstax, target.pid, tmp_path / "a"), capture_output=True, text=True, check=False
    )
    assert result.returncode == USAGE, result.stderr
    assert ONE_SENTENCE.fullmatch(result.stderr), result.stderr
    assert (tmp_path / "a").read_text() == "precious"


def test_what_is_no_capture(tlstax: list[str], tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"SQLite format 3\0" + bytes(4000))
    truncated = tmp_path / "truncated"
    truncated.write_bytes(b"SQL")
    for path in (foreign, truncated, tmp_path / "absent"):
        refused([*tlstax, "report", str(path)], 5)
