# SPDX-License-Identifier: GPL-2.0-only
"""Sources beside the engine: each may fail alone, and what they print is read as it is meant."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.source_set import INTERVAL_NS, SourceSet
from tlstax.collectors.sources import procfs
from tlstax.collectors.sources.iostat import Iostat
from tlstax.collectors.sources.procfs import Procfs
from tlstax.collectors.sources.status import ServerStatus

DISKSTATS = (
    " 254 0 vda 739 2 60482 1814 1006 33 37639 90 0 198 1999 540 0 35009 64 171 10\n"
    "   7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


class Plan:
    """A source whose fate is given; a real one cannot be made to die at a chosen poll."""

    warning = ""

    def __init__(self, name: str, dies_at_poll: int | None = None) -> None:
        self.name = name
        self._left = dies_at_poll
        self.stopped_count = 0

    def start(self) -> str:
        return "1.0"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        if self._left == 0:
            raise TlstaxError("it is gone", "killed", "Start it again", ExitCode.FAILED)
        if self._left is not None:
            self._left -= 1
        return [schema.Metric(now_ns, 1, self.name, "x", "y_count", 1.0)]

    def stop(self) -> Iterable[schema.Row]:
        self.stopped_count += 1
        return [schema.Metric(1, 1, self.name, "x", "last_count", 1.0)]


def final(rows: list[schema.Row]) -> dict[str, schema.Collector]:
    return {row.name: row for row in rows if isinstance(row, schema.Collector)}


def test_one_that_dies_leaves_the_others() -> None:
    good, bad = Plan("good"), Plan("bad", dies_at_poll=1)
    sources = SourceSet([bad, good, Iostat("no-such-program")])
    rows = sources.start()
    now_ns = monotonic_ns()
    for step in range(1, 4):
        rows += sources.poll(now_ns + step * INTERVAL_NS)
    rows += sources.stop()
    states = {name: row.state for name, row in final(rows).items()}
    assert states == {"good": "finished", "bad": "failed", "iostat": "missing"}
    assert final(rows)["good"].rows_count == 4
    assert final(rows)["bad"].rows_count == 2  # one poll, and what it had left when it was stopped
    assert "killed" in final(rows)["bad"].note
    assert (good.stopped_count, bad.stopped_count) == (1, 1)
    assert [text.split(":")[0] for text in sources.failures] == ["iostat", "bad"]


class Tail(Plan):
    """A source that gives something and then fails while it ends; it can be halted."""

    halted_count = 0

    def halt(self) -> None:
        self.halted_count += 1

    def stop(self) -> Iterable[schema.Row]:
        yield schema.Metric(1, 1, self.name, "x", "kept_count", 1.0)
        raise TlstaxError("one of two failed", "it died", "Look", ExitCode.FAILED)


def test_what_a_failing_source_still_gave_is_kept() -> None:
    source = Tail("tail")
    sources = SourceSet([source])
    sources.start()
    rows = sources.stop()
    assert final(rows)["tail"].state == "failed"
    assert final(rows)["tail"].rows_count == 1
    assert [row.name for row in rows if isinstance(row, schema.Metric)] == ["kept_count"]
    assert source.halted_count == 1


class Lacking(Plan):
    """A source that cannot start here."""

    def __init__(self, name: str, part_of: str, exit_code: ExitCode) -> None:
        super().__init__(name)
        self.part_of = part_of
        self._exit_code = exit_code

    def start(self) -> str:
        if self._exit_code != ExitCode.OK:
            raise TlstaxError("it cannot be used", "it is not here", "Install it", self._exit_code)
        return "1.0"


OK, HOST, FAILED = ExitCode.OK, ExitCode.HOST, ExitCode.FAILED


@pytest.mark.parametrize(
    ("codes", "part_of", "failures", "warnings"),
    [
        ((OK, HOST), "all", [], ["b"]),  # what is here serves
        ((OK, ExitCode.TARGET), "all", [], ["b"]),
        ((OK, FAILED), "all", ["b"], []),  # it is here, and does not work
        ((OK, HOST), "", ["b"], []),  # asked for by its name
        ((HOST, HOST), "all", ["a", "b"], []),  # nothing is here
    ],
)
def test_of_several_that_one_name_stands_for_those_serve_that_are_here(
    codes: tuple[ExitCode, ExitCode], part_of: str, failures: list[str], warnings: list[str]
) -> None:
    sources = SourceSet(
        [Lacking(name, part_of, code) for name, code in zip("ab", codes, strict=True)]
    )
    rows = final(sources.start())
    assert [text.split(":")[0] for text in sources.failures] == failures
    assert [text.split(":")[0] for text in sources.warnings] == warnings
    for name, code in zip("ab", codes, strict=True):
        assert rows[name].state == ("running" if code == OK else "missing")


def test_a_late_poll_is_one_poll() -> None:
    source = Plan("good")
    sources = SourceSet([source])
    sources.start()
    now_ns = monotonic_ns()
    assert len(sources.poll(now_ns + 10 * INTERVAL_NS)) == 1
    assert sources.poll(now_ns + 10 * INTERVAL_NS + 1) == []


def test_cpu_time_is_in_nanoseconds() -> None:
    readings = dict(procfs.read_cpu("cpu  10 0 5 100 1 0 2 3 0 0\ncpu0 1 2 3 4\n"))
    assert readings["cpu", "user_ns"] == 10 * procfs._TICK_NS
    assert readings["cpu", "steal_ns"] == 3 * procfs._TICK_NS


def test_devices_are_in_bytes_and_nanoseconds_and_idle_ones_are_left_out() -> None:
    readings = dict(procfs.read_devices(DISKSTATS))
    assert readings["vda", "read_bytes"] == 60482 * 512
    assert readings["vda", "write_wait_ns"] == 90e6
    assert readings["vda", "flushes_count"] == 171
    assert {thing for thing, _ in readings} == {"vda"}


def test_pressure_is_in_nanoseconds() -> None:
    text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=5\n"
    assert dict(procfs.read_pressure("io", text)) == {
        ("pressure io", "some_ns"): 77_000,
        ("pressure io", "full_ns"): 5_000,
    }


def test_the_host_is_read_for_real() -> None:
    source = Procfs()
    source.start()
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    rows = [row for row in source.poll(monotonic_ns()) if isinstance(row, schema.Metric)]
    busy_ns = sum(row.value for row in rows if row.object == "cpu" and row.name != "idle_ns")
    assert busy_ns >= 0.1e9
    assert all(0.1e9 < row.interval_ns < 60e9 for row in rows)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    path.chmod(0o755)
    return str(path)


def until_it_fails(source: Iostat) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        list(source.poll(monotonic_ns()))
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'Linux 6.1'; exit 3", "iostat ended"),
        ('echo \'{"disk_device": "vda", "r/s": oops}\'; sleep 30', "not the expected JSON"),
        ("head -c 100000 /dev/zero; sleep 30", "not the expected JSON"),
    ],
)
def test_an_iostat_that_nobody_understands_is_named(tmp_path: Path, text: str, words: str) -> None:
    source = Iostat(program(tmp_path / "iostat", f'[ "$1" = -V ] && exit 0\n{text}'))
    source.start()
    with pytest.raises(TlstaxError, match=words):
        until_it_fails(source)
    list(source.stop())


def test_iostat_is_read_for_real(tmp_path: Path) -> None:
    source = Iostat()
    assert "sysstat" in source.start()
    rows: list[schema.Row] = []
    end = time.monotonic() + 20
    while not rows and time.monotonic() < end:
        with (tmp_path / "written").open("wb") as file:
            file.write(b"x" * 65536)
            os.fsync(file.fileno())
        rows += source.poll(monotonic_ns())
        time.sleep(0.1)
    list(source.stop())
    assert rows, "no device in 20 s"
    assert {row.source for row in rows if isinstance(row, schema.Metric)} == {"iostat"}


def test_status_without_its_option_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match=r"option file .* not found"):
        ServerStatus(option_file=tmp_path / "none.cnf").start()


def test_status_has_each_counter_that_changed_since_the_last_answer() -> None:
    """Also one that is again what it was, and what is counted twice: as a counter and as a wait."""
    status = ServerStatus(login_path="nobody")
    marker = "tlstax-status"

    def told(*lines: str) -> dict[str, str]:
        rows = status._rows(list(lines))
        return {row.name: row.value for row in rows if isinstance(row, schema.Status)}

    first = ("Questions\t1", "Uptime\t7", "Ignored\t1", marker, "wait/lock\t2\t5000")
    assert told(*first) == {
        "Questions": "1",
        "Uptime": "7",
        "wait/lock#count": "2",
        "wait/lock#time_ns": "5",
    }
    assert told(*first) == {}
    again = ("Questions\t2", "Uptime\t7", "Ignored\t2", marker, "wait/lock\t3\t5000")
    assert told(*again) == {"Questions": "2", "wait/lock#count": "3"}
    assert told(*first) == {"Questions": "1", "wait/lock#count": "2"}
