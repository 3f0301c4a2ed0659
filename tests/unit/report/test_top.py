# SPDX-License-Identifier: GPL-2.0-only
"""What `tlstax top` draws on any terminal, live captures read in steps, exit codes."""

import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import build_parser, main
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.document import live_snapshot
from tlstax.analysis.report.live import screen as top_screen
from tlstax.analysis.report.live import servers_screen
from tlstax.analysis.report.live import terminal as top_terminal
from tlstax.analysis.report.live.feed import Feed
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Frame,
    Handshake,
    Ledger,
    PhaseCount,
    SampleStack,
    Stack,
    Target,
    Window,
)
from tlstax.collectors.capture.writer import CaptureWriter

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"
SECOND = 10**9
HOSTILE = "evil\x1b[2J\n"


def window(number: int, target_id: int = 1) -> Window:
    key = number + ((target_id - 1) << 32)
    return Window(key, None, number * SECOND, (number + 1) * SECOND, target_id)


def shake(number: int, window_id: int) -> Handshake:
    times = (0, 10**6, -1, -1, -1, -1, 0, 0, 0, 0, 0, 1, 1)
    return Handshake(number, window_id, 1, *times, "success", "TLSv1.3", "", "", 0)


def test_a_live_capture_is_read_in_steps(tmp_path: Path) -> None:
    path = tmp_path / "live.tlstax"
    names: list[int] = []

    def name(frame: Frame) -> Frame:
        names.append(frame.frame_id)
        return frame._replace(symbol="EVP_DigestSign", source="dynsym")

    with CaptureWriter.create(path) as writer:
        writer.add(Target(1, 7, "/mariadbd", "", "mariadb", "1", "OpenSSL", "3", "shared"))
        writer.add(Frame(1, "/libcrypto.so.3", "", 64, "[libcrypto+0x40]", 0, "none", ""))
        writer.add(Stack(1, "1"))
        writer.commit()
        with CaptureReader.open(path) as reader:
            feed = Feed(reader, name, 2 * SECOND)
            assert not feed.advance()
            for number in range(1, 6):
                writer.add([window(number), window(number, target_id=2)])
                writer.add(Ledger(number, 1, "command", "on_cpu", SECOND // 2))
                writer.add(Ledger(number + (1 << 32), 1, "command", "on_cpu", SECOND))
                writer.add(PhaseCount(number, "command", 100))
                writer.add(shake(number, number))
                writer.add(SampleStack(number, "sign", -1, 1, None, 9))
                writer.commit()
                assert feed.advance()
                assert not feed.advance()
            assert sorted(feed.seen) == [4, 5]
            seen = live_snapshot.look(list(feed.seen.values()), feed.stack, builtin())
    assert seen.span_ns == seen.measured_ns == 2 * SECOND
    assert seen.handshakes_per_second == 1
    (command,) = [line for line in seen.phases if line.name == "command"]
    assert (command.per_second, command.total) == (100, 0.5)
    (function,) = seen.functions
    assert (function.name, function.phase, function.share) == ("EVP_DigestSign", "handshake", 1.0)
    assert names == [1]


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        (("flow", "record", "flow"), "level flow  last 3.00 s"),
        (("none", "none", "record"), "level record  last 3.00 s, phases seen in 33.3 % of it"),
        (("none", "handshake", "handshake"), "level handshake  last 3.00 s, phases seen in 0"),
    ],
)
def test_the_level_is_that_of_most_of_the_ledger(levels: tuple[str, ...], text: str) -> None:
    seen = [live_snapshot.Seen(window(number)._replace(level=level))
            for number, level in enumerate(levels)]  # fmt: skip
    picture = live_snapshot.look(seen, lambda _: (), builtin())
    lines = top_screen.draw(picture, top_screen.Frame(None, 0), 100, 24)
    assert text in lines[2].plain.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (80, 8)])
