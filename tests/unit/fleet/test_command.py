# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet` as users run it: what it writes and prints, links, and what it refuses."""

import builtins
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.clickhouse_ddl import ddl
from tlstax.analysis.fleet.column_reference import columns_markdown
from tlstax.analysis.fleet.columns import HOUR_NS, TABLES
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.collectors.capture.schema import table_name
from tlstax.tests import fleet_writer
from tlstax.tests.fleet_replay import START_NS, Fleet, Planted

ROOT = Path(__file__).resolve().parents[3]
TIME_NS = "2026-11-21 00:00:00.123456789"
HOSTILE = "<script>alert(1)</script>&'\"{{7*7}}"


@pytest.fixture(scope="module")
def data(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("fleet")
    for host, cluster in (("db1", "eu"), (HOSTILE, HOSTILE)):
        options = ["--data", str(target), "--host", host, "--cluster", cluster]
        assert main(["fleet", "add", str(demo), *options]) == 0
    return target


@pytest.fixture(scope="module")
def day(profile: RolledUp, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("day")
    fleet = Fleet(30, [profile], Planted(START_NS + 12 * HOUR_NS, (3,)))
    fleet_writer.write(fleet, target, "1h", 24, (columns.Interval, columns.Host))
    return target


def ask(data: Path, *words: str) -> int:
    return main(["fleet", words[0], "--data", str(data), *words[1:]])


def test_folders_of_captures_are_added_and_a_bad_one_costs_its_line(
    demo: Path, tmp_path: Path, capsys: Any
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "data"
    captures.mkdir()
    shutil.copyfile(demo, captures / "good.tlstax")
    (captures / "bad.tlstax").write_text("no capture")
    assert ask(target, "add", str(captures)) == ExitCode.CAPTURE
    printed = capsys.readouterr()
    assert "good.tlstax: vm, 26.4 s: added" in printed.out
    assert "bad.tlstax: it is not a tlstax capture" in printed.err
    assert ask(target, "add", str(captures / "good.tlstax")) == 0
    assert "already in the data set" in capsys.readouterr().out
    assert ask(target, "compact") == 0


def test_several_servers_of_a_host_without_a_name_are_told(
    demo: Path, tmp_path: Path, capsys: Any
) -> None:
    """They are one host of the data set then, and its CPUs the mean of theirs."""
    capture = tmp_path / "one.tlstax"
    shutil.copyfile(demo, capture)
    with closing(sqlite3.connect(capture)) as database, database:
        database.execute("INSERT INTO meta VALUES ('recording_id', '00ff')")
    assert ask(tmp_path / "data", "add", str(capture)) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "vm has several servers" in line
    assert ask(tmp_path / "data", "add", str(capture), "--host", "vm-3306") == 0
    assert capsys.readouterr().err == ""


def test_one_document_has_every_form(data: Path, tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "fleet.html"
    assert ask(data, "top", "--json", "-", "--html", str(page)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert {line["host"] for line in document["hosts"]} == {"db1", HOSTILE}
    assert document["fleet"]["host_count"] == 2
    assert page.read_text().startswith("<!doctype html>")


def test_names_of_hosts_do_nothing_in_a_page(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    assert ask(data, "top", "--html", str(page)) == 0
    text = page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "{{7*7}}" in text.replace("&#39;", "'")


def test_hosts_link_to_their_own_reports(day: Path, tmp_path: Path) -> None:
    reports, page = tmp_path / "reports", tmp_path / "changes.html"
    reports.mkdir()
    (reports / "replayed-00003.html").write_text("its report")
    at = ["--at", "2026-11-21T12:00", "--html", str(page)]
    assert ask(day, "compare", *at, "--reports", str(reports)) == 0
    link = (reports / "replayed-00003.html").as_uri()
    assert f'<a href="{link}">replayed-00003</a>' in page.read_text()
    assert ask(day, "compare", *at, "--reports", "https://example.net/r") == 0
    assert 'href="https://example.net/r/replayed-00003.html"' in page.read_text()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", ".hidden", HOSTILE])
def test_a_name_that_is_no_file_name_has_no_link(name: str, tmp_path: Path) -> None:
    from tlstax.analysis.fleet.question import Question

    assert Question(tmp_path, reports="https://example.net").report(name) == ""


def test_what_changed_is_told_on_the_terminal(day: Path, capsys: Any) -> None:
    assert ask(day, "compare", "--at", "2026-11-21T12:00", "--span", "12h") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1 of 30 hosts changed more than the others" in text
    assert "more CPU time of a signature on replayed-00003" in text
    assert "May come from: a longer key" in text
    assert ask(day, "compare", "--group", "host=replayed-00003", "--against", "host=*") == 0
    assert "range" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["compare"], ExitCode.USAGE, "three ways"),
        (["compare", "--at", "2026-11-21T12:00", "--group", "a=b"], ExitCode.USAGE, "three ways"),
        (["compare", "--before", "2026-11-21T12:00"], ExitCode.USAGE, "three ways"),
        (["compare", "--at", "noon"], ExitCode.USAGE, "2026-11-22T12:00"),
        (["compare", "--at", "2026-11-21T12:00", "--span", "0h"], ExitCode.USAGE, "12h"),
        (["compare", "--before", "1", "--after", "2"], ExitCode.USAGE, "'..'"),
        (["compare", "--at", "2026-11-21T12:00", "--span", "999999d"], ExitCode.USAGE, "too long"),
        (
            [
                "compare",
                "--before",
                "2026-11-21T00:00..2026-11-21T13:00",
                "--after",
                "2026-11-21T12:00..2026-11-21T20:00",
            ],
            ExitCode.USAGE,
            "overlap",
        ),
        (["sql", "SELECT ['infinity'::DATE] AS d"], ExitCode.USAGE, "CAST(d AS VARCHAR)"),
        (["sql", "SELECT [DATE '99999-01-01'] AS d"], ExitCode.USAGE, "CAST(d AS VARCHAR)"),
        (["top", "--by", "beauty"], ExitCode.USAGE, "there is no metric beauty"),
        (["top", "--where", "colour=red"], ExitCode.USAGE, "cannot choose hosts"),
        (["top", "--most", "0"], ExitCode.USAGE, "less than 1"),
        (["top", "--from", "2026-11-22", "--to", "2026-11-21"], ExitCode.USAGE, "is empty"),
        (["explain", "db99"], ExitCode.USAGE, "no host db99"),
        (["whatif", "--pool", "9", "--from-key", "rsa:2048"], ExitCode.USAGE, "no effect here"),
        (["whatif", "--library", "wolfssl", "--costs", "x"], ExitCode.USAGE, "--costs has no"),
        (["flamegraph", "-o", "-"], ExitCode.USAGE, "nothing to draw"),
        (["sql", "DROP VIEW host"], ExitCode.USAGE, "single SELECT"),
        (["sql", "SELECT 1; SELECT 2"], ExitCode.USAGE, "single SELECT"),
        (["sql", "COPY interval TO 'x.csv'"], ExitCode.USAGE, "single SELECT"),
        (["sql", "SELECT * FROM read_text('/etc/hostname')"], ExitCode.FAILED, "disabled"),
        (["sql", "SELECT nothing FROM host"], ExitCode.FAILED, "could not answer"),
        (["sql", "SELEC"], ExitCode.FAILED, "could not answer"),
    ],
)
def test_refusals(day: Path, capsys: Any, words: list[str], code: ExitCode, says: str) -> None:
    assert ask(day, *words) == code
    error = capsys.readouterr().err
    assert error.startswith("tlstax: ")
    assert says in error
    assert error.count("\n") == 1


def test_a_folder_without_data_and_two_names_are_refused(
    demo: Path, tmp_path: Path, capsys: Any
) -> None:
    assert ask(tmp_path, "top") == ExitCode.USAGE
    assert "fleet add" in capsys.readouterr().err
    assert ask(tmp_path, "add", str(demo), str(demo), "--host", "a") == ExitCode.USAGE
    assert ask(tmp_path, "add", str(tmp_path)) == ExitCode.USAGE
    assert ask(tmp_path, "add", str(tmp_path / "none.tlstax")) == ExitCode.CAPTURE
    braces = tmp_path / "{x}"
    assert ask(braces, "add", str(demo)) == 0
    capsys.readouterr()
    assert ask(braces, "top") == ExitCode.USAGE
    assert "pattern" in capsys.readouterr().err


def test_a_disk_that_cannot_be_written_is_one_error(
    demo: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "file").write_text("")
    assert ask(tmp_path / "file" / "data", "add", str(demo)) == ExitCode.IO
    assert "cannot write to the data set" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_a_missing_package_is_one_sentence_that_says_what_to_install(
    data: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **named)

    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.setitem(sys.modules, package, None)
    assert ask(data, "top") == ExitCode.HOST
    error = capsys.readouterr().err
    assert f"the Python package {package} is not installed. pip install 'tlstax[fleet]'" in error


def test_sql_reads_every_table(data: Path, tmp_path: Path, capsys: Any) -> None:
    for table in TABLES:
        name = table_name(table)
        rows = tmp_path / f"{name}.json"
        assert ask(data, "sql", f"SELECT * FROM {name} LIMIT 2", "--json", str(rows)) == 0
        found = json.loads(rows.read_text())
        if table not in (columns.ClientNet, columns.RecordSplit, columns.Finding):
            assert list(found[0]) == list(table._fields)
    assert ask(data, "sql", "SELECT host, SUM(sample_count) AS n FROM interval GROUP BY host") == 0
    assert "26239" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("query", "printed"),
    [
        ("SELECT make_timestamp_ns(1795219200123456789) AS t", [{"t": TIME_NS}]),
        ("SELECT 1 AS a, 2 AS a", [{"a": 1, "a_2": 2}]),
        ("SELECT {'x': 1.5, 'y': [2]} AS s", [{"s": {"x": 1.5, "y": [2]}}]),
        ("SELECT MAP{'k': 1.5} AS m", [{"m": [["k", 1.5]]}]),
        ("SELECT 1e400 AS f, NULL AS n, true AS b", [{"f": "inf", "n": None, "b": True}]),
        ("SELECT 1 AS a WHERE false", []),
    ],
)
def test_sql_prints_what_duckdb_has(day: Path, capsys: Any, query: str, printed: Any) -> None:
    assert ask(day, "sql", query, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out) == printed
    assert ask(day, "sql", query) == 0
    assert capsys.readouterr().out.startswith(query.split(" AS ")[1][0])


def test_pages_of_tables_are_those_of_the_code() -> None:
    """If this fails, run `make capture-docs`."""
    assert (ROOT / "docs/fleet-columns.md").read_text() == columns_markdown()
    assert (ROOT / "docs/fleet-clickhouse.sql").read_text() == ddl()


def test_every_number_says_its_unit() -> None:
    exceptions = {"source_id", "scale", "first_bucket", "counts", "frame_ids", "syscall", "share"}
    for table in TABLES:
        for column in columns.columns(table):
            if column.kind != "str" and column.name not in exceptions:
                assert column.name.endswith(("_ns", "_count", "_bytes", "_id")), column.name


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs/fleet.md").read_text()
    for command in ("add", "compact", "top", "compare", "explain", "flamegraph", "sql"):
        assert f"tlstax fleet {command}" in page
