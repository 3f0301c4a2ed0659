# SPDX-License-Identifier: GPL-2.0-only
"""A source is one module: what it declares shows up in --collect, in the capture and in reports."""

import importlib
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.analysis.document import explain, sources
from tlstax.analysis.rows import tables
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.vocabulary import SERIES_HOWS, SERIES_LINES_MAX, SERIES_UNITS
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.commands import attach
from tlstax.collectors.sources import registry
from tlstax.tests.golden.capture import sources as golden

PLANTED = """
from pathlib import Path

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.series import Panel, levels
from tlstax.collectors.sources.declaration import Declaration, Option


class LoadAverage:
    name, warning = "planted", ""

    def __init__(self, path):
        self._path, self._last_ns = Path(path), 0

    def start(self):
        return str(self._path)

    def poll(self, now_ns):
        interval_ns, self._last_ns = now_ns - (self._last_ns or now_ns - 10**9), now_ns
        load = float(self._path.read_text().split()[0])
        yield schema.Metric(now_ns, interval_ns, self.name, "", "load_mean_count", load)

    def stop(self):
        return ()


SOURCE = Declaration(
    name="planted",
    summary="tasks that run or wait, 100 % of them",
    open=lambda asked: [LoadAverage(asked.options["planted_file"])],
    panels=(Panel("load", "load of the host", "number", levels(one_minute="load_mean_count")),),
    options=(Option("--planted-file", "another file", "FILE", default="/proc/loadavg"),),
    is_cost_counted=False,
    alone="Recorded by a planted source.",
)
"""
RUN = """
import sys
from tlstax.collectors import sources
sources.__path__.append(sys.argv.pop(1))
from tlstax.__main__ import main
raise SystemExit(main(sys.argv[1:]))
"""


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run tlstax with one more folder of sources."""
    command = [sys.executable, "-c", RUN, str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted")
    (path / "planted.py").write_text(PLANTED)
    return path


def test_a_planted_source_is_in_the_help_and_has_no_budget(folder: Path, tmp_path: Path) -> None:
    shown = " ".join(run(folder, "attach", "--help").stdout.split())
    assert "planted (tasks that run or wait, 100 % of them)" in shown
    assert "--planted-file FILE another file" in shown
    assert re.search(r"none with .* or --collect [a-z,]*\bplanted\b", shown)
    names = ("--collect", "native,planted", "--budget", "1%")
    refused = run(folder, "attach", "1", "-o", str(tmp_path / "x"), *names)
    assert refused.returncode == ExitCode.USAGE
    assert "the overhead of planted is not measured" in refused.stderr


def test_a_planted_source_is_in_the_capture_and_in_the_report(folder: Path, tmp_path: Path) -> None:
    capture, readings = tmp_path / "x.tlstax", tmp_path / "loadavg"
    readings.write_text("2.25 2.5 3.0 1/99 1234\n")
    more = ("--collect", "planted", "--planted-file", str(readings), "--for", "3s", "--quiet")
    made = run(folder, "attach", str(os.getpid()), "-o", str(capture), *more)
    assert made.returncode == ExitCode.OK, made.stderr
    with CaptureReader.open(capture) as reader:
        (facts,) = reader.rows(schema.SourceFacts)
        (series,) = reader.rows(schema.Series)
        document = explain.explain(tables.load(reader))
    assert (facts.key, facts.cost_counted) == ("planted", 0)
    assert (series.key, series.unit) == ("planted/load/one minute", "number")
    assert document.sources is not None
    (panel,) = document.sources.panels
    assert (panel.name, panel.title) == ("planted/load", "load of the host")
    assert [(line.label, line.mean) for line in panel.lines] == [("one minute", 2.25)]
    assert document.sources.readings == []
    assert "planted also ran; its overhead is not included." in document.health.warnings
    # As it is for whoever has the capture and not the source.
    command = [sys.executable, "-m", "tlstax", "report", str(capture)]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "load of the host: one minute" in report


@pytest.mark.parametrize("name", registry.declarations())
def test_declarations_are_complete(name: str) -> None:
    declared = registry.declarations()[name]
    module = importlib.import_module(f"tlstax.collectors.sources.{name}")
    assert module.SOURCE is declared
    assert declared.summary
    assert declared.needs
    assert bool(declared.required) == bool(declared.required_for)
    assert all(option.default is None for option in declared.required)
    assert len({panel.name for panel in declared.panels}) == len(declared.panels)
    for panel in declared.panels:
        assert panel.unit in SERIES_UNITS
        assert 0 < len(panel.lines) <= SERIES_LINES_MAX
        assert {line.how for line in panel.lines} <= set(SERIES_HOWS)


def test_what_collect_takes() -> None:
    known = {"native", "bcc", "bpftrace", "iostat", "perf", "procfs", "status"}
    assert known <= set(registry.names())
    assert {"bcc", "bpftrace", "perf"} <= set(registry.uncounted())
    assert registry.uncounted(["native", "procfs", "perf"]) == ["perf"]


def test_the_table_of_the_docs_is_that_of_the_registry(repository: Path) -> None:
    page = (repository / "docs/sources.md").read_text()
    assert registry.table() in page, "run `make capture-docs`"
    assert registry.with_table(page) == page


def test_an_attach_imports_no_source_that_it_does_not_use() -> None:
    """A recorder stays small on a production host."""
    code = (
        "import sys\n"
        f"from {attach.__name__} import registry\n"
        "registry.declarations()\n"
        "print(*sorted(name for name in sys.modules if '.sources.' in name))\n"
    )
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    own = [name.removeprefix("tlstax.collectors.sources.") for name in loaded]
    assert {"procfs", "perf", "bcc", "bpftrace"} <= set(own)
    assert [name for name in own if "." in name] == []  # what a folder holds is imported in `open`


def test_a_capture_of_before_declarations_has_the_same_panels(tmp_path: Path) -> None:
    path = tmp_path / "x.tlstax"
    write_whole(path, golden.rows(7_000_000_000))
    with CaptureReader.open(path) as reader:
        now = sources.tabulate(tables.load(reader))
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE source_facts; DROP TABLE series; PRAGMA user_version = 2")
    connection.close()
    with CaptureReader.open(path) as reader:
        assert list(reader.rows(schema.Series)) == []
        older = sources.tabulate(tables.load(reader))
    assert older == now
    assert older is not None
    assert {"procfs/cpu", "iostat/vda/wait", "status/threads"} <= {one.name for one in older.panels}
