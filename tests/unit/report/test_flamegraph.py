# SPDX-License-Identifier: GPL-2.0-only
"""SVG flame graphs: sums, what vanished, what is chance, hostile names, wrong arguments."""

import functools
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis import quantities
from tlstax.analysis.classify import flames, profiles
from tlstax.analysis.classify.flames import Profile
from tlstax.analysis.classify.stacks import Folded, FoldedFrame
from tlstax.analysis.document import explain
from tlstax.analysis.report.html import svg
from tlstax.analysis.rows import tables
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.writer import write_whole

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "docs/demo/demo.tlstax")
HOSTILE = "]]></script><script>alert(1)</script>\"'&\x00\x1b\ufffe"
SVG = "{http://www.w3.org/2000/svg}"


def stacks(**times: float) -> Folded:
    """`handshake_sign=5` is 5 ns in sign under handshake."""
    return {
        tuple(FoldedFrame(name, "server") for name in path.split("_")): ns
        for path, ns in times.items()
    }


def titles(picture: str) -> list[str]:
    frames = ET.fromstring(picture).iter(f"{SVG}g")
    return [found.text or "" for one in frames if (found := one.find(f"{SVG}title")) is not None]


def test_a_tree_sums_to_its_profile() -> None:
    folded = stacks(handshake_sign=30, handshake_sign_bn=20, command=50)
    widths = {
        block.name: block.width for block, _, _ in flames.single(Profile("", folded, 10)).walk()
    }
    assert widths == {"all": 100, "handshake": 50, "sign": 50, "bn": 20, "command": 50}


def test_siblings_do_not_overlap() -> None:
    folded = stacks(a_x=30, a_y=20, b=50, c_x=1)
    blocks = list(flames.single(Profile("", folded, 10)).walk())
    for depth in range(3):
        row = sorted((start, start + one.width) for one, level, start in blocks if level == depth)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(row))


def widths(root: flames.Block) -> dict[str, float]:
    return {block.name: block.width for block, _, _ in root.walk()}


def test_a_sandwich_has_each_stack_once_on_both_sides() -> None:
    """Who calls malloc, and what it costs: a stack that calls it twice must not count twice."""
    folded = stacks(a_b_malloc_x=30, c_malloc_x_malloc_y=20, c_malloc=5, other=50)
    callers, callees = flames.sandwich(Profile("", folded, 10), "malloc")
    assert widths(callers) == {"malloc": 55, "b": 30, "a": 30, "c": 25}
    assert callees.width == 55
    (x,) = callees.children.values()
    assert (x.name, x.width) == ("x", 50)
    assert [one.width for one in x.children.values()] == [20]


def test_a_function_is_found_without_its_arguments() -> None:
    path = (FoldedFrame("command", "server"), FoldedFrame("do_command(THD*, bool)", "server"))
    for name in ("do_command", "do_command(THD*, bool)"):
        assert flames.sandwich(Profile("", {path: 7.0}, 1), name)[0].width == 7


def test_callers_are_above_and_callees_below() -> None:
    profile = Profile("", stacks(a_b_f_x=30, c_f_y=20), 10)
    above, below = flames.sandwich(profile, "f")
    tree = ET.fromstring(svg.render(below, "t", ["n"], callers=above))
    rows = {
        one.get("data-name"): (int(one.get("data-depth", "0")), float(rect.get("y", "0")))
        for one in tree.iter(f"{SVG}g")
        if one.get("class") == "frame" and (rect := one.find(f"{SVG}rect")) is not None
    }
    assert {name: depth for name, (depth, _) in rows.items()} == {
        "a": -2, "b": -1, "c": -1, "f": 0, "x": 1, "y": 1,
    }  # fmt: skip
    heights = [y for _, y in sorted(rows.values())]
    assert heights == sorted(heights)
    assert len({y for _, y in rows.values()}) == 4
    assert max(heights) < float(tree.get("viewBox", "").split()[3])


