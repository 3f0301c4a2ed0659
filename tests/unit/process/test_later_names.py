# SPDX-License-Identifier: GPL-2.0-only
"""Names that `tlstax symbolize` adds to a capture on another host."""

import http.server
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.writer import write_whole
from tlstax.tests.unit.process.examples import address_of

Compile = Callable[..., Path]
SOURCE = """
int first(int a) { return a * 3 + 1; }
int second(int a) { return a * 5 + 2; }
int main(void) { return first(1) + second(2); }
"""


class Answers(http.server.BaseHTTPRequestHandler):
    """A debuginfod server."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        content = self.files.get(self.path)
        self.send_response(200 if content is not None else 404)
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    Answers.files.clear()
    Answers.asked.clear()
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("DEBUGINFOD_URLS", f"ima:ignore http://127.0.0.1:{running.server_port}/")
    yield Answers
    running.shutdown()
    thread.join()
    running.server_close()


class Recorded:
    """A capture of a stripped program that this host lacks; its files are elsewhere."""

    def __init__(self, compile_c: Compile, tmp_path: Path) -> None:
        path = compile_c(SOURCE, "-g")
        address, _ = address_of(path, "second")
        self.debug = tmp_path / "program.debug"
        subprocess.run(["objcopy", "--only-keep-debug", path, self.debug], check=True)
        subprocess.run(["strip", path], check=True)
        with Elf(path) as elf:
            offset, self.build_id = elf.to_offset(address + 4), elf.build_id
        assert offset is not None
        self.executable = path.rename(tmp_path / "kept")
        self.capture = tmp_path / "x.tlstax"
        unnamed = "/opt/bin/program", self.build_id, offset, f"[program+{offset:#x}]", 0, "none", ""
        rows = [
            schema.Frame(1, *unnamed),
            schema.Frame(2, "/opt/bin/program", self.build_id, 1, "known", 0, "dynsym", ""),
            schema.Frame(3, "/opt/lib/other.so", "", 16, "[other+0x10]", 0, "none", ""),
        ]
        write_whole(self.capture, rows)

    def frames(self) -> list[schema.Frame]:
        with CaptureReader.open(self.capture) as reader:
            return list(reader.rows(schema.Frame))

    def name_of(self, kind: str) -> str:
        return f"/buildid/{self.build_id}/{kind}"


@pytest.fixture
def recorded(compile_c: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    return Recorded(compile_c, tmp_path)


def test_names_from_copied_files_stay(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A DBA copies the server's files beside the capture: names appear, once, and none is lost."""
    copies = tmp_path / "copies/deep"
    copies.mkdir(parents=True)
    shutil.copy(recorded.executable, copies / "any name")
    shutil.copy(recorded.debug, copies)
    os.mkfifo(copies / "pipe")
    recorded.capture.chmod(0o600)
    command = ["symbolize", str(recorded.capture), "--files", str(copies.parent)]
    assert main(command) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "2 addresses had no name; 1 are named now" in printed
    assert "other.so (no build-id): 0 named, 1 not: the capture has no build-id" in printed
    first, known, other = recorded.frames()
    assert (first.symbol, first.symbol_offset_bytes, first.source) == ("second", 4, "buildid")
    assert (known.symbol, other.source) == ("known", "none")
    assert stat.S_IMODE(recorded.capture.stat().st_mode) == 0o600
    before = recorded.capture.read_bytes()
    assert main(command) == ExitCode.OK
    assert recorded.capture.read_bytes() == before


def test_without_the_files_it_says_what_is_missing(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded.capture.read_bytes()
    assert main(["symbolize", str(recorded.capture)]) == ExitCode.OK
    assert "no file with this build-id here; DEBUGINFOD_URLS is not set" in capsys.readouterr().out
    shutil.copy(recorded.executable, tmp_path / "cache-free")
    (tmp_path / "only").mkdir()
    shutil.copy(recorded.executable, tmp_path / "only")
    main(["symbolize", str(recorded.capture), "--files", str(tmp_path / "only")])
    assert "no debug file; DEBUGINFOD_URLS is not set" in capsys.readouterr().out
    assert recorded.capture.read_bytes() == before


def test_a_server_is_asked_once_and_its_files_are_kept(
    recorded: Recorded, server: type[Answers]
) -> None:
    executable, debug = recorded.name_of("executable"), recorded.name_of("debuginfo")
    server.files[executable] = recorded.executable.read_bytes()
    server.files[debug] = recorded.debug.read_bytes()
    copy = recorded.capture.with_name("copy.tlstax")
    shutil.copy(recorded.capture, copy)
    assert main(["symbolize", str(recorded.capture)]) == ExitCode.OK
    assert recorded.frames()[0][4:6] == ("second", 4)
    assert recorded.frames()[0].source == "debuginfod"
    assert main(["symbolize", str(copy)]) == ExitCode.OK
    assert server.asked == [executable, debug]


def test_a_file_of_another_build_is_not_believed(
    recorded: Recorded,
    server: type[Answers],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong names would mislead; a server that answers with anything else is named."""
    server.files[recorded.name_of("executable")] = Path("/bin/true").read_bytes()
    assert main(["symbolize", str(recorded.capture)]) == ExitCode.OK
    assert "the answer is not a file of that build-id" in capsys.readouterr().out
    assert recorded.frames()[0].source == "none"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("DEBUGINFOD_MAXSIZE", "100", "larger than DEBUGINFOD_MAXSIZE (100 bytes)"),
        ("DEBUGINFOD_URLS", "http://127.0.0.1:9", "refused"),
    ],
)
def test_limits_of_a_server_are_said(
    recorded: Recorded,
    server: type[Answers],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    why: str,
) -> None:
    server.files[recorded.name_of("executable")] = recorded.executable.read_bytes()
    monkeypatch.setenv(name, value)
    assert main(["symbolize", str(recorded.capture)]) == ExitCode.OK
    assert why in capsys.readouterr().out.lower().replace(
        "debuginfod_maxsize", "DEBUGINFOD_MAXSIZE"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("DEBUGINFOD_URLS", "file:///etc"), ("DEBUGINFOD_MAXTIME", "soon")],
)
def test_settings_that_cannot_be_used(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["symbolize", str(recorded.capture)]) == ExitCode.USAGE


def test_a_hostile_capture_names_no_path_of_this_host(
    recorded: Recorded,
    server: type[Answers],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A capture that somebody sent must not make this host open pipes, or leave its directories."""
    os.mkfifo(tmp_path / "pipe")
    capture = tmp_path / "hostile.tlstax"
    builds = ["../../etc", "ab" * 200, recorded.build_id.upper(), recorded.build_id]
    rows = [
        schema.Frame(number, str(tmp_path / "pipe"), build, 1 << 62, "[x]", 0, "none", "")
        for number, build in enumerate(builds)
    ]
    rows.append(schema.Frame(9, "/a\0b\nforged: 1 named", "ab" * 10, -1, "[x]", 0, "none", ""))
    write_whole(capture, rows)
    server.files.clear()
    assert main(["symbolize", str(capture)]) == ExitCode.OK
    assert "\nforged" not in capsys.readouterr().out
    server.asked.remove(f"/buildid/{'ab' * 10}/executable")
    assert server.asked == [recorded.name_of("executable")]


def test_a_capture_that_cannot_be_written(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["symbolize", str(recorded.executable)]) == ExitCode.CAPTURE
    assert main(["symbolize", str(recorded.capture), "--files", "/none"]) == ExitCode.USAGE
    assert "/none: it is not a directory" in capsys.readouterr().err