@pytest.mark.parametrize("sort", top_screen.SORTS)
def test_a_picture_fits_its_terminal(size: tuple[int, int], sort: str) -> None:
    with CaptureReader.open(DEMO) as reader:
        feed = Feed(reader, lambda frame: frame._replace(symbol=HOSTILE), 3 * SECOND)
        feed.advance()
        picture = live_snapshot.look(list(feed.seen.values()), feed.stack, builtin())
    frame = top_screen.Frame(feed.target, SECOND, "note", True, sort, "x.tlstax")
    lines = top_screen.draw(picture, frame, *size)
    assert len(lines) == size[1]
    assert max(line.cell_len for line in lines) <= size[0]
    assert not any(control in line.plain for line in lines for control in "\x1b\n")
    assert lines[0].plain.startswith("PAUSED")
    if size == (80, 24):
        assert any(line.plain.startswith("handshake ") for line in lines)


def test_no_colour_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = top_screen.draw(
        live_snapshot.look([], lambda _: (), builtin()), top_screen.Frame(None, 0), 80, 24
    )
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in "".join(top_terminal.encode(lines, True))
    assert "\x1b" not in "".join(top_terminal.encode(lines, False))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in "".join(top_terminal.encode(lines, True))


@dataclass
class _Refuses:
    """In the place of `tlstax attach`: how it was started."""

    stderr: list[str] = field(default_factory=lambda: ["tlstax: box cannot be recorded\n"])
    returncode: int = 3

    def wait(self, timeout: float = 0) -> int:
        del timeout
        return self.returncode

    poll = wait


def test_another_host_is_recorded_as_by_attach() -> None:
    words = [
        "--name", "mariadbd", "--ssh", "dba@box", "--sudo", "--remote-dir", "/run/x", "--budget",
        "1%", "--level", "flow", "--definitions", "own", "--accept", "tracer", "--accept", "steps",
    ]  # fmt: skip
    options = build_parser("top").parse_args(["top", *words])
    started: list[tuple[list[str], bool]] = []

    def start(command: list[str], own_session: bool, **_: object) -> _Refuses:
        started.append((command, own_session))
        return _Refuses()

    options.start_with_us = start
    assert options.run(options) == 3
    ((command, own_session),) = started
    assert not own_session, "ssh can ask on the terminal"
    at = command.index("attach")
    attach = build_parser("attach").parse_args(command[at:])
    for name in ("name", "ssh", "sudo", "remote_dir", "accept"):
        assert getattr(attach, name) == getattr(options, name)
    assert (attach.budget, attach.level.name, attach.definitions) == (0.01, "FLOW", Path("own"))


def test_ctrl_z_is_ignored_while_a_recorder_runs() -> None:
    """By the recorder, too, which inherits it: else it would record on for a stopped display."""
    options = build_parser("top").parse_args(["top", "7"])
    handlers = [signal.getsignal(signal.SIGTSTP)]

    def start(_command: list[str], **_: object) -> _Refuses:
        handlers.append(signal.getsignal(signal.SIGTSTP))
        return _Refuses()

    options.start_with_us = start
    assert options.run(options) == 3
    handlers.append(signal.getsignal(signal.SIGTSTP))
    assert handlers == [handlers[0], signal.SIG_IGN, handlers[0]]


