# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach` of several servers: which of them, into which files, and what is refused."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.commands.attach_several import Failures, capture_name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("1 1", "process 1 was given twice"),
        ("1 --all", "--all was given with a pid"),
        ("--all", "no process was given"),
        ("--name=", "no process was given"),
        ("1 2 --unit mariadb", "a pid and unit mariadb were given"),
        ("1 2 --ssh box --client 3", "--client was given with several servers"),
        ("1 2 --ssh box --collect native,procfs", "--collect was given with several servers"),
        ("1 2 --client 3", "--client was given with several servers"),
        ("1 2 --collect native,procfs", "--collect was given with several servers"),
        (" ".join(map(str, range(1, 18))), "one recorder records 16 at most"),
    ],
)
def test_what_is_refused(
    words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "captures"
    assert main(["attach", "-o", str(folder), *words.split()]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not folder.exists()


def test_a_pid_and_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["attach", "1", "2", "--name", "mysqld", "-o", str(tmp_path / "x")])
    assert "--name: not allowed with argument PID" in capsys.readouterr().err


def test_none_of_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--name", "no-such-server", "--all", "-o", str(tmp_path / "x")]
    assert main(["attach", *words]) == ExitCode.TARGET
    assert "is called no-such-server" in capsys.readouterr().err


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "file").write_text("mine")
    assert main(["attach", "1", "2", "-o", str(path)]) == ExitCode.USAGE
    assert f"{path} is not a folder" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "1", "2", "-o", str(tmp_path / "absent" / "x")]) == ExitCode.IO
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("comm", "name"),
    [("mariadbd", "mariadbd"), ("my sql/d", "my_sql_d"), ("..", "process"), ("-o", "o")],
)
def test_the_name_of_a_capture(comm: str, name: str, tmp_path: Path) -> None:
    """Whatever a process calls itself, the file is in the folder."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text(f"{comm}\n")
    assert capture_name(7, tmp_path) == f"{name}-7.tlstax"
    assert capture_name(8, tmp_path) == "process-8.tlstax"


def test_the_exit_code_is_that_of_the_first_failure(capsys: pytest.CaptureFixture[str]) -> None:
    failures = Failures()
    assert failures.code == ExitCode.OK
    failures.tell(7, TlstaxError("it ended", "it was killed", "look", ExitCode.TARGET))
    failures.tell(8, TlstaxError("process 8 is not safe", "why", "do", ExitCode.HOST))
    assert (failures.code, failures.pids) == (ExitCode.TARGET, {7, 8})
    first, second = capsys.readouterr().err.splitlines()
    assert first == "tlstax: process 7: it ended: it was killed. look."
    assert second == "tlstax: process 8 is not safe: why. do."
