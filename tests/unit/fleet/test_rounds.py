# SPDX-License-Identifier: GPL-2.0-only
"""A round over many hosts: each is recorded or named, and never too many at a time."""

import errno
import os
import sys
import time
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.fleet import columns, location, rounds
from tlstax.analysis.fleet.rounds import Host, Outcome, Round, hosts_in, record
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.report.commands import into_data_set

# As `tlstax attach --ssh`: what it does depends on the name of the host.
ATTACH = """
import os, shutil, signal, subprocess, sys, tempfile, time
words = sys.argv[1:]
host, output = words[words.index("--ssh") + 1], words[words.index("--output") + 1]
log = os.environ["ROUND_LOG"]
def note(text):
    with open(log, "a") as file:
        file.write(f"{text} {host} {time.monotonic()} {os.getsid(0) == os.getpid()}\\n")
note("begin")
if "old" in host:
    print("tlstax: warning: the recorder is older than its sources", file=sys.stderr)
if host.startswith("mute"):
    sys.exit(3)
if host.startswith("dead"):
    print("tlstax: dead cannot be recorded: no route to host. Try ssh", file=sys.stderr)
    sys.exit(3)
if host.startswith("stuck"):
    # As at login: files of its own, and an ssh that Ctrl-C does not end.
    ssh = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    with tempfile.TemporaryDirectory(dir=os.path.dirname(log)) as made:
        child = subprocess.Popen([sys.executable, "-c", ssh])
        try:
            note(f"waits,{made},{child.pid}")
            if "deaf" in host:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            time.sleep(600)
        finally:
            child.kill()
            child.wait()
if host.startswith("long"):
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))  # as a recording that was begun
    shutil.copy(os.environ["ROUND_CAPTURE"], output)
    note("waits")
    time.sleep(600)
time.sleep(0.3)
if host.startswith("strange"):
    open(output, "w").write("no capture")
else:
    shutil.copy(os.environ["ROUND_CAPTURE"], output)
note("end")
"""


@pytest.fixture
def log(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the recordings of a round write what they do."""
    made = tmp_path / "log"
    made.touch()
    monkeypatch.setenv("ROUND_LOG", str(made))
    monkeypatch.setenv("ROUND_CAPTURE", str(repository / "docs/demo/demo.tlstax"))
    monkeypatch.setattr(rounds, "PROGRAM", (sys.executable, "-c", ATTACH))
    return made


def hosts_file(folder: Path, text: str) -> Path:
    path = folder / "hosts"
    path.write_text(text)
    return path


def most_at_once(log: Path, prefix: str) -> int:
    """Recordings of such hosts that ran at the same time."""
    events = []
    for line in log.read_text().splitlines():
        what, host, at, _ = line.split()
        if host.startswith(prefix) and what in ("begin", "end"):
            events.append((float(at), 1 if what == "begin" else -1))
    now = most = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


def test_each_host_is_in_the_data_set_or_named(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = hosts_file(tmp_path, "root@db1 eu\ndb2 us # a comment\n\ndead1\nstrange1\n")
    data = tmp_path / "data"
    command = ["fleet", "record", "--hosts", str(hosts), "--name", "mysqld", "--data", str(data)]
    assert main([*command, "--for", "1s", "--", "--sudo"]) == ExitCode.TARGET
    told = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in told.out.splitlines())
    assert (lines["db1"], lines["db2"]) == ("recorded", "recorded")
    assert "no route to host" in lines["dead1"]
    assert "strange1" in lines
    assert "2 of 4 hosts" in told.err
    rows = [
        row
        for path in data.glob("tier=1h/table=host/*/*/*.parquet")
        for rows in parquet_files.groups(path)
        for row in rows.to_pylist()
    ]
    assert {(row["host"], row["cluster"]) for row in rows} == {("db1", "eu"), ("db2", "us")}
    assert columns.Host._fields[0] == "host"
    assert all(line.endswith("True") for line in log.read_text().splitlines())


def test_what_is_about_all_hosts_is_said_once(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A round of arm64 hosts did not say that the recorder of `make recorder` was an old one."""
    hosts = hosts_file(tmp_path, "old1\nold2\nmute-old\n")
    command = ["fleet", "record", "--hosts", str(hosts), "--name", "mysqld", "--for", "1s"]
    assert main([*command, "--data", str(tmp_path / "data")]) == ExitCode.TARGET
    told = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in told.out.splitlines())
    assert lines == {
        "old1": "recorded",
        "old2": "recorded",
        "mute-old": "it ended with status 3",
    }
    assert told.err.splitlines() == [
        "tlstax: warning: the recorder is older than its sources",
        "2 of 3 hosts were recorded",
    ]


def test_no_more_run_at_a_time_than_asked_for(log: Path, tmp_path: Path) -> None:
    hosts = [Host(f"a{n}", "a") for n in range(4)] + [Host(f"b{n}", "b") for n in range(4)]
    wanted = Round(hosts, (), 1.0, parallel=3, per_cluster=2, jitter_s=0.0)
    found = list(record(wanted, tmp_path, lambda: False))
    assert {one.why for one in found} == {""}
    assert len({one.capture for one in found}) == len(hosts)
    assert most_at_once(log, "a") <= 2
    assert most_at_once(log, "b") <= 2
    assert 2 <= most_at_once(log, "") <= 3


def test_a_host_that_is_stuck_is_ended_and_the_others_go_on(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "PATIENCE_S", 15.0)
    monkeypatch.setattr(rounds, "_END_S", 8.0)
    folder = tmp_path / "kept"
    folder.mkdir()
    hosts = [Host("stuck", ""), Host("stuck-deaf", ""), Host("db1", "")]
    found = {
        one.host.name: one.why
        for one in record(Round(hosts, (), 1.0, 3, 1, 0.0), folder, lambda: False)
    }
    assert found == {"stuck": "it took too long", "stuck-deaf": "it took too long", "db1": ""}
    assert_nothing_is_left(log, {"stuck"}, {"stuck", "stuck-deaf"})