def test_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["top", str(DEMO), "--once", "--over", "30s"]) == 0
    assert "handshakes" in capsys.readouterr().out
    assert main(["top"]) == ExitCode.USAGE
    assert main(["top", "1", "--name", "x"]) == ExitCode.USAGE
    capsys.readouterr()
    assert main(["top", str(DEMO), "--ssh", "box"]) == ExitCode.USAGE
    assert "a capture is a file of this host" in capsys.readouterr().err
    assert main(["top", str(tmp_path / "none"), "--once"]) == ExitCode.CAPTURE


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (f"{DEMO} 1", "a capture was given with a pid"),
        (f"{DEMO} {DEMO} --ssh box", "a capture was given with --ssh"),
        (f"{DEMO} --all", "a capture was given with --all"),
        ("1 2 --name x", "two targets given"),
        ("--all", "no target given"),
    ],
)
def test_what_does_not_go_together(
    words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", *words.split()]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_several_servers_are_recorded_as_by_attach() -> None:
    for words in (["--name", "mysqld", "--all"], ["7", "8"]):
        options = build_parser("top").parse_args(["top", *words])
        started: list[list[str]] = []

        def start(command: list[str], to: list[list[str]] = started, **_: object) -> _Refuses:
            to.append(command)
            return _Refuses()

        options.start_with_us = start
        assert options.run(options) == 3
        command = started[0][started[0].index("attach") :]
        attach = build_parser("attach").parse_args(command)
        assert (attach.all, attach.name or attach.pids) == (options.all, options.name or [7, 8])
        assert attach.output.name == "captures", "a folder"


def add_meta(capture: Path, key: str, value: str) -> None:
    with closing(sqlite3.connect(capture)) as database, database:
        database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def test_several_captures_have_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tlstax").write_bytes(DEMO.read_bytes())
        add_meta(tmp_path / f"{name}.tlstax", "recording_id", "1")
    both = [str(tmp_path / name) for name in ("a.tlstax", "b.tlstax")]
    assert main(["top", *both, "--once", "--over", "30s"]) == 0
    shown = capsys.readouterr().out
    with CaptureReader.open(DEMO) as reader:
        (target,) = reader.rows(Target, "target_id = 1")
    name = f"{target.exe.rpartition('/')[2]} {target.pid} "
    assert [line.startswith(name) for line in shown.splitlines()][2:4] == [True, True]
    assert shown.startswith("tlstax top  2 servers")
    assert main(["top", str(tmp_path), "--once", "--over", "30s"]) == 0
    assert capsys.readouterr().out == shown, "a folder means its captures"
    for name, key, value in (("0", "hostname", "x"), ("c", "recording_id", "2")):
        (tmp_path / f"{name}.tlstax").write_bytes(DEMO.read_bytes())
        add_meta(tmp_path / f"{name}.tlstax", key, value)
        add_meta(tmp_path / f"{name}.tlstax", "created_wall_ns", "7")
    assert main(["top", str(tmp_path), "--once", "--over", "30s"]) == 0
    said = capsys.readouterr()
    assert said.out == shown, "but none of an earlier recording"
    (line,) = said.err.splitlines()
    assert [f"{tmp_path / name}.tlstax" in line for name in ("0", "c", "a")] == [True, True, False]
    (tmp_path / "empty").mkdir()
    assert main(["top", str(tmp_path / "empty"), "--once"]) == ExitCode.CAPTURE
    assert "has no captures" in capsys.readouterr().err


def test_the_lines_of_several_servers() -> None:
    """Who is not known to shake hands is not said to have none."""
    row = Target(1, 7, f"/opt/{HOSTILE}", "", "mariadb", "1", "OpenSSL", "3", "shared")

    def line(level: str, outcome: str, pid: int, ending: str = "") -> servers_screen.ServerLine:
        shakes = [shake(number, 1)._replace(outcome=outcome) for number in range(5)]
        seen = live_snapshot.Seen(window(1)._replace(level=level), handshakes=shakes)
        seen.counts = [PhaseCount(1, "command", 100)]
        snapshot = live_snapshot.look([seen], lambda _: (), builtin())
        return servers_screen.ServerLine(row._replace(pid=pid), snapshot, ending)

    servers = [
        line("record", "success", 1), line("record", "failed", 2), line("sample", "success", 3),
        line("record", "success", 4, f"it exited {HOSTILE}"),
        servers_screen.ServerLine(None, live_snapshot.look([], lambda _: (), builtin())),
    ]  # fmt: skip
    frame = servers_screen.Frame(SECOND, "note", False, "folder", "box")
    lines = [text.plain for text in servers_screen.draw(servers, frame, 100, 24)]
    assert lines[0].startswith("tlstax top  5 servers on box · 1 s")
    values = [text.split()[-7:] for text in lines[2:5]]
    assert [row[:2] for row in values] == [["5", "0"], ["0", "5"], ["-", "-"]]
    assert [row[4] for row in values] == ["100", "100", "-"]
    assert "ended: it exited evil" in lines[5]
    assert "no window yet" in lines[6]
    for size in ((80, 24), (40, 10), (200, 60), (80, 7)):
        shown = servers_screen.draw(servers, frame, *size)
        assert len(shown) == size[1]
        assert max(each.cell_len for each in shown) <= size[0]
        assert not any(control in each.plain for each in shown for control in "\x1b\n")
        assert shown[-1].plain.startswith("q quit")
    assert "and 3 more" in servers_screen.draw(servers, frame, 80, 7)[4].plain
