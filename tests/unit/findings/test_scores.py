# SPDX-License-Identifier: GPL-2.0-only
"""make check-causes scores every finding, and judges recordings again that were kept."""

import argparse
import ast
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from tlstax.analysis.findings import rules
from tlstax.collectors.commands import attach_request
from tlstax.collectors.host.features import HOST
from tlstax.tests.truth.causes import bench, blind, check, scores
from tlstax.tests.truth.causes.bench import Injection
from tlstax.tests.truth.causes.causes import CASES, CONTROLS, MIXED, true_of
from tlstax.tests.truth.causes.loads import Case
from tlstax.tests.truth.causes.modes import MODES, Recording
from tlstax.tests.truth.causes.scores import Scored

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "docs/demo/demo.tlstax"
CASES_OF = [
    Scored("a:0", ("one",), ("two",), ("one", "two")),
    Scored("a:1", ("one",), ("two",), ("two", "one")),
    Scored("b:0", ("one",), (), ("three", "one")),
    Scored("c:0", ("one",), (), ()),
    Scored("calm", (), (), (), is_control=True),
    Scored("restless", (), (), ("four",), is_control=True),
]


def test_every_finding_counts_and_not_the_first_alone() -> None:
    assert str(scores.precision(CASES_OF)) == "5/7 (71%)"
    assert str(scores.recall(CASES_OF)) == "3/4 (75%)"
    assert str(scores.leading(CASES_OF)) == "1/4 (25%)"
    assert str(scores.healthy(CASES_OF)) == "1/2 (50%)"
    assert str(scores.precision([])) == "none"


def test_scores_below_what_is_wanted_are_a_failure() -> None:
    assert len(scores.below_wanted(CASES_OF)) == 3
    right = [Scored(f"a:{at}", ("one",), (), ("one",)) for at in range(50)]
    calm = [Scored(f"calm-{at}", (), (), (), is_control=True) for at in range(99)]
    restless = Scored("restless", (), (), ("four",), is_control=True)
    assert scores.below_wanted([*right, *calm, restless]) == [], "one in a hundred, 50 of 51"
    (fired,) = scores.below_wanted([*right, *calm[1:], restless])
    assert "1/99" in fired
    missed = [Scored("b:0", ("one",), (), ()) for _ in range(6)]
    (unnamed,) = scores.below_wanted([*right, *missed])
    assert "50/56" in unnamed


def judged_again(
    monkeypatch: pytest.MonkeyPatch, kept: Path, found: Mapping[str, str]
) -> list[Scored]:
    """The controls of a seed, with these findings by the kind of server, scored by check.py."""
    controls = blind.controls(1)
    ids = {}
    for name, control in controls.items():
        place = check.place_of(name, MODES["none"], kept)
        place.parent.mkdir(exist_ok=True)
        place.touch()
        ids[place] = [found[control.kind]] if control.kind in found else []
    monkeypatch.setattr(
        check,
        "judged",
        lambda place: [
            SimpleNamespace(id=one, share=SimpleNamespace(value=0.5)) for one in ids[place]
        ],
    )
    attempts = check.Attempts(MODES["none"], kept, judge_only=True)
    check.run(attempts, {}, [], [], controls)
    return attempts.scored


