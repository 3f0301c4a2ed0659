# SPDX-License-Identifier: GPL-2.0-only
"""Functions that the compiler inlined: found by DWARF, shown in pictures and exports."""

import gzip
import random
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.process import inlined_names
from tlstax.collectors.process.inlined_names import HELPERS, InlinedNames
from tlstax.tests.unit.process.examples import address_of

Compile = Callable[..., Path]
BUILD_ID = "ab" * 20
# The instruction at `mark` is of leaf, which is inlined into middle, which is inlined into outer.
SOURCE = """
static inline __attribute__((always_inline)) int leaf(int a) {
    __asm__ volatile(".type mark, @function\\nmark: nop\\n.size mark, 1" : "+r"(a));
    return a;
}
static inline __attribute__((always_inline)) int middle(int a) { return leaf(a + 1) * 7; }
__attribute__((noinline)) int outer(int a) { return middle(a) + 3; }
int main(int argc, char **argv) { return outer(argc); }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    return tmp_path / "cache/tlstax/inlined"


@pytest.fixture
def program(compile_c: Compile) -> Path:
    return compile_c(SOURCE, "-O2", "-g")


def mark_of(program: Path) -> int:
    return address_of(program, "mark")[0]


@pytest.mark.parametrize("helper", [one for one in HELPERS if shutil.which(one)])
def test_the_chain_of_a_known_inlining(program: Path, helper: str) -> None:
    mark, start = mark_of(program), address_of(program, "main")[0]
    answer = InlinedNames([helper]).at([start, mark, 1 << 40], program, BUILD_ID)
    assert answer.names == {start: (), mark: ("middle", "leaf"), 1 << 40: ()}
    assert answer.why == ""


def recorded(program: Path, tmp_path: Path) -> Path:
    """A capture with one sample in the inlined code, as a host without DWARF names it."""
    with Elf(program) as elf:
        offset, build_id = elf.to_offset(mark_of(program)), elf.build_id
        caller = elf.to_offset(address_of(program, "main")[0])
    assert offset is not None
    assert caller is not None
    capture = tmp_path / "x.tlstax"
    s = 10**9
    write_whole(
        capture,
        [
            schema.Target(1, 9, "program", "", "mariadb", "11", "OpenSSL", "3.0.19", "shared"),
            schema.Thread(1, 9, "one", "connection", 0, None),
            schema.Window(1, None, 0, s),
            schema.Ledger(1, 1, "command", "on_cpu", s),
            schema.PhaseCount(1, "command", 1),
            schema.Frame(1, "/opt/bin/program", build_id, offset, "outer", 4, "dynsym", ""),
            schema.Frame(2, "/opt/bin/program", build_id, caller, "main", 0, "dynsym", ""),
            schema.Stack(1, "1 2"),
            schema.SampleStack(1, "command", -1, 1, None, 5),
        ],
    )
    return capture


def inlined_of(capture: Path) -> list[schema.InlinedFrame]:
    with CaptureReader.open(capture) as reader:
        return list(reader.rows(schema.InlinedFrame))


@pytest.fixture
def named(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Such a capture with the names of what is inlined, from a separate debug file."""
    capture = recorded(program, tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", program, files / "debug"], check=True)
    subprocess.run(["strip", "-o", files / "program", program], check=True)
    command = ["symbolize", str(capture), "--files", str(files)]
    assert main(command) == ExitCode.OK
    assert "functions are inlined at 1 of 2 addresses" in capsys.readouterr().out
    before = capture.read_bytes()
    assert main(command) == ExitCode.OK
    assert capture.read_bytes() == before
    return capture


def test_a_capture_keeps_the_function_and_gets_what_is_inlined(named: Path) -> None:
    assert inlined_of(named) == [
        schema.InlinedFrame(1, 0, "middle"),
        schema.InlinedFrame(1, 1, "leaf"),
    ]
    with CaptureReader.open(named) as reader:
        assert [row.symbol for row in reader.rows(schema.Frame)] == ["outer", "main"]


def test_pictures_and_exports_mark_it(named: Path, tmp_path: Path) -> None:
    def made(command: str, form: str) -> bytes:
        output = tmp_path / "out"
        assert main([command, str(named), "--format", form, "-o", str(output)]) == 0
        return output.read_bytes()

    assert b"command;main;outer;middle_[i];leaf_[i] " in made("export", "folded")
    picture = made("flamegraph", "svg").decode()
    assert 'data-name="leaf (inlined)"' in picture
    assert 'data-name="outer"' in picture
    for form in ("speedscope", "firefox"):
        text = made("export", form)
        assert b'"leaf (inlined)"' in text
        assert b'"outer"' in text
    assert b"leaf" in gzip.decompress(made("export", "pprof"))
    assert main(["report", str(named), "--html", str(tmp_path / "r.html")]) == 0
    assert '"leaf"' in (tmp_path / "r.html").read_text()


def test_an_older_capture_gets_the_table(program: Path, tmp_path: Path) -> None:
    capture = recorded(program, tmp_path)
    with sqlite3.connect(capture) as connection:
        connection.execute("DROP TABLE inlined_frame")
        connection.execute("PRAGMA user_version = 5")
    connection.close()
    assert inlined_of(capture) == []
    assert main(["symbolize", str(capture), "--files", str(program.parent)]) == ExitCode.OK
    assert len(inlined_of(capture)) == 2


def test_answers_are_kept_by_build(program: Path, cache: Path) -> None:
    """A server's DWARF takes seconds to read: a second capture of a build must not do so."""
    mark = mark_of(program)
    InlinedNames().at([mark], program, BUILD_ID)
    assert [path.name for path in cache.iterdir()] == [f"{BUILD_ID}.json"]
    nobody = InlinedNames(["no-such-helper"])
    assert nobody.at([mark], program, BUILD_ID).names[mark] == ("middle", "leaf")
    answer = nobody.at([mark + 1], program, BUILD_ID)
    assert mark + 1 not in answer.names
    assert "not found: install elfutils" in answer.why
    (cache / f"{BUILD_ID}.json").write_text('{"version": 1, "names": {"x": 3}}')
    assert InlinedNames().at([mark], program, BUILD_ID).names[mark] == ("middle", "leaf")


def helper_that(tmp_path: Path, does: str) -> InlinedNames:
    script = tmp_path / "helper"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o700)
    return InlinedNames([str(script)])


