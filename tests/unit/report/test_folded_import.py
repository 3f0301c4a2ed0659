# SPDX-License-Identifier: GPL-2.0-only
"""Folded stacks, which other tools write, as a source of captures."""

from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader


def imported(tmp_path: Path, text: str, *more: str) -> int:
    (tmp_path / "x.folded").write_text(text)
    output = str(tmp_path / "x.tlstax")
    return main(["import", str(tmp_path / "x.folded"), "-o", output, "--force", *more])


def test_folded_stacks_become_a_capture(tmp_path: Path) -> None:
    text = (
        "start_thread;do_command(THD*, bool);dispatch_command(enum_server_command);work 30\n"
        "start_thread;do_command(THD*, bool);SSL_read;entry_SYSCALL_64_after_hwframe_[k];"
        "__x64_sys_read_[k] 10\n"
        "\n"
    )
    assert imported(tmp_path, text, "--hz", "100") == 0
    with CaptureReader.open(tmp_path / "x.tlstax") as reader:
        rows = tables.load(reader)
    assert sum(row.sample_count for row in rows.samples) == 40
    assert {row.phase for row in rows.samples} == {"command", "record_read"}
    assert sum(row.time_ns for row in rows.ledger) == 400_000_000
    assert {frame.object for frame in rows.frames} == {"?", "kernel"}
    explain.explain(rows)


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("a;b 3\n", (), "--hz"),
        ("a;b three\n", ("--hz", "99"), "line 1"),
        ("a 1\nb\n", ("--hz", "99"), "line 2"),
        ("a;b 99999999999999\n", ("--hz", "99"), "durations"),
        ("a;b 5\n", ("--hz", "1e-320"), "last longer"),
        ("a;b 5\n", ("--hz", "1e-10"), "last longer"),
        ("", ("--hz", "99"), "no sample"),
        ("\0\1\2", ("--hz", "99"), "neither"),
    ],
)
def test_what_is_no_folded_file_is_refused_in_words(
    text: str,
    more: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert imported(tmp_path, text, *more) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x.tlstax").exists()
