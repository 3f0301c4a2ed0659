# SPDX-License-Identifier: GPL-2.0-only
"""Exports hold the stacks of the capture, whole, in forms that their tools accept."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis.classify import profiles
from tlstax.analysis.classify.stacks import Folded, FoldedFrame
from tlstax.analysis.report.export import firefox, pprof, speedscope
from tlstax.analysis.rows import ledger, tables
from tlstax.collectors.capture.reader import CaptureReader

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "docs/demo/demo.tlstax"
HOSTILE = "a;b\n\0\x1b[31m</script>\ud800"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "experiment.tlstax"
    script = ROOT / "tests/golden/capture/synthetic.py"
    subprocess.run([sys.executable, str(script), str(path), "--rounds", "2"], check=True)
    return path


def graphs_of(path: Path) -> dict[str, Folded]:
    with CaptureReader.open(path) as reader:
        return profiles.fold_all(tables.load(reader))


def exported(path: Path, form: str, output: Path, *more: str) -> bytes:
    assert main(["export", str(path), "--format", form, "-o", str(output), *more]) == 0
    return output.read_bytes()


def total(graphs: dict[str, Folded], kind: str) -> int:
    return sum(
        round(value)
        for name, folded in graphs.items()
        if name.endswith(f"/{kind}")
        for value in folded.values()
    )


def test_folded_is_what_report_writes(experiment: Path, tmp_path: Path) -> None:
    made = exported(experiment, "folded", tmp_path / "a")
    assert main(["report", str(experiment), "--folded", str(tmp_path / "b")]) == 0
    assert made == (tmp_path / "b").read_bytes()


# ---- pprof ----


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer message: written apart from the encoder."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            assert key & 7 == 2
            length = number()
            yield key >> 3, data[at : at + length]
            at += length


def numbers(data: int | bytes) -> list[int]:
    """Packed integers."""
    assert isinstance(data, bytes)
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def test_pprof_holds_every_stack_and_both_kinds_of_time(experiment: Path, tmp_path: Path) -> None:
    graphs = graphs_of(experiment)
    message = list(fields(gzip.decompress(exported(experiment, "pprof", tmp_path / "p"))))
    strings = [value.decode() for field, value in message if field == 6]  # type: ignore[union-attr]
    assert strings[0] == ""
    functions = {
        parts[1]: strings[parts[2]]
        for field, value in message
        if field == 5 and isinstance(value, bytes)
        for parts in (dict(fields(value)),)
        if isinstance(parts[2], int)
    }
    samples = [dict(fields(v)) for f, v in message if f == 2 and isinstance(v, bytes)]
    assert len(samples) == sum(len(folded) for folded in graphs.values())
    values = [numbers(sample[2]) for sample in samples]
    assert sum(pair[0] for pair in values) == total(graphs, "on_cpu")
    assert sum(pair[1] for pair in values) == total(graphs, "off_cpu")
    path = next(iter(next(iter(graphs.values()))))
    leaf_first = [functions[number] for number in numbers(samples[0][1])]
    assert leaf_first == [frame.name for frame in reversed(path)]


def test_pprof_has_a_line_for_each_inlined_function() -> None:
    """A location has the lines that are inlined into it, innermost first, so they are no calls."""
    path = (
        *(FoldedFrame("command", "server"), FoldedFrame("outer", "server")),
        *(FoldedFrame("middle", "server", True), FoldedFrame("leaf", "server", True)),
    )
    folded: Folded = {path: 5.0, path[:2]: 3.0}
    message = list(fields(gzip.decompress(pprof.render({"all/on_cpu": folded}, 1, 2))))
    strings = [
        value.decode() for field, value in message if isinstance(value, bytes) and field == 6
    ]
    functions: dict[int | bytes, str] = {}
    lines: dict[int | bytes, list[int | bytes]] = {}
    for field, value in message:
        if field in (4, 5) and isinstance(value, bytes):
            parts = list(fields(value))
            if field == 5:
                named = dict(parts)[2]
                assert isinstance(named, int)
                functions[dict(parts)[1]] = strings[named]
            else:
                found = [dict(fields(line))[1] for key, line in parts if isinstance(line, bytes)]
                lines[dict(parts)[1]] = found
    samples = [dict(fields(v)) for f, v in message if f == 2 and isinstance(v, bytes)]
    stacks = [
        [[functions[one] for one in lines[location]] for location in numbers(sample[1])]
        for sample in samples
    ]
    assert stacks == [[["leaf", "middle", "outer"], ["command"]], [["outer"], ["command"]]]


def test_pprof_opens_in_go_tool_pprof(experiment: Path, tmp_path: Path) -> None:
    """Where Go is installed; elsewhere the test above has to do."""
    if shutil.which("go") is None:
        return
    go_cache = str(Path.home() / ".cache/go-build")  # newer Go compiles its pprof: once will do
    exported(experiment, "pprof", tmp_path / "p.pb.gz")
    graphs = graphs_of(experiment)
    for index, kind in (("cpu", "on_cpu"), ("wait", "off_cpu")):
        done = subprocess.run(
            ["go", "tool", "pprof", "-raw", f"-sample_index={index}", tmp_path / "p.pb.gz"],
            capture_output=True, text=True, check=True,
            env={"GOCACHE": go_cache} | os.environ | {"HOME": str(tmp_path)},
        )  # fmt: skip
        place = ("cpu", "wait").index(index)
        lines = done.stdout.partition("Samples:")[2].partition("Locations")[0].splitlines()
        counts = [line.split(":")[0].split() for line in lines[2:] if ":" in line]
        told = sum(int(pair[place]) for pair in counts if len(pair) == 2 and pair[0].isdigit())
        assert told == total(graphs, kind)


def test_empty_and_hostile_names_are_written(tmp_path: Path) -> None:
    path: tuple[FoldedFrame, ...] = (FoldedFrame(HOSTILE, HOSTILE),)
    graphs: dict[str, Folded] = {"all/on_cpu": {path: 5.0}, "all/off_cpu": {}}
    assert pprof.render(graphs, 0, 0)
    for text in (speedscope.render(graphs, HOSTILE), firefox.render(graphs, HOSTILE, 0, HOSTILE)):
        json.loads(text.encode(errors="replace"))
    assert pprof.render({}, 0, 0)
    assert json.loads(speedscope.render({}, ""))["profiles"] == []


# ---- speedscope ----


def test_speedscope_file_has_the_form_of_its_schema(experiment: Path, tmp_path: Path) -> None:
    made = json.loads(exported(experiment, "speedscope", tmp_path / "s"))
    assert made["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    count = len(made["shared"]["frames"])
    assert all(set(frame) == {"name"} for frame in made["shared"]["frames"])
    sums = {"on_cpu": 0, "off_cpu": 0}
    for profile in made["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] == "nanoseconds"
        assert profile["endValue"] >= profile["startValue"] == 0
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= frame < count for stack in profile["samples"] for frame in stack)
        assert all(weight >= 0 for weight in profile["weights"])
        sums[profile["name"].rpartition("/")[2]] += sum(profile["weights"])
    graphs = graphs_of(experiment)
    assert sums == {kind: total(graphs, kind) for kind in sums}
    assert 0 <= made["activeProfileIndex"] < len(made["profiles"])


# ---- Firefox ----


def columns(table: dict[str, Any]) -> int:
    """The length of a table whose columns are all of it."""
    assert all(len(v) == table["length"] for k, v in table.items() if isinstance(v, list)), table
    return int(table["length"])


def within(values: list[int | None], length: int) -> bool:
    return all(value is None or 0 <= value < length for value in values)


def test_firefox_profile_has_the_form_of_its_version(experiment: Path, tmp_path: Path) -> None:
    made = json.loads(exported(experiment, "firefox", tmp_path / "f"))
    meta = made["meta"]
    assert meta["preprocessedProfileVersion"] == firefox.VERSION
    assert {"interval", "startTime", "processType", "product", "stackwalk", "version"} <= set(meta)
    assert all({"name", "color", "subcategories"} <= set(one) for one in meta["categories"])
    assert any(one["color"] == "grey" for one in meta["categories"]), "the default category"
    total_ms = 0.0
    for thread in made["threads"]:
        strings = thread["stringArray"]
        frames, stacks = columns(thread["frameTable"]), columns(thread["stackTable"])
        functions = columns(thread["funcTable"])
        for name in ("samples", "markers", "resourceTable", "nativeSymbols"):
            columns(thread[name])
        assert isinstance(thread["pid"], str)
        assert within(thread["funcTable"]["name"], len(strings))
        assert within(thread["frameTable"]["func"], functions)
        assert within(thread["frameTable"]["category"], len(meta["categories"]))
        assert within(thread["stackTable"]["frame"], frames)
        prefixes = thread["stackTable"]["prefix"]
        assert all(prefix is None or prefix < at for at, prefix in enumerate(prefixes))
        assert within(thread["samples"]["stack"], stacks)
        assert thread["samples"]["weightType"] == "tracing-ms"
        times = thread["samples"]["time"]
        assert times == sorted(times)
        total_ms += sum(thread["samples"]["weight"])
    graphs = graphs_of(experiment)
    expected = sum(sum(folded.values()) for folded in graphs.values())
    assert total_ms * 1e6 == pytest.approx(expected)


# ---- Parquet, and what is asked for ----


@pytest.fixture(params=["experiment", "demo"])
def exported_table(
    request: pytest.FixtureRequest, experiment: Path, tmp_path: Path
) -> tuple[Path, list[dict[str, Any]]]:
    capture = DEMO if request.param == "demo" else experiment
    exported(capture, "parquet", tmp_path / "x")
    return capture, parquet.read_table(tmp_path / "x").to_pylist()


def test_parquet_read_back_holds_the_ledger(
    exported_table: tuple[Path, list[dict[str, Any]]],
) -> None:
    capture, table = exported_table
    graphs = graphs_of(capture)
    for kind in ("on_cpu", "off_cpu"):
        assert sum(row["time_ns"] for row in table if row["kind"] == kind) == total(graphs, kind)
    with CaptureReader.open(capture) as reader:
        rows = tables.load(reader)
    for group in tables.groups(rows):
        spent = ledger.totals(rows.ledger, group.window_ids)
        on_cpu_ns = sum(time_ns for (_, state), time_ns in spent.items() if state == "on_cpu")
        own = [one for one in table if (one["workload"], one["kind"]) == (group.name, "on_cpu")]
        # Each stack's time is rounded to a nanosecond.
        assert sum(one["time_ns"] for one in own) == pytest.approx(on_cpu_ns, abs=len(own) + 1)


def test_without_pyarrow_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    # How Python itself marks a module that must not be imported.
    code = "import sys; sys.modules['pyarrow'] = None; from tlstax.__main__ import main; "
    command = ["export", str(DEMO), "--format", "parquet", "-o", str(tmp_path / "x")]
    done = subprocess.run(
        [sys.executable, "-c", f"{code} sys.exit(main({command!r}))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.HOST
    (line,) = done.stderr.splitlines()
    assert "pyarrow is not installed" in line
    assert "pip install 'tlstax[parquet]'" in line
    assert not (tmp_path / "x").exists()


def test_one_workload_and_one_kind(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--workload", "storm/connect_query/tls", "--kind", "on_cpu")
    text = exported(experiment, "folded", tmp_path / "x", *more).decode()
    assert {line.partition(";")[0] for line in text.splitlines()} == {
        "storm/connect_query/tls/on_cpu"
    }
    command = ["export", str(experiment), "--format", "folded", "-o", "-", "--workload", "none"]
    assert main(command) == ExitCode.USAGE
    assert "storm/connect_query/tls" in capsys.readouterr().err
