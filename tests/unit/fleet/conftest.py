# SPDX-License-Identifier: GPL-2.0-only
"""A real recording, its rows, and data sets of replayed hosts."""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from tlstax.analysis.fleet.bucket import address
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.rows import tables as capture_tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests import fleet_replay

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"


@pytest.fixture(scope="session")
def demo() -> Path:
    return DEMO


@pytest.fixture(scope="session")
def demo_tables() -> Tables:
    with CaptureReader.open(DEMO) as reader:
        return capture_tables.load(reader)


@pytest.fixture(scope="session")
def rolled(demo_tables: Tables) -> RolledUp:
    return capture.roll_up(demo_tables, "demo.tlstax", host="db1")


@pytest.fixture(scope="session")
def half(demo_tables: Tables) -> RolledUp:
    """The same recording while it went on: its first windows only."""
    windows = sorted(demo_tables.windows, key=lambda window: window.start_ns)[:30]
    kept = {window.window_id for window in windows}
    changed: dict[str, Any] = {"windows": windows}
    for name in ("ledger", "latencies", "handshakes", "phase_counts", "samples", "waits"):
        changed[name] = [row for row in getattr(demo_tables, name) if row.window_id in kept]
    changed["losses"] = []
    shorter = dataclasses.replace(demo_tables, **changed)
    return capture.roll_up(shorter, "demo.tlstax", host="db1")


@pytest.fixture(scope="session")
def profile() -> RolledUp:
    return fleet_replay.profile(DEMO)


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that holds what the bucket holds."""
    (tmp_path / "store/fleet").mkdir(parents=True)
    local = pyarrow.fs.LocalFileSystem()

    class Client(pyarrow.fs.SubTreeFileSystem):  # type: ignore[misc]
        """As S3: an object needs no folder."""

        def open_output_stream(self, path: str) -> Any:
            (tmp_path / "store" / path).parent.mkdir(parents=True, exist_ok=True)
            return super().open_output_stream(path)

    made = Client(str(tmp_path / "store"), local)
    monkeypatch.setattr(address, "_client", lambda **_: made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "store/fleet/all"
