# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax diff`: sums, both kinds of recordings, every refusal, hostile names, all outputs."""

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.classify.stacks import MAX_DEPTH
from tlstax.analysis.compare import difference, selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.model.difference import Difference, PairDifference
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.report.commands import diff as diff_command
from tlstax.analysis.report.html import diff as diff_html
from tlstax.analysis.report.markdown import diff as diff_markdown
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Frame,
    Ledger,
    PhaseCount,
    Run,
    SampleStack,
    Stack,
    Target,
    Window,
)

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "docs/demo/demo.tlstax")
HOSTILE = "</script><script>alert(1)</script>|`*"
SECOND = 10**9


def recording(per_query: dict[tuple[str, str], int], windows: int = 48, **changes: Any) -> Tables:
    """A server without a driver: 100 queries a window, `per_query` ns each, and some noise."""
    made = Tables(targets=[Target(1, 1, "/mariadbd", "", "mariadb", "1", "OpenSSL", "3", "shared")])
    made.frames = [Frame(1, "/libcrypto.so.3", "", 0, HOSTILE, 0, "dynsym", "")]
    made.stacks = [Stack(1, "1")]
    for number in range(1, windows + 1):
        made.windows.append(Window(number, None, number * SECOND, (number + 1) * SECOND))
        made.phase_counts.append(PhaseCount(number, "command", 100))
        made.samples = [*made.samples, SampleStack(number, "record_write", -1, 1, None, 20)]
        for (phase, state), time_ns in per_query.items():
            made.ledger.append(Ledger(number, 1, phase, state, 100 * time_ns + number))
    return dataclasses.replace(made, **changes)


def driven(latency_ns: int, threads: int = 2, rounds: int = 8, scenario: str = "connect") -> Tables:
    """The same with a driver: one run a window."""
    made = recording({("command", "on_cpu"): latency_ns // 2}, rounds)
    for number in range(1, rounds + 1):
        made.windows[number - 1] = made.windows[number - 1]._replace(run_id=number)
        made.phase_counts.append(PhaseCount(number, "handshake", 100))
        made.runs.append(
            Run(
                number, "storm", scenario, "tls", number, number * SECOND, (number + 1) * SECOND,
                threads, 100, 100, latency_ns + number, 0, 0, 0, "{}",
            )
        )  # fmt: skip
    return made


def compare(before: Tables, after: Tables, per: str | None = None) -> PairDifference:
    pair = [RecordingSelection(name, rows, tables.groups(rows)[0]) for name, rows in
            (("old", before), ("new", after))]  # fmt: skip
    (line,) = difference.compare_recordings([(pair[0], pair[1])], per).pairs
    return line


BEFORE = {("command", "on_cpu"): 1000, ("record_write", "on_cpu"): 500}


def test_recordings_without_a_driver_are_counted_by_query() -> None:
    after = {**BEFORE, ("record_write", "on_cpu"): 900, ("command", "blocked_lock"): 100}
    line = compare(recording(BEFORE), recording(after))
    assert line.refusals == []
    assert line.operation == "query"
    assert line.total_name == difference.AT_SERVER
    assert line.difference is not None
    assert line.difference.value_ns == pytest.approx(500, rel=0.01)
    assert line.verdict == "more"
    steps = {step.name: step.difference.value_ns for step in line.steps}
    assert sum(steps.values()) == pytest.approx(line.difference.value_ns)
    assert steps["locks"] == pytest.approx(100, rel=0.01)
    assert "client" not in steps
    (wait,) = line.waits
    assert (wait.name, wait.kind, wait.verdict) == ("blocked_lock", "command", "more")
    assert any("No driver made the load" in text for text in line.cautions)


def test_deep_stacks_reach_every_output() -> None:
    """Trees are cut before the recursion of JSON writers and pages ends in an error."""
    before, after = (
        recording({("record_write", "on_cpu"): time_ns}, stacks=[Stack(1, "1 " * 500)])
        for time_ns in (800, 900)
    )
    line = compare(before, after)
    document = to_plain(Difference(1, "title", [line]))
    flame, *_ = document["pairs"][0]["flames"]
    assert json.dumps(flame["root"]).count('"name"') == MAX_DEPTH + 1
    assert "flame" in diff_html.render(document)


def test_steps_of_an_experiment_sum_to_the_latency() -> None:
    with CaptureReader.open(DEMO) as reader:
        rows = tables.load(reader)
    pair = [RecordingSelection("demo", rows, selections.matching(rows, f"connect/{arm}")[0])
            for arm in ("tls", "plaintext")]  # fmt: skip
    (line,) = difference.compare_recordings([(pair[0], pair[1])]).pairs
    assert line.difference is not None
    assert line.difference.high_ns is not None
    assert line.difference.high_ns < 0, "in every round"
    assert sum(step.difference.value_ns for step in line.steps) == pytest.approx(
        line.difference.value_ns
    )
    cpu = {item.kind: item for item in line.flames}["on_cpu"]
    named = {child["name"]: child for child in cpu.root["children"]}
    assert named["sign"]["after_ns"] == 0  # what vanished is seen
    assert named["sign"]["before_ns"] > 100_000


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (driven(1000, threads=8), "different loads: 2 and 8 client threads"),
        (driven(1000, scenario="point_select"), "different loads: storm/connect and storm/point"),
        (driven(1000, rounds=3), "too few rounds: new: storm connect, TLS has 3"),
    ],
)
def test_other_loads_are_refused(after: Tables, reason: str) -> None:
    line = compare(driven(1000), after)
    assert any(text.startswith(reason) for text in line.refusals), line.refusals
    assert line.steps == []
    assert reason in line.sentence


