# SPDX-License-Identifier: GPL-2.0-only
"""The capture: what is written is read, what is damaged is refused in one sentence."""

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.document import capture_markdown
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    ADDED,
    KEYED,
    TABLES,
    Latency,
    Ledger,
    Meta,
    Probe,
    Row,
    SampleStack,
    Target,
    Thread,
    Window,
    columns,
    create_table,
    table_name,
)
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.tests.unit.capture.examples import example_row, example_value, refusal, small_capture

ROOT = Path(__file__).resolve().parents[3]


def test_every_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a.tlstax")
    with CaptureReader.open(path) as reader:
        for table in TABLES:
            assert list(reader.rows(table)) == [example_row(table, n) for n in range(3)]
        assert reader.meta() == {f"key \N{SNOWMAN} {n}": f"value \N{SNOWMAN} {n}" for n in range(3)}
        assert not reader.recovered


def test_nullable_columns_hold_null(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "a") as writer:
        for table in TABLES:
            values: list[Any] = [
                None if column.nullable else example_value(column, 1) for column in columns(table)
            ]
            writer.add(table(*values))
    with CaptureReader.open(tmp_path / "a") as reader:
        assert next(reader.rows(Window)).run_id is None
        assert next(reader.rows(SampleStack)).user_stack_id is None


def test_one_row_a_list_and_a_mixture_can_be_added(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "a") as writer:
        writer.add(Meta("a", "1"))
        writer.add([])
        mixture: list[Row] = [Meta("b", "2"), Window(1, None, 0, 9), Meta("c", "3")]
        writer.add(row for row in mixture)
        writer.add(Ledger(1, 2, "idle", "on_cpu", n) for n in range(1000))
    with CaptureReader.open(tmp_path / "a") as reader:
        assert list(reader.meta()) == ["a", "b", "c"]
        assert [row.time_ns for row in reader.rows(Ledger)] == list(range(1000))


def test_a_later_row_replaces_one_with_the_same_key_and_facts_add_up(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "a") as writer:
        writer.add(Thread(7, 100, "conn", "connection", 5, None))
        writer.commit()
        writer.add(Thread(7, 100, "conn", "connection", 5, 9))
        writer.add([Ledger(1, 7, "command", "on_cpu", 3)] * 2)
    with CaptureReader.open(tmp_path / "a") as reader:
        assert list(reader.rows(Thread)) == [Thread(7, 100, "conn", "connection", 5, 9)]
        assert len(list(reader.rows(Ledger))) == 2