def test_an_icicle_hangs_from_its_root() -> None:
    root = flames.single(Profile("", stacks(a_b=30), 10))
    for downward in (False, True):
        tree = ET.fromstring(svg.render(root, "t", ["n"], downward=downward))
        ys = [float(one[1].get("y", "0")) for one in tree.iter(f"{SVG}g") if one.get("class")]
        assert ys == sorted(ys, reverse=not downward)


@pytest.mark.parametrize("view", ["sandwich", "callers", "callees", "flame", "icicle"])
def test_every_view_of_a_function_shows_its_time(tmp_path: Path, view: str) -> None:
    out = tmp_path / "x.svg"
    command = ["flamegraph", DEMO, "--function", "EVP_MD_fetch", "--view", view, "-o", str(out)]
    assert main(command) == 0
    shown = {t.split(", ")[0] for t in titles(out.read_text()) if t.startswith("EVP_MD_fetch: ")}
    wanted = sum(
        ns
        for path, ns in fold_demo().items()
        if any(frame.name == "EVP_MD_fetch" for frame in path)
    )
    if view in ("sandwich", "callers", "callees"):
        assert shown == {f"EVP_MD_fetch: {quantities.time(wanted)}"}
    else:
        assert shown


def test_folded_stacks_are_those_of_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["flamegraph", DEMO, "--phase", "handshake", "--format", "folded", "-o", "-"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("handshake;") for line in lines)
    wanted = sum(ns for path, ns in fold_demo().items() if path[0].name == "handshake")
    total = sum(int(line.rpartition(" ")[2]) for line in lines)
    assert total == pytest.approx(wanted, abs=len(lines))


def test_what_vanished_is_drawn_and_what_came_is_red() -> None:
    before = Profile("old", stacks(a_gone=1e6, a_same=1e6), 10_000, 10, "query")
    after = Profile("new", stacks(a_came=4e6, a_same=2e6), 10_000, 20, "query")
    blocks = {one.name: one for one, _, _ in flames.difference(before, after).walk()}
    assert (blocks["gone"].before, blocks["gone"].after, blocks["gone"].width) == (1e5, 0, 1e5)
    assert (blocks["came"].before, blocks["came"].after, blocks["came"].width) == (0, 2e5, 2e5)
    assert blocks["same"].change == 0
    assert blocks["same"].is_noise
    assert not blocks["gone"].is_noise
    assert not blocks["came"].is_noise
    picture = svg.render(flames.difference(before, after), "t", ["n"], "query", compared=True)
    assert any(
        line.startswith("gone: 100 µs → 0 ns per query".replace(" ", " "))
        for line in (text.replace("\u00a0", " ") for text in titles(picture))
    )


def test_few_samples_make_no_change() -> None:
    before = Profile("old", stacks(a_x=3e6, a_y=7e6), 10, 10, "query")
    after = Profile("new", stacks(a_x=4e6, a_y=6e6), 10, 10, "query")
    blocks = {one.name: one for one, _, _ in flames.difference(before, after).walk()}
    assert blocks["x"].is_noise
    many = (Profile("", side.folded, 100_000, 10, "query") for side in (before, after))
    blocks = {one.name: one for one, _, _ in flames.difference(*many).walk()}
    assert not blocks["x"].is_noise


def test_unlike_operations_are_scaled_to_equal_totals() -> None:
    before = Profile("old", stacks(a=1e6, b=3e6), 1000, 10, "query")
    after = Profile("new", stacks(a=2e6, b=2e6), 1000, 10, "connection")
    root = flames.difference(before, after)
    assert flames.unit(before, after) == ""
    assert root.before == root.after == 4e6


def test_hostile_names_stay_text() -> None:
    path = (FoldedFrame("handshake", "server"), FoldedFrame(HOSTILE, "server"))
    folded: Folded = {path: 1e6}
    profile = Profile("", folded, 10)
    callers, callees = flames.sandwich(profile, HOSTILE)
    sandwich = svg.render(callees, HOSTILE, [HOSTILE], callers=callers)
    assert any(text.startswith("]]></script><script>alert(1)") for text in titles(sandwich))
    picture = svg.render(flames.single(profile), HOSTILE, [HOSTILE])
    tree = ET.fromstring(picture)
    assert len(list(tree.iter(f"{SVG}script"))) == 1
    assert picture.count("<![CDATA[") == picture.count("]]>") == 1
    assert any(text.startswith("]]></script><script>alert(1)") for text in titles(picture))


