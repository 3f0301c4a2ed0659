# SPDX-License-Identifier: GPL-2.0-only
"""What commands print: output that cannot be written, and text that would steer a terminal."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.report import output
from tlstax.analysis.report.live import terminal as live_terminal
from tlstax.analysis.report.terminal import console
from tlstax.collectors.capture.printable import complain, harmless, safe_streams
from tlstax.tests.unit.report.examples import synthetic

STEERING = "\x1b[2Ja\rb\x9bc\u202ed\u2066e\u200ff\x00g\x7fh\u2028i"
HARMLESS = "�[2Ja�b�c�d�e�f�g�h�i"
FULL = "tlstax: cannot write to the standard output: no space left on device. Choose another file, "


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(synthetic(tmp_path_factory.mktemp("output") / "a.tlstax", "--rounds", "4"))


@pytest.mark.parametrize(
    "command",
    [
        "report CAPTURE",
        "report CAPTURE --markdown -",
        "report CAPTURE --json -",
        "report CAPTURE --folded -",
        "diff CAPTURE:storm/connect_query/plaintext CAPTURE:storm/connect_query/tls",
        "diff CAPTURE:storm/connect_query/plaintext CAPTURE:storm/connect_query/tls --markdown -",
        "flamegraph CAPTURE -o -",
        "export CAPTURE --format folded -o -",
        "export CAPTURE --format pprof -o -",
        "whatif CAPTURE:storm/connect_query/tls --pool 20",
        "probes list",
        "lab list",
    ],
)
def test_a_full_disk_is_one_error(
    command: str, capture: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full, contextlib.redirect_stdout(full):
        assert main(command.replace("CAPTURE", capture).split()) == ExitCode.IO
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(FULL)


@pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"], ["--version"]])
def test_a_process_whose_output_is_full_ends_with_one_error(arguments: list[str]) -> None:
    """As a process: what is still buffered must not be tried again when Python ends."""
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "tlstax", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == ExitCode.IO
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(FULL)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full", "| true"])
def test_closed_streams_give_no_traceback(closed: str, capture: str) -> None:
    command = f"{sys.executable} -m tlstax report {capture} {closed}; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == (0 if closed.startswith("2>") else ExitCode.IO)
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 1


def test_other_files_that_are_full(capture: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", capture, "--html", "/dev/full"]) == ExitCode.IO
    assert "cannot write /dev/full: no space left on device" in capfd.readouterr().err


def test_prints_cannot_steer_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with safe_streams():
        print(f"{STEERING}\tö \U0001f600\xa0%")
        print(STEERING, file=sys.stderr)
    complain(f"{STEERING}\nsecond line")
    seen = capfd.readouterr()
    assert seen.out == f"{HARMLESS}\tö \U0001f600\xa0%\n"
    assert seen.err == f"{HARMLESS}\ntlstax: {HARMLESS} second line\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_consoles_colour_but_do_not_steer(
    is_terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    with safe_streams():
        screen = console.screen()
        screen.print(Text(STEERING, style="bold"))
        screen.print(STEERING)
        table = console.table("title")
        table.add_column("x")
        table.add_row(STEERING)
        screen.print(table)
    seen = capfd.readouterr().out
    assert seen.count("�[2Ja") == 3
    assert ("\x1b[1m" in seen) == is_terminal
    plain = seen.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert plain == harmless(plain)


def test_live_lines_do_not_steer() -> None:
    for is_terminal in (False, True):
        for line in live_terminal.encode([Text(STEERING)], is_terminal):
            assert line == harmless(line)


def test_reports_in_files_do_not_steer(tmp_path: Path) -> None:
    for name in ("a.md", "a.svg"):
        output.write(str(tmp_path / name), f"{STEERING}\ud800")
        assert (tmp_path / name).read_text(encoding="utf-8") == f"{HARMLESS}�"


def test_what_the_error_says_is_one_line(capture: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", f"{capture}\n{STEERING}".replace("\0", "")]) == ExitCode.CAPTURE
    (line,) = capfd.readouterr().err.splitlines()
    assert line == harmless(line)


def test_an_unwritable_folder_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="cannot write"):
        output.write(str(tmp_path / "absent" / "a"), b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["", ".", "/"])
@pytest.mark.parametrize("content", ["text", b"bytes"])
def test_a_name_that_no_file_can_have_is_one_error(name: str, content: str | bytes) -> None:
    with pytest.raises(TlstaxError, match=r"is a directory|no such file") as caught:
        output.write(name, content)
    assert caught.value.exit_code == ExitCode.IO


def test_bytes_for_a_closed_output_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with safe_streams(), pytest.raises(TlstaxError, match="bad file descriptor") as caught:
        output.write("-", b"profile")
    assert caught.value.exit_code == ExitCode.IO
