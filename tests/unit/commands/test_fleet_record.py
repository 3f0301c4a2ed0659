# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet record`: what it refuses before the first host, and how it is ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis.fleet import rounds
from tlstax.analysis.fleet.rounds import Host, hosts_in

# As `tlstax attach --ssh`: it records until it is ended as by Ctrl-C.
ATTACH: Final = """
import os, shutil, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
shutil.copy(os.environ["ROUND_CAPTURE"], sys.argv[sys.argv.index("--output") + 1])
with open(os.environ["ROUND_LOG"], "a") as log:
    print(os.getpid(), file=log)
time.sleep(600)
"""
ROUND: Final = """
import sys
from tlstax.__main__ import main
from tlstax.analysis.fleet import rounds
rounds.PROGRAM = sys.executable, "-c", sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""
PATIENCE_S: Final = 60


def command(folder: Path, hosts: str) -> list[str]:
    """A round of these hosts into the data set `data`."""
    listed = folder / "hosts"
    listed.write_text(hosts)
    words = ["fleet", "record", "--hosts", str(listed), "--name", "mysqld"]
    return [*words, "--data", str(folder / "data")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, None])
def test_a_terminal_that_is_closed_ends_a_round_in_order(
    number: int | None, repository: Path, tmp_path: Path,
    spawn: Callable[..., "subprocess.Popen[bytes]"],
) -> None:  # fmt: skip
    """Its recordings went on without it, and their captures stayed in the temporary folder.

    Without a signal (None) a line that cannot be printed ends it.
    """
    made, log = tmp_path / "tmp", tmp_path / "log"
    made.mkdir()
    log.touch()
    environment = {
        "TMPDIR": str(made),
        "ROUND_LOG": str(log),
        "ROUND_CAPTURE": str(repository / "docs/demo/demo.tlstax"),
    }
    ours, terminal = os.openpty()
    begun = spawn(
        [sys.executable, "-c", ROUND, ATTACH, *command(tmp_path, "db1 a\ndb2 b\n")],
        stdout=terminal,
        env={**os.environ, **environment},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    os.close(terminal)
    end = time.monotonic() + PATIENCE_S
    try:
        while len(pids := log.read_text().splitlines()) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        os.close(ours)  # what it prints from now on fails
        if number is None:
            os.kill(int(pids[0]), signal.SIGINT)  # this host is over, which is a line
        else:
            begun.send_signal(number)
        assert begun.wait(PATIENCE_S) == (ExitCode.OK if number else ExitCode.IO)
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    finally:
        for pid in log.read_text().splitlines():
            if Path(f"/proc/{pid}").exists():
                os.kill(int(pid), signal.SIGKILL)
    assert len(list(tmp_path.glob("data/tier=1h/table=host/*/*/*.parquet"))) == 2
    assert list(made.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "--all",
        "--ssh=db9",
        "--ssh db9",
        "-ofile",
        "--outp x",
        "--for 1h",
        "--name=x",
        "-h",
        "--al",
        "-- x",
    ],
)
def test_what_a_round_gives_itself_is_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --ssh every host had the recording of that one, with --all the round broke off."""
    monkeypatch.setattr(rounds, "PROGRAM", ("false",))
    assert main([*command(tmp_path, "db1\n"), "--", *words.split()]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert "a round cannot be made with " in told.err
    assert told.out == ""


@pytest.mark.parametrize("length", ["0s", "0m", "99999m"])
def test_a_length_that_no_recording_has_is_refused_before_the_first_host(
    length: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command(tmp_path, "db1\n"), "--for", length])
    assert f"'{length}' is not between 1s and a week" in capsys.readouterr().err


def test_a_file_of_many_hosts_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name was held against all before it: 10,000 hosts took 14 s of CPU time."""
    named: list[Host] = []

    def noted(host: Host) -> str:
        named.append(host)
        return host.name

    monkeypatch.setattr(Host, "plain_name", property(noted))
    listed = tmp_path / "hosts"
    listed.write_text("".join(f"db{number} eu\n" for number in range(300)))
    found = hosts_in(listed)
    assert [host.name for host in found[:2]] == ["db0", "db1"]
    assert len(found) == len(named) == 300