def demo_group(name: str, kind: str) -> float:
    return sum(fold_demo(name, kind).values())


@functools.cache
def fold_demo(name: str = "storm/connect/tls", kind: str = "on_cpu") -> Folded:
    with CaptureReader.open(DEMO) as reader:
        rows = tables.load(reader)
    group = next(one for one in tables.groups(rows) if one.name == name)
    return profiles.fold(group, kind, rows).folded


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [([], ("on_cpu",)), (["--kind", "off-cpu"], ("off_cpu",)),
     (["--kind", "mixed"], ("on_cpu", "off_cpu"))],
)  # fmt: skip
def test_the_picture_holds_the_ledgers_time(
    tmp_path: Path, arguments: list[str], kinds: tuple[str, ...]
) -> None:
    out = tmp_path / "x.svg"
    assert (
        main(["flamegraph", DEMO, "--group", "storm/connect/tls", *arguments, "-o", str(out)]) == 0
    )
    picture = out.read_text("utf-8")
    whole = next(text for text in titles(picture) if text.startswith("all: "))
    total_ns = sum(demo_group("storm/connect/tls", kind) for kind in kinds)
    shown, unit = re.match(r"all: ([\d.]+)\s(s|ms)", whole).groups()  # type: ignore[union-attr]
    assert float(shown) * {"s": 1e9, "ms": 1e6}[unit] == pytest.approx(total_ns, rel=0.005)


def beside_perf(path: Path, lost: int = 7) -> Path:
    """A recording of 40 samples: 30 broke off, of which perf knows the callers of 10 (hash)."""
    frames = [
        schema.Frame(number, "/lib/libcrypto.so.3", "", 256 * number, name, 0, "dynsym", "")
        for number, name in enumerate(("hash", "cipher", "serve", "start_thread"), 1)
    ]
    stacks = [schema.Stack(1, "1"), schema.Stack(2, "2"), schema.Stack(3, "3 4")]
    samples = [
        schema.SampleStack(1, "command", -1, stack, None, count)
        for stack, count in ((1, 10), (2, 20), (3, 10))
    ]
    write_whole(path, [
        schema.Target(1, 4711, "/usr/sbin/mariadbd", "", "mariadb", "", "OpenSSL", "", "shared"),
        schema.Window(1, None, 0, 10**9),
        schema.Window(9, None, 0, 10**9, 1, "record", "perf"),
        schema.Thread(1, 4711, "one", "connection", 0, None),
        schema.Ledger(1, 1, "command", "on_cpu", 400_000_000),
        *frames, *stacks, schema.Stack(4, "1 3 4"), *samples,
        schema.SampleStack(9, "command", -1, 4, None, 5),
        schema.Loss(1, "stack_map_full", lost),
    ])  # fmt: skip
    return path


def test_what_was_lost_or_repaired_is_said_as_in_the_report(tmp_path: Path) -> None:
    capture, out = beside_perf(tmp_path / "x.tlstax"), tmp_path / "x.svg"
    assert main(["flamegraph", str(capture), "-o", str(out)]) == 0
    picture = out.read_text("utf-8")
    note = ET.fromstring(picture).findtext(f"{SVG}desc") or ""
    with CaptureReader.open(str(capture)) as reader:
        document = explain.explain(tables.load(reader))
    (graph,) = document.flames
    assert "30 of 40 samples end in code" in graph.repair
    assert "10 of them (25 % of all)" in graph.repair
    assert graph.repair in note
    (lost,) = (text for text in document.health.warnings if text.startswith("Lost: "))
    assert "keeps only its innermost function" in lost
    assert lost in note
    shown = [text.replace("\u00a0", " ") for text in titles(picture)]
    (of_hash,) = (text for text in shown if text.startswith("hash: "))
    assert of_hash.endswith("; callers of 100 ms of it are perf’s")
    assert not any("perf" in text for text in shown if text.startswith("cipher: "))


