# SPDX-License-Identifier: GPL-2.0-only
"""Names of hosts: nothing in them may become an option of ssh or a word of a shell."""

from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.remote.destination import Destination, directory_name, host_name

THERE = ["attach", "1", "-o", "x", "--ssh", "db1"]


@pytest.mark.parametrize(
    "text",
    [
        "db1", "dba@db1.example.net", "10.0.0.7", "db_1", "ssh://dba@db1:2222", "ssh://[fe80::1]:22",
        "fe80::1%eth0", "dba@[::1]",
    ],
)  # fmt: skip
def test_what_ssh_takes(text: str) -> None:
    assert host_name(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "-oProxyCommand=sh", "-db1", "dba@-oProxyCommand=sh", "-l@db1", "db1;id", "db1 id",
        "$(id)", "`id`", "db1\n", "ssh://-oProxyCommand=sh", "db1'", "dba@", "a@b@c", "db1/../x", "ssh://",
    ],
)  # fmt: skip
def test_what_could_be_an_option_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        host_name(text)


def test_the_name_stands_behind_the_options() -> None:
    command = Destination("db1").command("true")
    assert command[-3:] == ["--", "db1", "exec sh -c 'true'"]
    assert not any("BatchMode" in word or "IdentityFile" in word for word in command)


@pytest.mark.parametrize("text", ["/dev/shm", "/run/user/1000", "/var/tmp/a-b_c.d"])
def test_directories(text: str) -> None:
    assert directory_name(text) == text


@pytest.mark.parametrize("text", ["", "tmp", "/", "/a b", "/a;b", "/a/../b", "/..", "/a'", "/a//b"])
def test_other_directories_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        directory_name(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attach", "1", "-o", "x", "--ssh=-oProxyCommand=id"], "is not [USER@]HOST"),
        (["attach", "1", "-o", "x", "--sudo"], "without --ssh"),
        (["probes", "plan", "1", "--remote-dir", "/dev/shm"], "without --ssh"),
        (["doctor", "1", "--remote-recorder", "/opt/tlstax-recorder"], "without --ssh"),
        ([*THERE, "--remote-recorder", "a b"], "is not an absolute path"),
        ([*THERE, "--remote-recorder", "/a", "--remote-dir", "/b"], "is not copied anywhere"),
        ([*THERE, "--collect", "native,procfs"], "--collect was given with --ssh"),
        ([*THERE, *["--client", "7"] * 16], "a server and 15 clients at most"),
        ([*THERE, "--client", "7", "--budget", "5%"], "--client was given with --budget"),
        (["doctor", "--ssh", "db1"], "without PID"),
    ],
)
def test_arguments_are_refused_before_ssh_is_started(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        code = main(words)
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["attach", "-o"], ["probes", "plan", "--output"]])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_output_that_cannot_be_made_is_told_before_ssh_is_started(
    words: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Connecting, fetching files and planning take minutes."""
    monkeypatch.setenv("PATH", "/nowhere")
    taken = tmp_path / "taken"
    taken.write_text("of yesterday") if kind == "file" else taken.mkdir()
    assert main([*words, str(taken), "--ssh", "db1", "--name", "mariadbd"]) == 2
    assert "the file exists" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_earlier_capture_stays_where_ssh_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    earlier = tmp_path / "earlier.tlstax"
    CaptureWriter.create(earlier).close()
    content = earlier.read_bytes()
    words = ["attach", "--name", "mariadbd", "--ssh", "db1", "--force", "-o"]
    assert main([*words, str(earlier)]) == ExitCode.HOST
    assert "ssh" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "none" / "x.tlstax")]) == ExitCode.IO
    assert [path.name for path in tmp_path.iterdir()] == ["earlier.tlstax"]
    assert earlier.read_bytes() == content
