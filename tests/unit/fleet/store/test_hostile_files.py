# SPDX-License-Identifier: GPL-2.0-only
"""Files that somebody else wrote: whole, of the right columns, and with values of no recording."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.store import layout, parquet_files, selection
from tlstax.analysis.fleet.store.layout import part_name
from tlstax.analysis.fleet.store.parquet_files import UnreadableError
from tlstax.tests.fleet_replay import START_NS
from tlstax.tests.unit.fleet.test_observed import facts, interval, store

BAD = "a\x1b[31m\u202eb'c\\d"
MOST = 2**63 - 1
DAY = "2026-11-21T00:00..2026-11-22T00:00"
DAY_BEFORE = "2026-11-20T00:00..2026-11-21T00:00"


def intervals() -> list[columns.Interval]:
    large = {"served_ns": MOST, "on_cpu_ns": MOST, "handshake_cpu_ns": MOST, "recorded_ns": MOST}
    odd = {"ledger_observed_ns": 1, "handshake_observed_ns": -5, "full_count": -MOST}
    return [
        interval(0, BAD),
        interval(0, "plain"),
        interval(0, "large", handshake_count=MOST, **large, **odd),
        interval(0, "negative", recorded_ns=-1, ledger_observed_ns=-1),
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    names = [row.host for row in intervals()]
    for tier in columns.TIERS:
        store(folder, tier, columns.Interval, intervals())
    hosts = [facts(n, cluster=BAD, server_version=BAD, tls_library=BAD) for n in names]
    store(folder, "1h", columns.Host, hosts)
    shares = zip(names, (float("nan"), float("inf"), 1e308, -1e308), strict=True)
    found = [columns.Finding(n, START_NS, 1, BAD, BAD, share, share, BAD) for n, share in shares]
    store(folder, "1h", columns.Finding, found)
    buckets = ((MOST - 5, [1, 2]), (-MOST, [5]), (3, [MOST, MOST]), (0, [-5]))
    store(
        *(folder, "1h", columns.PhaseLatency),
        [
            columns.PhaseLatency(name, START_NS, 1, "handshake_wall", 5, 2, first, counts)
            for name, (first, counts) in zip(names, buckets, strict=True)
        ],
    )
    rests: tuple[tuple[Any, list[Any]], ...] = (
        (columns.Ledger, [BAD, BAD, *[MOST] * 7]),
        (columns.Handshake, [BAD, BAD, BAD, BAD, BAD, *[MOST] * 12]),
        (columns.Stacks, ["on_cpu", BAD, "on_cpu", BAD, -1, 5, 6, MOST, MOST]),
        (columns.ClientNet, [BAD, 1, MOST, MOST, -MOST]),
    )
    for table, rest in rests:
        rows = [table(name, START_NS, 1, *rest) for name in names[:2]]
        store(folder, "1h", table, rows)
    store(folder, "1h", columns.Stack, [columns.Stack(5, START_NS, [7] * 3000)])
    store(folder, "1h", columns.Frame, [columns.Frame(7, START_NS, BAD, -5, BAD, BAD, BAD)])
    for date in ("9999-12-31", "0001-01-01"):
        (folder / f"tier=1h/table=interval/date={date}/hour=23").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["top"],
        ["top", "--by", "tls_share"],
        ["top", "--by", f"finding:{BAD}"],
        ["top", "--group-by", "tls_library"],
        ["explain", BAD],
        ["explain", "plain"],
        ["explain", "large"],
        ["compare", "--group", "host=plain", "--against", "host=*"],
        ["compare", "--before", DAY_BEFORE, "--after", DAY],
        ["flamegraph", "-o", "-"],
        ["flamegraph", "-o", "-", "--kind", "off-cpu"],
        ["sql", "SELECT * FROM host"],
        ["sql", "SELECT * FROM finding", "--json", "-"],
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_question_is_answered_or_refused_in_a_sentence(
    data: Path, capsys: Any, words: list[str]
) -> None:
    status = main(["fleet", words[0], "--data", str(data), *words[1:]])
    printed = capsys.readouterr()
    assert not {"\x1b", "\u202e"} & set(printed.out + printed.err)
    assert status in (ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE)
    assert printed.err.count("\n") == (status != ExitCode.OK), printed.err


def test_pages_hold_no_control_characters(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    assert main(["fleet", "top", "--data", str(data), "--html", str(page)]) == 0
    assert not {"\x1b", "\u202e"} & set(page.read_text())


def test_folders_of_years_without_recordings_are_none_of_ours(data: Path) -> None:
    # Else the span of all data ends in the year 10000, which no calendar has.
    assert Question(data).span() == Span(START_NS, START_NS + HOUR_NS)


def test_a_footer_of_any_bytes_is_a_damaged_file(tmp_path: Path) -> None:
    """Each byte in turn: pyarrow has three kinds of errors for them."""
    path = tmp_path / part_name(1)
    parquet_files.write(path, columns.Stack, [parquet_files.table_of(columns.Stack, [])])
    content = path.read_bytes()
    refused = 0
    for at in range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x80]) + content[at + 1 :])
        try:
            parquet_files.check(path, columns.Stack)
        except (UnreadableError, TlstaxError):
            refused += 1
    assert refused > 100


def said_of(data: Path, capsys: Any, command: str, *words: str) -> tuple[int, str]:
    """The exit status and standard error of a command."""
    status = main(["fleet", command, "--data", str(data), *words])
    return status, capsys.readouterr().err


@pytest.mark.parametrize("target", ["nowhere.parquet", part_name(98)])
def test_a_link_to_nothing_costs_its_line_and_not_its_hour(
    tmp_path: Path, capsys: Any, target: str
) -> None:
    """To a file that is not there, and to itself."""
    store(tmp_path, "1h", columns.Interval, intervals())
    (folder,) = tmp_path.glob("tier=1h/table=interval/*/*")
    (folder / part_name(98)).symlink_to(target)
    found = selection.select(tmp_path, "1h", [columns.Interval])
    assert len(found.files[columns.Interval]) == 1
    (said,) = found.left_out
    assert part_name(98) in said
    status, errors = said_of(tmp_path, capsys, "compact")
    assert (status, errors.count("\n")) == (ExitCode.CAPTURE, 1), errors


def test_files_that_always_vanish_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an hour that is replaced again and again would be missing without a word."""
    store(tmp_path, "1h", columns.Interval, intervals())

    def vanished(path: Path, table: object) -> None:
        raise FileNotFoundError(2, "No such file", str(path))

    monkeypatch.setattr(parquet_files, "check", vanished)
    found = selection.select(tmp_path, "1h", [columns.Interval])
    (said,) = found.left_out
    assert "were replaced while they were read" in said