def test_a_helper_that_hangs_is_ended(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hostile DWARF must not hang tlstax; what was answered before is kept."""
    monkeypatch.setattr(inlined_names, "SECONDS_MOST", 1)
    hanging = helper_that(tmp_path, "printf '0x1\\na\\n:0\\nb\\n:0\\n0x2\\nc\\n'; exec sleep 50")
    before = time.monotonic()
    answer = hanging.at([1, 2, 3], program, BUILD_ID)
    assert time.monotonic() - before < 20
    assert answer.names == {1: ("a",), 2: ()}
    assert "1 addresses: helper took more than 1 s" in answer.why


@pytest.mark.parametrize(
    "does", ["exec cat /dev/zero", "exec tail -c 99G /dev/zero", "kill -SEGV $$", "exit 3"]
)
def test_a_helper_that_floods_or_fails(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setattr(inlined_names, "OUTPUT_BYTES_MOST", 1 << 20)
    monkeypatch.setattr(inlined_names, "MEMORY_BYTES_MOST", 1 << 28)
    answer = helper_that(tmp_path, does).at([1], program, BUILD_ID)
    assert answer.names == {}
    assert "1 addresses: helper ended with status" in answer.why


def test_no_server_is_asked(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helpers have debuginfod clients of their own."""
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9")
    telling = helper_that(tmp_path, 'echo 0x1; echo "x${DEBUGINFOD_URLS}"; echo :0; echo b; echo')
    assert telling.at([1], program, BUILD_ID).names == {1: ("x",)}


def test_names_that_look_like_answers(program: Path, tmp_path: Path) -> None:
    """A name may hold any line; it must not become the answer for another address."""
    text = "0x1\\na\\n:0\\n0x3\\n:0\\n0x2\\nb inlined at x in y\\n:0\\nc\\n:0\\n0x3\\nd\\n:0\\n"
    answer = helper_that(tmp_path, f"printf '{text}'").at([1, 2, 3], program, BUILD_ID)
    assert answer.names == {1: ("a",), 2: ("b",), 3: ()}


def test_damaged_dwarf(program: Path, tmp_path: Path) -> None:
    """Whatever is in .debug_info: an end in time, and no exception."""
    generator, mark = random.Random(3), mark_of(program)
    with Elf(program) as elf:
        parts = [elf.section(f".debug_{name}") for name in ("info", "abbrev", "aranges", "str")]
    content = program.read_bytes()
    damaged = tmp_path / "damaged"
    before = time.monotonic()
    for number in range(25):
        made = bytearray(content)
        for part in parts:
            if part is not None:
                for _ in range(1 + number % 5):
                    made[part.offset + generator.randrange(part.size)] = generator.randrange(256)
        damaged.write_bytes(made)
        InlinedNames().at([mark], damaged, f"{number:040x}")
    assert time.monotonic() - before < inlined_names.SECONDS_MOST
