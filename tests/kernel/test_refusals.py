# SPDX-License-Identifier: GPL-2.0-only
"""Each thing that can be wrong gives one clear error, its exit status, and no traceback."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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


def test_without_bpf_permission(tlstax: list[str], target: Target, tmp_path: Path) -> None:
    refused(WITHOUT_BPF + attach(tlstax, target.pid, tmp_path / "a"), HOST)


def test_a_process_without_tls(tlstax: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        refused(attach(tlstax, process.pid, tmp_path / "a"), TARGET)
    finally:
        process.kill()
        process.wait()
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
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "attached" in process.stderr.readline()
            target.stdin.write(b"gx")
            assert target.wait(10) == 0
            _, errors = process.communicate(timeout=30)
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
        timeout=60,
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
    assert result.returncode in {USAGE, IO, 5}, result.stderr
    assert ONE_SENTENCE.fullmatch(result.stderr), result.stderr
    assert (tmp_path / "a").read_text() == "precious"


def test_what_is_no_capture(tlstax: list[str], tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"SQLite format 3\0" + bytes(4000))
    truncated = tmp_path / "truncated"
    truncated.write_bytes(b"SQL")
    for path in (foreign, truncated, tmp_path / "absent"):
        refused([*tlstax, "report", str(path)], 5)