@pytest.mark.parametrize("name", ["tier=1h", "table=interval"])
def test_a_folder_that_may_not_be_read_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    store(tmp_path, "1h", columns.Interval, intervals())
    is_dir, iterdir = Path.is_dir, Path.iterdir

    def checked(path: Path) -> Path:
        if path.name == name:
            _forbidden()
        return path

    monkeypatch.setattr(Path, "is_dir", lambda path: is_dir(checked(path)))
    monkeypatch.setattr(Path, "iterdir", lambda path: iterdir(checked(path)))
    status, errors = said_of(tmp_path, capsys, "top")
    assert status == ExitCode.IO
    assert errors.startswith(f"tlstax: cannot read {tmp_path}")
    assert "permission denied" in errors


@pytest.mark.parametrize("words", [["sql", "SELECT COUNT(*) FROM interval"], ["compact"]])
def test_an_hour_that_may_not_be_entered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str]
) -> None:
    """A day that another user has merged was missing from every answer without a word."""
    store(tmp_path, "1h", columns.Interval, intervals())
    (folder,) = tmp_path.glob("tier=1h/table=interval/*/*")
    scandir = os.scandir

    def entered(path: Any) -> Any:
        return _forbidden() if Path(path) == folder else scandir(path)

    monkeypatch.setattr(os, "scandir", entered)
    _, errors = said_of(tmp_path, capsys, *words)
    assert f"tlstax: {folder} was not" in errors
    assert "permission denied" in errors


def test_a_file_that_may_not_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path, "1h", columns.Interval, intervals())
    monkeypatch.setattr("pyarrow.parquet.read_metadata", _forbidden)
    (said,) = selection.select(tmp_path, "1h", [columns.Interval]).left_out
    assert said.endswith("permission denied")


def _forbidden(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_nobody_waits_for_the_writer_of_a_named_pipe(tmp_path: Path) -> None:
    store(tmp_path, "1h", columns.Interval, intervals())
    (folder,) = tmp_path.glob("tier=1h/table=interval/*/*")
    os.mkfifo(folder / part_name(99))
    fork = multiprocessing.get_context("fork")
    found = fork.SimpleQueue()

    def look() -> None:
        found.put(selection.select(tmp_path, "1h", [columns.Interval]).left_out)

    process = fork.Process(target=look)
    process.start()
    process.join(30)
    is_waiting = process.is_alive()
    process.kill()
    assert not is_waiting
    (said,) = found.get()
    assert said.endswith("it is no regular file")


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo"])
@pytest.mark.parametrize("which", ["claim", "lock", "lock_recording"])
def test_a_link_in_the_place_of_a_lock_is_not_followed(
    tmp_path: Path, kind: str, which: str
) -> None:
    """Root watches into a folder whose owner may put anything into it."""
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.write_text("of root")
    holds: dict[str, Callable[[], object]] = {
        "claim": lambda: layout.claim(data, "h"),
        "lock": lambda: layout.lock(data, exclusive=True).__enter__(),
        "lock_recording": lambda: layout.lock_recording(data, 5).__enter__(),
    }
    name = {
        "claim": f".lock-watch-{layout.host_key('h')}",
        "lock": ".lock",
        "lock_recording": ".lock-5",
    }[which]
    if kind == "fifo":
        os.mkfifo(data / name)
    else:
        (data / name).symlink_to(other if kind == "link" else tmp_path / "new")
    with pytest.raises(TlstaxError) as caught:
        holds[which]()
    assert caught.value.exit_code == ExitCode.IO
    assert other.read_text() == "of root"
    assert not (tmp_path / "new").exists()