def test_every_control_counts_whatever_is_true_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the drawn ones are of yaSSL or wolfSSL, of which something is true by itself."""
    scored = judged_again(monkeypatch, tmp_path, {})
    assert any(one.also for one in scored)
    assert scores.healthy(scored) == scores.Share(0, blind.CONTROLS_COUNT)


def test_a_control_with_what_is_true_of_it_is_no_false_one_and_with_more_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [one.kind for one in blind.controls(1).values()]
    scored = judged_again(monkeypatch, tmp_path, {"mysql56": "old_version", "mysql57": "steal"})
    assert scores.healthy(scored) == scores.Share(kinds.count("mysql57"), len(kinds))
    (sentence,) = (one for one in scores.below_wanted(scored) if "healthy" in one)
    assert sentence.startswith(f"{kinds.count('mysql57')}/{len(kinds)} ")


def test_a_case_in_which_nothing_must_be_found_is_no_control() -> None:
    """Its load was made to provoke a finding: no picture of a healthy server."""
    assert scores.healthy([Scored("page_cleaner:0", (), (), ("four",))]).count == 0


def test_what_was_found_instead_is_marked() -> None:
    page = scores.page(CASES_OF)
    assert "| a | 2/2 (100%) | 1/2 (50%) | 4/4 (100%) | one (2), two (2) |" in page
    assert "**three** (1)" in page
    assert "| calm | none | none | none | nothing |" in page


def test_a_recording_that_was_kept_is_judged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = check.place_of("a:0", MODES["none"], tmp_path)
    place.parent.mkdir(parents=True)
    shutil.copyfile(DEMO, place)
    attempts = check.Attempts(MODES["none"], tmp_path, judge_only=True)
    case = Case(("connections_not_reused",), (Injection(script="storm"),))
    made = attempts.attempt("a:0", case.parameters[0], case)
    assert made is not None
    assert made.found[0] == "connections_not_reused"
    assert capsys.readouterr().out.startswith("ok    a:0")
    assert attempts.attempt("a:1", case.parameters[0], case) is None, "it was not kept"
    assert [(one.name, one.why) for one in attempts.left_out] == [("a:1", scores.UNKEPT)]
    other = Case(("rsa_key_size",), case.parameters)
    attempts.attempt("a:0", other.parameters[0], other)
    assert not attempts.scored[-1].is_right


def test_what_could_not_be_recorded_is_named_beside_the_scores_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody heard of a control without a recording: 199 of 200 looked like all of them."""

    def record(injection: Injection, capture: Path, directory: Path) -> None:
        if injection.threads == 7:
            raise AssertionError("the load ended before the recording")
        shutil.copyfile(DEMO, capture)

    monkeypatch.setattr(bench, "record", record)
    storm, lost = Injection(script="storm"), Injection(script="storm", threads=7)
    cases = {
        "a": Case(("connections_not_reused",), (storm, lost)),
        "none": Case((), (lost,)),
        "asked": Case(("client_setup",), (Injection(record_client=True),)),
    }
    pairs = [("none", 0), ("a", 0), ("a", 1), ("asked", 0)]
    attempts = check.Attempts(MODES["default"], tmp_path, judge_only=False)
    failed = check.run(attempts, cases, pairs, [], {"healthy-0": lost, "healthy-1": storm})
    text = "2 cases (none:0, a:1) and 1 control (healthy-0) could not be recorded"
    assert text in failed
    page = scores.page(attempts.scored, attempts.left_out)
    unpriced = "1 case (asked:0) with probes that no budget is kept for"
    assert page.endswith(f" In none of these numbers: {text}; {unpriced}.")
    assert [one.name for one in attempts.scored] == ["a:0", "healthy-1"]
    assert "In none of these numbers" not in scores.page(attempts.scored)


def test_a_case_that_must_have_all_of_its_causes_is_not_named_by_one_of_them() -> None:
    """A client's long key passed by the client's cryptography alone, and two causes by one."""
    both = Scored("a:0", ("one", "two"), (), ("two", "one"), every=True)
    assert both.is_named
    assert both.is_right
    one = Scored("a:1", ("one", "two"), (), ("two",), every=True)
    assert not one.is_named
    assert not one.is_right
    assert str(scores.recall([both, one])) == "1/2 (50%)"
    assert Scored("a:2", ("one", "two"), (), ("two",)).is_named