def test_what_cannot_be_seen_is_refused() -> None:
    full = recording(BEFORE)
    by_perf = recording(BEFORE, windows=8)
    by_perf.windows = [window._replace(engine="perf") for window in by_perf.windows]
    assert "recorded by perf, which records neither" in compare(full, by_perf).refusals[0]
    light = recording(BEFORE)
    light.windows = [window._replace(level="sample") for window in light.windows]
    assert "without a ledger" in compare(full, light).refusals[0]
    commands = recording(BEFORE)
    commands.windows = [window._replace(level="command") for window in commands.windows]
    assert "different levels of detail" in compare(full, commands).refusals[0]
    assert "too few windows" in compare(full, recording(BEFORE, windows=2)).refusals[0]
    silent = recording(BEFORE, phase_counts=[])
    assert "no common operation" in compare(full, silent).refusals[0]
    assert compare(full, full).refusals == ["both sides are the same recording"]


def test_a_plaintext_arm_that_spoke_tls_is_refused() -> None:
    rows = driven(1000)
    rows.runs = [run._replace(arm="plaintext") for run in rows.runs]
    assert "made 800 TLS handshakes" in compare(rows, driven(2000)).refusals[0]


def test_other_hosts_are_a_caution() -> None:
    line = compare(driven(1000), driven(2000, rounds=9))
    assert line.refusals == []
    assert line.cautions == []
    other = driven(2000)
    other.meta = {"cpu_model": "another"}
    assert "Different CPUs: unknown and another." in compare(driven(1000), other).cautions


def test_no_change_is_no_change() -> None:
    line = compare(driven(1000), copy.deepcopy(driven(1000)))
    assert line.verdict == "no difference seen"
    assert "no difference seen" in line.sentence


def test_names_from_a_capture_stay_text() -> None:
    line = compare(recording(BEFORE), recording({("record_write", "on_cpu"): 9000}))
    document = dataclasses.asdict(Difference(1, "t", [line]))
    page = diff_html.render(document)
    assert "<script>alert" not in page
    assert page.count("<script") == 2
    assert "<script>" not in diff_markdown.render(document).replace("\\<", "")
    assert "<script" in json.dumps(document)


def test_every_output_and_the_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data, ticket = (tmp_path / name for name in ("d.html", "d.json", "d.md"))
    outputs = ["--html", str(page), "--json", str(data), "--markdown", str(ticket)]
    assert main(["diff", f"{DEMO}:connect/plaintext", f"{DEMO}:connect/tls", *outputs]) == 0
    printed = capsys.readouterr().out
    assert "A connection" in printed
    document = json.loads(data.read_text())
    (pair,) = document["pairs"]
    assert pair["sentence"] in " ".join(printed.split())
    assert pair["name"] in ticket.read_text().replace("\\_", "_")
    # Every change that the page prints is a number of the document.
    for step in pair["steps"]:
        assert f'<th scope="row">{step["label"]}' in page.read_text()
    assert not re.search(r"https?://(?!www\.w3\.org)", page.read_text())
    assert main(["diff", DEMO, f"{DEMO}:nothing"]) == ExitCode.USAGE
    assert "it has pooled/point_select/plaintext" in capsys.readouterr().err
    assert main(["diff", f"{DEMO}:connect/tls", f"{DEMO}:point_select/tls"]) == ExitCode.FAILED
    assert "no common operation" in " ".join(capsys.readouterr().out.split())
    assert main(["diff", str(tmp_path), DEMO]) == ExitCode.USAGE
    assert main(["diff", f"{DEMO}:tls", DEMO, "--json", "-", "--markdown", "-"]) == ExitCode.USAGE


def test_a_folder_of_turns_is_one_recording_of_each_server(tmp_path: Path) -> None:
    for name in ("000-mariadb-rsa2048", "004-mariadb-rsa4096", "other"):
        (tmp_path / f"{name}.tlstax").write_bytes(Path(DEMO).read_bytes())
    for name in ("mariadb-rsa2048", "000-mariadb-rsa2048", "other"):
        (side,) = diff_command.sides_of(f"{tmp_path}:{name}/connect/tls", {})
        assert side.group.name == "storm/connect/tls"
    with pytest.raises(TlstaxError, match="names no capture"):
        diff_command.sides_of(f"{tmp_path}:nothing", {})


def test_cells_that_differ_in_the_way_to_the_server_are_compared() -> None:
    line = compare(
        driven(1000, scenario="veth 1x connect"), driven(2000, scenario="ssh 1x connect")
    )
    assert line.refusals == []
    assert "Different routes to the server: veth 1x and ssh 1x." in line.cautions