def assert_nothing_is_left(log: Path, files: set[str], processes: set[str]) -> None:
    """No files of the hosts `files` (one that is killed leaves its), no ssh of `processes`."""
    waits = [line.split()[:2] for line in log.read_text().splitlines() if "waits," in line]
    assert {host for _, host in waits} == processes
    for text, host in waits:
        _, made, pid = text.split(",")
        assert not (host in files and Path(made).exists()), host
        end = time.monotonic() + 60
        while is_running(int(pid)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not is_running(int(pid)), host


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_host_that_logs_in_when_the_round_is_interrupted_leaves_nothing(
    log: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    end = time.monotonic() + 60

    def should_stop() -> bool:
        return "waits," in log.read_text() or time.monotonic() > end

    (one,) = record(Round([Host("stuck", "")], (), 600.0, 1, 1, 0.0), folder, should_stop)
    assert one.why
    assert_nothing_is_left(log, {"stuck"}, {"stuck"})


def test_a_round_that_is_interrupted_keeps_what_is_recorded(log: Path, tmp_path: Path) -> None:
    wanted = Round([Host("long", ""), Host("db1", "")], (), 600.0, 1, 1, 0.0)
    end = time.monotonic() + 60

    def should_stop() -> bool:
        return "waits long" in log.read_text() or time.monotonic() > end

    found = list(record(wanted, tmp_path, should_stop))
    names = [(one.host.name, one.why) for one in found]
    assert names == [("long", "")]
    assert os.path.getsize(found[0].capture) > 1000


def test_captures_of_a_round_have_no_name_of_an_earlier_one(log: Path, tmp_path: Path) -> None:
    """A retention removes the older half of what --keep kept."""
    folder = tmp_path / "kept"
    folder.mkdir()
    wanted = Round([Host("db1", "")], (), 1.0, 1, 1, 0.0)
    names: list[str] = []
    for number in range(3):
        (one,) = record(wanted, folder, lambda: False)
        names.append(one.capture.name)
        time.sleep(1.1)
        if number == 1:
            (folder / names[0]).unlink()
    assert names == sorted(set(names))


def test_hosts_begin_at_different_times(log: Path, tmp_path: Path) -> None:
    wanted = Round([Host(f"db{n}", "") for n in range(4)], (), 1.0, 4, 4, 3.0)
    assert len(list(record(wanted, tmp_path, lambda: False))) == 4
    begun = [float(line.split()[2]) for line in log.read_text().splitlines() if "begin" in line]
    assert max(begun) - min(begun) > 0.2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no host"),
        ("# nothing\n", "names no host"),
        ("db1 eu west\n", "line 1"),
        ("db1\n-oProxyCommand=x\n", "line 2"),
        ("db1\nroot@db1\n", "db1 again"),
    ],
)
def test_a_bad_file_of_hosts_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TlstaxError, match=why) as refused:
        hosts_in(hosts_file(tmp_path, text))
    assert refused.value.exit_code == ExitCode.USAGE


def test_a_file_of_hosts_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="No such file"):
        hosts_in(tmp_path / "none")


@pytest.mark.parametrize("letter", ["d", "\u00fc"])
def test_a_host_whose_name_no_data_set_can_have_costs_its_line_and_is_not_recorded(
    letter: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = letter * 250
    no_file = letter * 190
    hosts = hosts_file(tmp_path, f"{long}\n{no_file}\ndb1\ndead1\n")
    data = tmp_path / "data"
    command = ["fleet", "record", "--hosts", str(hosts), "--name", "mysqld", "--data", str(data)]
    assert main([*command, "--for", "1s", "--parallel", "1"]) == ExitCode.TARGET
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["db1"] == "recorded"
    assert lines[no_file] == "recorded"
    assert "is too long" in lines[long]
    assert "dead1" in lines
    assert long not in log.read_text()


def test_a_data_set_that_is_gone_costs_lines_and_the_round_ends_in_words(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(into_data_set, "GIVE_UP", 2)
    names = [f"db{number}" for number in range(1, 6)]
    hosts = hosts_file(tmp_path, "".join(f"{name}\n" for name in names))
    data, kept = tmp_path / "data", tmp_path / "kept"
    data.write_text("a file in its place")
    command = ["fleet", "record", "--hosts", str(hosts), "--name", "mysqld", "--data", str(data)]
    assert main([*command, "--for", "1s", "--parallel", "1", "--keep", str(kept)]) == ExitCode.IO
    told = capsys.readouterr()
    lines = dict(line.split(": ", 1) for line in told.out.splitlines())
    assert len(lines) == 2, "further hosts were begun for nothing"
    for line in lines.values():
        assert "recorded, but cannot write to the data set" in line
        assert Path(line.rsplit(" ", 1)[1]).is_file()
    assert "further hosts were not begun" in told.err
    assert f"{kept} has the captures" in told.err


def test_recordings_in_between_that_are_added_begin_the_count_anew(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setattr(into_data_set, "GIVE_UP", 2)
    into = into_data_set.IntoDataSet(tmp_path / "data")
    demo = repository / "docs/demo/demo.tlstax"
    is_full = iter((True, False, True, True))

    def add(*_: object) -> str:
        if next(is_full):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return "added"

    monkeypatch.setattr(location, "add", add)
    given_up = []
    for number in range(4):
        into.add(Outcome(Host(f"db{number}", ""), demo, ""))
        given_up.append(into.is_given_up)
    assert given_up == [False, False, False, True]
    assert [one.host.name for one in into.left] == ["db0", "db2", "db3"]