def test_rows_can_be_selected(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    with CaptureReader.open(path) as reader:
        assert [row.window_id for row in reader.rows(Window, "window_id > ?", (0,))] == [1, 2]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        small_capture(tmp_path / "a")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_closed_capture_is_one_file(tmp_path: Path) -> None:
    small_capture(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_rows_that_were_not_committed_are_not_there_after_an_error(tmp_path: Path) -> None:
    def interrupted() -> None:
        with CaptureWriter.create(tmp_path / "a") as writer:
            writer.add(Meta("kept", ""))
            writer.commit()
            writer.add(Meta("half", ""))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with CaptureReader.open(tmp_path / "a") as reader:
        assert list(reader.meta()) == ["kept"]


def test_a_capture_can_be_read_while_it_is_recorded(tmp_path: Path) -> None:
    with CaptureWriter.create(tmp_path / "a") as writer:
        writer.add(Meta("first", ""))
        writer.commit()
        writer.add(Meta("second", ""))
        with CaptureReader.open(tmp_path / "a") as reader:
            assert list(reader.meta()) == ["first"]
        writer.commit()
        with CaptureReader.open(tmp_path / "a") as reader:
            assert list(reader.meta()) == ["first", "second"]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    with pytest.raises(TlstaxError, match="the file exists") as caught:
        CaptureWriter.create(path)
    assert caught.value.exit_code == ExitCode.USAGE
    with CaptureWriter.create(path, overwrite=True) as writer:
        writer.add(Meta("new", ""))
    with CaptureReader.open(path) as reader:
        assert list(reader.meta()) == ["new"]


@pytest.mark.parametrize("kind", ["text", "directory", "link", "sqlite"])
def test_what_is_no_capture_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "text":
        path.write_text("a letter that somebody wrote" * 9)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        small_capture(tmp_path / "b")
        path.symlink_to(tmp_path / "b")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE mine (a)")
        connection.close()
    with pytest.raises(TlstaxError, match="not a tlstax capture") as caught:
        CaptureWriter.create(path, overwrite=True)
    assert caught.value.exit_code == ExitCode.USAGE
    assert path.exists()


def test_a_missing_directory_is_an_error_of_writing(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="No such file") as caught:
        CaptureWriter.create(tmp_path / "none" / "a")
    assert caught.value.exit_code == ExitCode.IO


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert "no such file" in refusal(path).why
    path.mkdir()
    assert "directory" in refusal(path).why
    path.rmdir()
    for content in (b"", b"SQLite format 3\x00", b"\x7fELF" + bytes(4096), b"a;b;c 12\n" * 99):
        path.write_bytes(content)
        assert "not a tlstax capture" in refusal(path).why
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    assert "another program" in refusal(path).why


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 77")
    connection.close()
    error = refusal(path)
    assert "version 77" in error.why
    assert "version of tlstax" in error.do


ADDED_COLUMNS = {
    "target": ("role", "own_pid", "label"),
    "probe": ("target_id", "begun_count", "healed_count"),
    "window": ("target_id", "level", "engine"),
    "thread": ("target_id",),
}
FIRST_TABLES = {table_name(table) for table in TABLES} - {table_name(table) for table in ADDED}


def first_version(path: Path) -> Path:
    """A capture as the first version of the schema had it."""
    small_capture(path)
    connection = sqlite3.connect(path)
    for table in TABLES:
        name = table_name(table)
        if name not in FIRST_TABLES:
            connection.execute(f"DROP TABLE {name}")
            continue
        present = [c.name for c in columns(table) if c.name not in ADDED_COLUMNS.get(name, ())]
        rows = connection.execute(f"SELECT {', '.join(present)} FROM {name}").fetchall()
        connection.execute(f"DROP TABLE {name}")
        connection.execute(create_table(table, present))
        marks = ", ".join("?" * len(present))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    return path


def test_a_capture_of_the_first_version_is_read_with_defaults(tmp_path: Path) -> None:
    path = first_version(tmp_path / "a")
    with CaptureReader.open(path) as reader:
        windows = list(reader.rows(Window, "window_id > ?", (0,)))
        assert [(row.window_id, row.target_id, row.level) for row in windows] == [
            (1, 1, "full"),
            (2, 1, "full"),
        ]
        assert {row.role for row in reader.rows(Target)} == {"server"}
        assert {row.target_id for row in reader.rows(Thread)} == {1}
        assert {row.target_id for row in reader.rows(Probe)} == {1}
        for table in TABLES:
            assert len(list(reader.rows(table))) == 3 * (table_name(table) in FIRST_TABLES)


def test_a_column_of_the_first_version_may_not_be_missing(tmp_path: Path) -> None:
    path = first_version(tmp_path / "a")
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE ledger DROP COLUMN phase")
    connection.close()
    assert "tables" in refusal(path).why


def test_what_was_added_since_the_first_version_stands_last_and_has_a_default() -> None:
    assert len(FIRST_TABLES) == 18
    for table in TABLES:
        added = ADDED_COLUMNS.get(table_name(table), ())
        names = tuple(column.name for column in columns(table))
        assert names[len(names) - len(added) :] == added
        assert set(added) <= set(table._field_defaults)


@pytest.mark.parametrize("make", [small_capture, first_version])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE ledger",
        "ALTER TABLE ledger ADD COLUMN more",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON ledger BEGIN SELECT 1; END",
    ],
)
def test_other_tables_views_and_triggers_are_refused(
    tmp_path: Path, statement: str, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path / "a")
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    assert "tables" in refusal(path).why


def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE ledger SET time_ns = 'soon'")
    connection.commit()
    connection.close()
    assert "ledger.time_ns" in refusal(path).why


def test_a_number_without_end_is_refused(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE probe SET cost_ns = 9e999")
    connection.commit()
    connection.close()
    assert "probe.cost_ns" in refusal(path).why


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = CAST(x'ff' AS TEXT)")
    connection.commit()
    connection.close()
    refusal(path)


def test_a_damaged_schema_that_sqlite_quotes_is_refused(tmp_path: Path) -> None:
    path = small_capture(tmp_path / "a")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE TABLE", b"CR\xe5ATE TABL"))
    refusal(path)


def test_an_unreadable_path_is_refused(tmp_path: Path) -> None:
    assert "File name too long" in refusal(tmp_path / ("a" * 300)).why


def test_the_documentation_is_current() -> None:
    assert (ROOT / "docs" / "capture.md").read_text(encoding="utf-8") == capture_markdown()


def test_every_column_is_documented_and_numbers_have_units() -> None:
    plain = {"round", "server_start", "pid", "own_pid", "tid", "stepped", "resumed", "syscall"}
    plain |= {"value", "scale", "cost_counted"}  # a metric's name says the unit
    for table in TABLES:
        for column in columns(table):
            assert column.doc, (table, column)
            if column.kind is not str and column.name not in plain:
                assert column.name.endswith(("_id", "_ns", "_bytes", "_count", "_hz")), column
        assert (table in KEYED) == (columns(table)[0].name in ("key", f"{table_key(table)}_id"))


def table_key(table: type[Any]) -> str:
    return table.__name__.lower() if table in KEYED else "no key"


@pytest.mark.parametrize(("low_ns", "is_refused"), [(4, False), (5, True), (6, True)])
def test_a_bucket_that_holds_no_value_is_refused(
    tmp_path: Path, low_ns: int, is_refused: bool
) -> None:
    """Its upper bound is exclusive; a share of its width would be divided by 0."""
    path = tmp_path / "a"
    with CaptureWriter.create(path, overwrite=False) as writer:
        writer.add([Latency(1, "command", low_ns, 5, 1)])
    with CaptureReader.open(path) as reader:
        if not is_refused:
            reader.require_counts()
            return
        with pytest.raises(TlstaxError) as caught:
            reader.require_counts()
    assert caught.value.exit_code == ExitCode.CAPTURE
    assert "latency.high_ns holds 5" in caught.value.why
