# SPDX-License-Identifier: GPL-2.0-only
"""Small captures for the tests of this folder."""

from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    TABLES,
    Column,
    Row,
    columns,
)
from tlstax.collectors.capture.writer import CaptureWriter


def example_value(column: Column, number: int) -> object:
    if column.kind is str:
        return f"{column.name} \N{SNOWMAN} {number}"
    return column.kind(number)


def example_row(table: type[Any], number: int) -> Row:
    row: Row = table(*(example_value(column, number) for column in columns(table)))
    return row


def small_capture(path: Path, windows: int = 3) -> Path:
    with CaptureWriter.create(path) as writer:
        for number in range(windows):
            for table in TABLES:
                writer.add([example_row(table, number)])
            writer.commit()
    return path


def read_all(path: Path) -> int:
    """Read every row; the number of rows."""
    with CaptureReader.open(path) as reader:
        return sum(1 for table in TABLES for _ in reader.rows(table))


def refusal(path: Path) -> TlstaxError:
    """The one error that reading must end in."""
    with pytest.raises(TlstaxError) as caught:
        read_all(path)
    assert caught.value.exit_code == ExitCode.CAPTURE
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value