def test_the_head_has_room_for_its_notes(tmp_path: Path) -> None:
    capture, out = beside_perf(tmp_path / "x.tlstax"), tmp_path / "x.svg"
    assert main(["flamegraph", str(capture), "-o", str(out)]) == 0
    tree = ET.fromstring(out.read_text("utf-8"))
    head = [one for one in tree.findall(f"{SVG}text") if one.get("x") == f"{svg.MARGIN:g}"]
    assert all(len(one.text or "") <= svg.LETTERS for one in head)
    swatches = [float(one.get("y", 0)) for one in tree.findall(f"{SVG}rect") if one.get("y")]
    frames = [float(one.get("y", 0)) for one in tree.findall(f"{SVG}g//{SVG}rect")]
    assert max(float(one.get("y", 0)) for one in head) < min(swatches)
    assert max(swatches) < min(frames)


def test_two_arms_of_one_recording_say_it_once(tmp_path: Path) -> None:
    capture, out = beside_perf(tmp_path / "x.tlstax"), tmp_path / "x.svg"
    assert main(["flamegraph", str(capture), "--against", "all", "-o", str(out)]) == 0
    assert out.read_text("utf-8").count("Lost: ") == 2  # for people, and in <desc>
    other = beside_perf(tmp_path / "y.tlstax", lost=8)
    against = ["--against-capture", str(other)]
    assert main(["flamegraph", str(capture), *against, "-o", str(out)]) == 0
    assert out.read_text("utf-8").count("Lost: ") == 4


def test_a_phase_is_drawn_alone(tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    assert main(["flamegraph", DEMO, "--phase", "sign", "-o", str(out)]) == 0
    tree = ET.fromstring(out.read_text("utf-8"))
    frames = [one for one in tree.iter(f"{SVG}g") if one.get("data-depth") == "1"]
    assert [one.get("data-name") for one in frames] == ["sign"]


def test_the_difference_of_two_arms(tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    against = ["--against", "storm/connect/plaintext"]
    assert main(["flamegraph", DEMO, *against, "-o", str(out)]) == 0
    handshake = next(t for t in titles(out.read_text("utf-8")) if t.startswith("handshake: "))
    assert "0 ns →" in handshake.replace("\u00a0", " ")
    assert "per connection" in handshake
    assert "chance" not in handshake


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["--group", "nonsense"], ExitCode.USAGE, "storm/connect/tls"),
        (["--phase", "tde"], ExitCode.USAGE, "no time in tde"),
        (["--function", "EVP_MD_fetsh"], ExitCode.USAGE, "EVP_MD_fetch"),
        (["--function", "."], ExitCode.USAGE, "similar names are"),
        (["--view", "callers"], ExitCode.USAGE, "Add --function NAME"),
        (
            ["--function", "EVP_MD_fetch", "--against", "storm/connect/plaintext"],
            ExitCode.USAGE,
            "a difference is a flame graph or an icicle",
        ),
        (["--against-capture", "/dev/null"], ExitCode.CAPTURE, "/dev/null"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], exit_code: int, words: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "x.svg"
    assert main(["flamegraph", DEMO, *arguments, "-o", str(out)]) == exit_code
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not out.exists()


def test_of_two_equal_recordings_hardly_any_frame_is_coloured() -> None:
    generator = np.random.default_rng(3)
    coloured = 0
    for _ in range(50):
        sides = []
        for name in ("old", "new"):
            samples = generator.multinomial(2000, [1 / 60] * 60)
            folded = stacks(**{f"a_f{n}": float(count) * 1e4 for n, count in enumerate(samples)})
            sides.append(Profile(name, folded, 2000, 10, "query"))
        blocks = [one for one, _, _ in flames.difference(*sides).walk()]
        coloured += any(not one.is_noise for one in blocks)
    assert coloured <= 5, "one by one, 19 of 20 of these graphs would have a coloured frame"
