# SPDX-License-Identifier: GPL-2.0-only
"""The arguments of `tlstax watch`."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import build_parser, main
from tlstax.analysis.report.commands.watch_sinks import Sinks
from tlstax.collectors.commands import watch
from tlstax.collectors.commands.watch import address, every, keep, raw_folder
from tlstax.collectors.process.target import no_program


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9917", ("127.0.0.1", 9917)),
        (":9917", ("127.0.0.1", 9917)),
        ("192.0.2.7:80", ("192.0.2.7", 80)),
        ("[::1]:0", ("::1", 0)),
    ],
)
def test_an_address_without_a_host_is_loopback(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "host", "1:65536", "1:-1", "9917x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        address(text)


def test_times_have_bounds() -> None:
    assert (keep("48h"), keep("30d"), every("10s"), every("60s")) == (172800, 2592000, 10, 60)
    for text in ("", "1h", "30", "d", "-3d", "4000d", "99999999d"):
        with pytest.raises(argparse.ArgumentTypeError):
            keep(text)
    with pytest.raises(argparse.ArgumentTypeError):
        every("15s")


def test_one_server_is_named() -> None:
    for arguments in ([], ["--name", "mysqld", "--pid", "1"]):
        with pytest.raises(SystemExit) as ended:
            build_parser("watch").parse_args(["watch", "--output", "x", *arguments])
        assert ended.value.code == ExitCode.USAGE


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["watch", "--name", "mysqld", "--output", str(file)]) == ExitCode.IO
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("--pid 1", "--pid"),
        ("--name x --otlp-profiles http://127.0.0.1:4318", "--otlp-profiles"),
    ],
)
def test_what_is_for_one_server_is_refused_with_all(
    words: str, given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    command = ["watch", "--all", "--output", str(data), *words.split()]
    assert main(command) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--all was given with {given}: " in line
    assert not data.exists()


def test_a_failed_folder_of_raw_windows_leaves_no_claim(tmp_path: Path) -> None:
    """Of several servers the others go on, and this one is tried again."""
    words = ["watch", "--all", "--name", "x", "--host", "db1", "--output", str(tmp_path)]
    options = build_parser("watch").parse_args(words)
    sinks = Sinks(tmp_path, "", 60, 86400.0, "", are_several=True)
    (tmp_path / "raw").touch()
    with pytest.raises(TlstaxError, match="cannot write raw windows"):
        watch._outlet(options, sinks, "3306")
    (tmp_path / "raw").unlink()
    outlet = watch._outlet(options, sinks, "3306")
    with pytest.raises(TlstaxError, match="another `tlstax watch` does that now"):
        watch._outlet(options, sinks, "3306")
    outlet.close()
    watch._outlet(options, sinks, "3306").close()


@pytest.mark.parametrize("name", ["a\\b", "a\nb", "\x1b[31m", "h" * 201, "\udcff"])
@pytest.mark.parametrize("option", ["--host", "--cluster"])
@pytest.mark.parametrize("more", [[], ["--all"]])
def test_names_that_no_question_could_use_are_refused_at_the_start(
    option: str, name: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by `tlstax fleet add`; one that no file can hold ended the watch at its first rollup."""
    command = ["watch", "--name", "nobody-has-it", "--output", str(tmp_path / "d"), *more]
    assert main([*command, option, name]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert f"Give another one with {option}" in line


def test_raw_windows_of_each_host_have_a_folder_of_their_own() -> None:
    names = ["db1", "db1-3306@x", "..", ".", "a/b", "a_b", "a b", "../../etc", "\u00e4" * 200]
    found = [raw_folder(name) for name in names]
    assert found[0] == "db1"
    assert len(set(found)) == len(names)
    assert not any("/" in one or set(one) <= {"."} or len(one.encode()) > 255 for one in found)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--pid 1 --unit mariadb", "a pid and unit mariadb were given"),
        ("--name x --pod 2f1e", "pod 2f1e is too short"),
        ("--name x --all --container 2f1e", "container 2f1e is too short"),
    ],
)
def test_a_group_that_means_nothing_is_refused(
    words: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--output", str(tmp_path / "d"), *words.split()]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line


# A stand-in for what opens the data set, which is where packages are imported first.
_LIBRARIES = """
import os, sys
from tlstax.__main__ import build_parser
from tlstax.collectors.commands import watch
def sinks(*asked):
    import numpy
    print(len(os.listdir("/proc/self/task")))
    import pyarrow
    print(pyarrow.cpu_count())
    print(pyarrow.default_memory_pool().backend_name)
    sys.exit(0)
options = build_parser("watch").parse_args(["watch", "--name", "x", "--output", "x"])
options.sinks = sinks
watch.run(options)
"""


@pytest.fixture(scope="module")
def libraries() -> list[bytes]:
    """Threads of the process and of Arrow, and Arrow's allocator, where nothing is set for them."""
    unset = {
        name: of
        for name, of in os.environ.items()
        if not name.endswith(("_NUM_THREADS", "_MEMORY_POOL"))
    }
    command = [sys.executable, "-c", _LIBRARIES]
    return subprocess.run(command, env=unset, stdout=subprocess.PIPE, check=True).stdout.split()


@pytest.mark.skipif(os.cpu_count() == 1, reason="each library has one thread on one CPU")
def test_a_watch_has_no_thread_for_each_cpu(libraries: list[bytes]) -> None:
    """On a host of 64 CPUs OpenBLAS began 63 threads, or interrupted the watch for want of them."""
    assert libraries[:2] == [b"1", b"1"]


def test_arrow_uses_the_memory_of_the_c_library(libraries: list[bytes]) -> None:
    """Its own allocator kept 2 to 4 MB of what was freed, and more at some times than at others."""
    assert libraries[2] == b"system"


@pytest.mark.parametrize("pid", ["1073741823", "99999999999999999999", "-1"])
def test_a_process_that_never_was_leaves_no_data_set(
    pid: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--pid", pid, "--output", str(tmp_path / "data")]) == ExitCode.TARGET
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no such process" in line
    assert not (tmp_path / "data").exists()


def test_a_process_without_a_program_leaves_no_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that has ended and is still listed, as threads of the kernel are."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        command = ["watch", "--pid", str(ended.pid), "--output", str(tmp_path / "data")]
        assert main(command) == ExitCode.TARGET
    (line,) = capsys.readouterr().err.splitlines()
    assert no_program() in line, "the words of `tlstax attach`"
    assert not (tmp_path / "data").exists()


def test_a_path_with_a_line_break_is_one_line_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who names the file of a server writes no lines of tlstax."""
    watch._tell("recording process 7 (/srv/mysqld\ntlstax: all is well)")
    assert capsys.readouterr().err.splitlines() == [
        "tlstax: recording process 7 (/srv/mysqld tlstax: all is well)"
    ]