def test_the_cases_of_two_causes_must_have_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [SimpleNamespace(id="client_crypto", share=SimpleNamespace(value=0.5))]
    monkeypatch.setattr(check, "judged", lambda place: alone)
    attempts = check.Attempts(MODES["none"], tmp_path, judge_only=True)
    (tmp_path / "none").mkdir()
    check.place_of("client_crypto:0", MODES["none"], tmp_path).touch()
    check.run(attempts, CASES, [("client_crypto", 0)], [], {})
    assert str(scores.recall(attempts.scored)) == "0/1 (0%)"
    assert all(case.every for case in MIXED.values())


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("analysis/findings/records.toml", "above = 0.3", "above = 0.2"),
        ("analysis/rows/window_units.py", "= 0.1", "= 0.2"),
        ("collectors/capture/order_statistics.py", "LEAST_UNITS", "LESS_UNITS"),
        ("tests/truth/causes/causes.py", '("fetch_tax",)', '("fetch_tax", "steal")'),
    ],
)
def test_a_table_names_the_rules_and_cases_that_it_is_of(
    tmp_path: Path, file: str, old: str, new: str
) -> None:
    for folder in (*scores.JUDGES, *scores.CASES):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    before = scores.frozen(tmp_path)
    assert before == scores.frozen(ROOT)
    changed = tmp_path / file
    text = changed.read_text()
    assert old in text
    changed.write_text(text.replace(old, new, 1))
    assert scores.frozen(tmp_path) != before


def test_a_digest_is_of_all_that_findings_are_made_from() -> None:
    """Whatever the rules and their metrics import, but names, units and texts."""
    folders = tuple(f"tlstax.{folder.replace('/', '.')}" for folder in scores.JUDGES)
    imported = {
        name
        for folder in scores.JUDGES
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in (node.module or "",)
        if name.startswith("tlstax.") and not name.startswith(folders)
    }
    texts = ("tlstax.analysis.model", "tlstax.analysis.quantities")
    assert [name for name in sorted(imported) if not name.startswith(texts)] == []


def test_a_page_that_is_written_has_its_digests_and_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, table = check.place_of("five_queries:0", MODES["none"], tmp_path), tmp_path / "page.md"
    place.parent.mkdir()
    shutil.copyfile(DEMO, place)
    told = ["check.py", "--judge", str(tmp_path), "--table", str(table), "five_queries"]
    monkeypatch.setattr("sys.argv", told)
    check.main()
    head, _, page = table.read_text().partition("\n\n")
    assert head == f"Mode none; {scores.frozen(ROOT)}."
    assert "2 cases (five_queries:1, five_queries:2) not among the recordings" in page


def test_each_mode_but_one_is_what_people_run(tmp_path: Path) -> None:
    """The options are understood by `attach`, and `default` leaves the level open."""
    parser = argparse.ArgumentParser()
    attach_request.add_arguments(parser)
    parser.set_defaults(ssh=None)
    found = {}
    for name, mode in MODES.items():
        if mode.options is None:
            continue
        made = parser.parse_args(["1", "-o", str(tmp_path / "x"), "--for", "30s", *mode.options])
        attach_request.settle_level(made)
        found[name] = (made.level.name, attach_request.budget_share(made))
        assert made.calibrate is (made.level.name == "FLOW")
    assert found == {
        "default": ("FLOW" if HOST.socket_events else "RECORD", 0.05),
        "default-30s": ("FLOW" if HOST.socket_events else "RECORD", 0.05),
        "flow": ("FLOW", None),
        "windows": ("RECORD", 0.05),
    }


def test_what_has_no_budget_is_not_recorded_as_the_default() -> None:
    client = Injection(record_client=True)
    assert check.in_mode(client, MODES["none"]) == client
    assert check.in_mode(client, MODES["default"]) is None
    assert check.in_mode(Injection(functions=("cipher",)), MODES["flow"]) is None
    made = check.in_mode(Injection(), MODES["default"])
    assert made is not None
    assert (made.mode, made.seconds) == ("default", 60.0)
    with pytest.raises(AssertionError, match="no budget"):
        Recording(1, Path("x"), 1.0, clients=(2,)).make(MODES["default"])


def test_what_is_true_of_a_load_follows_from_it() -> None:
    assert "connections_not_reused" in true_of(Injection(script="storm"))
    many = Injection(script="storm", sysbench=("--queries=12",))
    assert "connections_not_reused" not in true_of(many)
    assert true_of(Injection()) == ()


def test_every_case_names_findings_that_exist() -> None:
    known = {rule.id for rule in rules.rules()}
    for case in (*CASES.values(), *MIXED.values()):
        assert known.issuperset({*case.expected, *case.also})
        assert all(known.issuperset(true_of(one)) for one in case.parameters)
    assert not any(true_of(one) for one in CONTROLS.values())
