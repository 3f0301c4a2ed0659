# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's cells.c: a reader has what the programs count after each window that had room.

Time can be taken back, also to 0, and also in a window of which the reader never gets anything.
"""

import ctypes
import subprocess
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tlstax.collectors.recording.programs import ledger_layout

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "collectors/recorder"
ROW: Final = ledger_layout.STATE_CELLS
CELLS: Final = ledger_layout.PHASE_CELLS * (ROW + 1)
WINDOWS, ACCOUNTS, SEED = 60, 40, 13
FAULTS: Final = (
    ("is_known ? now[i] == before[i]", "1 ? now[i] == before[i]"),
    ("!now[i] && !(used >> i & 1)", "!now[i]"),
    ("(is_known || !used) && is_equal", "is_equal"),
    ("used ? sent->cells + row * ROW : unused", "unused"),
    ("sent->cells[index] = changed->value[i];", ""),
    (
        "u32 row = 0; row < ROWS; row++) {\n\t\tu32 used",
        "u32 row = ROWS; row-- > 0;) {\n\t\tu32 used",
    ),
)


class Sent(ctypes.Structure):
    """`struct sent_cells`."""

    _fields_ = (("used", ctypes.c_uint8 * (CELLS // ROW)), ("cells", ctypes.c_uint64 * CELLS))


class Changed(ctypes.Structure):
    """`struct changed_cells`."""

    _fields_ = (
        ("count", ctypes.c_uint32),
        ("index", ctypes.c_uint32 * CELLS),
        ("value", ctypes.c_uint64 * CELLS),
    )


def library(folder: Path, old: str = "", new: str = "") -> Any:
    text = (FOLDER / "cells.c").read_text()
    assert old in text
    source, made = folder / "cells.c", folder / "cells.so"
    source.write_text(text.replace(old, new, 1) if old else text)
    subprocess.run(
        [
            *("clang", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-Wall"),
            *("-fsanitize=undefined", "-fsanitize-trap=undefined", "-I", str(FOLDER)),
            *("-I", str(ROOT / "probes/bpf"), "-o", str(made), str(source)),
        ],
        check=True,
    )
    return ctypes.CDLL(str(made))


def wrong_count(cells: Any) -> int:
    """Windows after which a reader had something else than what was counted, or out of order."""
    random = np.random.default_rng(SEED)
    wrong = 0
    for _ in range(ACCOUNTS):
        now = np.zeros(CELLS, dtype=np.uint64)
        reader = np.zeros(CELLS, dtype=np.uint64)
        used = random.choice(CELLS, size=12, replace=False)
        sent, changed, is_known = Sent(), Changed(), True
        for _ in range(WINDOWS):
            some = random.choice(used, size=4)
            now[some] = random.choice([0, 5, 7, 2**63], size=4)
            pointer = now.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64))
            cells.cells_compare(
                pointer, ctypes.byref(sent), ctypes.c_bool(is_known), ctypes.byref(changed)
            )
            cells.cells_sent(ctypes.byref(sent), ctypes.byref(changed))
            told = changed.index[: changed.count]
            wrong += told != sorted(told)
            is_known = random.random() < 0.6  # whether the window had room
            if is_known:
                reader[changed.index[: changed.count]] = changed.value[: changed.count]
                wrong += not np.array_equal(reader, now)
    return wrong


def test_the_reader_has_all_cells_after_each_window_with_room(tmp_path: Path) -> None:
    assert wrong_count(library(tmp_path)) == 0


@pytest.mark.parametrize(("old", "new"), FAULTS)
def test_a_fault_is_noticed(tmp_path: Path, old: str, new: str) -> None:
    assert wrong_count(library(tmp_path, old, new)) > 0


def test_after_a_window_in_vain_only_cells_that_were_used_are_told(tmp_path: Path) -> None:
    """All cells of thousands of threads would never fit into the queue."""
    cells, sent, changed = library(tmp_path), Sent(), Changed()
    now = (ctypes.c_uint64 * CELLS)()
    now[1], now[CELLS - 1] = 5, 1
    for is_known, expected in ((True, {1: 5, CELLS - 1: 1}), (False, {1: 0, CELLS - 1: 1})):
        cells.cells_compare(now, ctypes.byref(sent), is_known, ctypes.byref(changed))
        found = zip(changed.index[: changed.count], changed.value[: changed.count], strict=True)
        assert dict(found) == expected
        cells.cells_sent(ctypes.byref(sent), ctypes.byref(changed))
        now[1] = 0
