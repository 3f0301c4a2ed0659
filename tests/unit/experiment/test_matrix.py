# SPDX-License-Identifier: GPL-2.0-only
"""Recipes of kind matrix: what is refused and how, the order of runs, what the results keep."""

import itertools
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.experiment import matrix_costs, matrix_results
from tlstax.collectors.capture.schema import Run
from tlstax.workloads.drivers.model import DriveResult, Latencies
from tlstax.workloads.matrix import store as store_module
from tlstax.workloads.matrix.cells import baseline_of, plan
from tlstax.workloads.matrix.outline import outline
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.matrix.recipe_file import bundled_recipes, load_recipe
from tlstax.workloads.matrix.scale import SCALES, Length
from tlstax.workloads.matrix.store import CellRow, Outcome, Store

CAPTURE = "captures/x.tlstax"
SMALL = """\
kind = "matrix"
title = "Two arms"

[matrix]
servers = ["mariadb"]
scenarios = ["connect"]
transports = ["tcp", "unix"]

[scale.smoke]
rounds = 3
operations = 5
[scale.standard]
[scale.paper]
threads = [2]
"""


def load(folder: Path, text: str, scale: str | None = None) -> Recipe:
    path = folder / "mine.toml"
    path.write_text(text)
    return load_recipe(path, scale)


def test_a_recipe_is_the_product_of_its_lists(tmp_path: Path) -> None:
    recipe = load(tmp_path, SMALL)
    places = {(cell.transport, cell.tls, cell.threads) for cell in recipe.cells}
    assert places == set(itertools.product(("tcp", "unix"), ("off", "on"), (1,)))
    assert {cell.threads for cell in load(tmp_path, SMALL, "paper").cells} == {2}


def test_blocks_are_united_and_may_be_for_some_scales(tmp_path: Path) -> None:
    blocks = """
[[cells]]
tls = ["off"]
[[cells]]
transports = ["tcp"]
tls = ["off", "on"]
[[cells]]
scales = ["paper"]
scenarios = ["point_select"]
"""
    recipe = load(tmp_path, SMALL + blocks)
    assert [(cell.transport, cell.tls) for cell in recipe.cells] == [
        ("tcp", "off"),
        ("unix", "off"),
        ("tcp", "on"),
    ]
    assert len(load(tmp_path, SMALL + blocks, "paper").cells) == 7


def test_a_recipe_needs_the_scale_that_is_asked_for_and_no_other(tmp_path: Path) -> None:
    text = SMALL.partition("[scale.smoke]")[0]
    only = text + "[scale.standard]\nrounds = 7\n"
    for asked in (None, "standard"):
        scale = load(tmp_path, only, asked).scale
        assert (scale.name, scale.rounds_count) == ("standard", 7)
    said = r"lacks \[scale.paper\], which was asked for; it has standard"
    with pytest.raises(TlstaxError, match=said) as caught:
        load(tmp_path, only, "paper")
    assert caught.value.exit_code == ExitCode.USAGE
    assert load(tmp_path, SMALL).scale.name == "smoke", "the least that it has"
    with pytest.raises(TlstaxError, match=r"lacks a \[scale.NAME\], and known scales are"):
        load(tmp_path, text)


def test_cells_of_a_block_may_have_a_length_of_their_own(tmp_path: Path) -> None:
    blocks = """
[[cells]]
tls = ["off"]
[[cells]]
tls = ["off"]
transports = ["tcp"]
threads = [20]
operations = 200_000
[[cells]]
transports = ["unix"]
threads = [3]
seconds = 9
"""
    recipe = load(tmp_path, SMALL + blocks)
    found = {(cell.transport, cell.threads): recipe.length_of(cell) for cell in recipe.cells}
    assert found == {
        ("tcp", 1): Length(5, 5),
        ("unix", 1): Length(5, 5),
        ("tcp", 20): Length(5, 200_000),
        ("unix", 3): Length(9, None),
    }
    changed = recipe.with_changes(seconds=2)
    assert {changed.length_of(cell) for cell in changed.cells} == {Length(2)}
    lines = outline(recipe)
    assert "  mariadb-rsa2048 tcp sysbench 20x connect, TLS off: 200,000 operations" in lines
    assert "runs     15" in lines, "5 cells, 3 rounds"
    with pytest.raises(TlstaxError, match=r"\[cells\] operations = -1, which is not within 0"):
        load(tmp_path, SMALL + "[[cells]]\noperations = -1\n")


def test_a_given_proxysql_is_that_of_the_cells_that_name_none(tmp_path: Path) -> None:
    text = (
        SMALL.replace('["tcp", "unix"]', '["proxysql", "other", "own"]')
        + """
[transport.other]
kind = "proxysql"
socket = true
[transport.own]
kind = "proxysql"
program = "/opt/own"
"""
    )
    recipe = load(tmp_path, text).with_changes(proxysql="/opt/proxysql")
    programs = {cell.transport: recipe.transport_of(cell).options for cell in recipe.cells}
    assert programs == {
        "proxysql": {"program": "/opt/proxysql"},
        "other": {"program": "/opt/proxysql", "socket": True},
        "own": {"program": "/opt/own"},
    }
    with pytest.raises(TlstaxError, match="--proxysql is given, and at scale smoke no cell"):
        load(tmp_path, SMALL).with_changes(proxysql="/opt/proxysql")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("mariadb", "oracle"), r"servers names 'oracle', and known are mariadb, .*mysql97"),
        (('"unix"', '"pigeon"'), r"transports names 'pigeon', and known are tcp, unix"),
        (('"connect"', '"dance"'), r"scenarios names 'dance', and sysbench knows point_select"),
        (("rounds = 3", "rounds = 0"), r"in \[scale.smoke\] rounds = 0, .* within 1\.\."),
        (("rounds = 3", "round = 3"), r"in \[scale.smoke\] it has an unknown 'round'"),
        (("[scale.paper]", "[scale.huge]"), r"scale.huge.*known scales are smoke, standard, paper"),
        (("threads = [2]", "threads = [0]"), r"\[scale.paper\] threads holds 0"),
        (("threads = [2]", 'keys = ["rsa:512"]'), r""),
        (("[matrix]", '[tls.old]\nversion = "SSLv3"\n[matrix]'), r"\[tls.old\] version = 'SSLv3'"),
        (
            ("[matrix]", '[transport.x]\nkind = "ssh"\ncipher = "rot13"\n[matrix]'),
            r"\[transport.x\] cipher = 'rot13', and allowed are aes256-cbc",
        ),
        (
            ("[matrix]", '[driver.x]\nkind = "sysbench"\nrows = 5\n[matrix]'),
            r"unknown 'rows'; sysbench knows table_rows",
        ),
        (("[matrix]", '[baseline]\ncolour = "red"\n[matrix]'), r"unknown 'colour'; known are serv"),
        (("[matrix]", 'watch = ["dog"]\n[matrix]'), r"watch = 'dog', and known roles are client"),
        (('title = "Two', 'titel = "Two'), r"it has an unknown 'titel'"),
        (
            ("[scale.paper]", '[[published]]\nsource = "me"\nvalue = "much"\n[scale.paper]'),
            r"\[published\] .*value = 'much', which is no number|lacks",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    text = SMALL.replace(*change)
    assert text != SMALL
    if not said:  # of another scale: it is refused there
        load(tmp_path, text)
        with pytest.raises(TlstaxError, match="keys names 'rsa:512', and known kinds are rsa"):
            load(tmp_path, text, "paper")
        return
    with pytest.raises(TlstaxError, match=said) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "mine.toml") in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_published_figures_are_about_cells_that_are_run() -> None:
    for path in bundled_recipes().values():
        if load_recipe(path).kind != "matrix":
            continue
        recipes = [load_recipe(path, scale) for scale in SCALES]
        cells = {cell for recipe in recipes for cell in recipe.cells}
        for entry in recipes[0].published:
            assert any(cell.fits(entry.where) for cell in cells), (path, entry)


def test_every_run_is_planned_once_and_the_seed_is_the_order(tmp_path: Path) -> None:
    text = SMALL.replace('["mariadb"]', '["mariadb", "mysql56", "mysql97"]')
    cells = load(tmp_path, text).cells
    runs = plan(cells, 4, 1, seed=1)
    assert [run.run_id for run in runs] == list(range(1, len(cells) * 4 + 1))
    assert len({(run.cell_id, run.round) for run in runs}) == len(runs)
    assert [run.round for run in runs] == sorted(run.round for run in runs), "rounds in turn"
    for _, turn in itertools.groupby(runs, lambda run: run.turn):
        assert len({cells[run.cell_id - 1].server for run in turn}) == 1, "a turn is one server's"
    assert plan(cells, 4, 1, seed=1) == runs
    assert plan(cells, 4, 1, seed=2) != runs
    together = plan(cells, 4, 4, seed=1)
    assert len({run.turn for run in together}) == 3, "one turn for each server"


def test_without_a_seed_arms_alternate_and_servers_take_turns(tmp_path: Path) -> None:
    text = SMALL.replace('"matrix"', '"libraries"').replace('["tcp", "unix"]', '["tcp"]')
    text = text.replace('["mariadb"]', '["mariadb", "mysql56"]')
    text = text.replace('["connect"]', '["connect", "read_only"]')
    recipe = load(tmp_path, text)
    runs = plan(recipe.cells, 4, 1, seed=None)
    cells = [recipe.cells[run.cell_id - 1] for run in runs]
    mine = [cell for cell in cells if cell.server == "mariadb"]
    load_arms = [(cell.scenario, cell.arm) for cell in mine]
    one_round = list(itertools.product(("connect", "read_only"), ("plaintext", "tls")))
    assert load_arms == [*one_round, *one_round[::-1]] * 2
    servers = [cell.server for cell, _ in itertools.groupby(cells, lambda cell: cell)]
    turns = [server for server, _ in itertools.groupby(servers)]
    assert turns == ["mariadb", "mysql56", "mariadb", "mysql56", "mariadb"], "and back, each time"
    assert [run.round for run in runs] == sorted(run.round for run in runs)


def test_a_comparison_of_libraries_has_one_key(tmp_path: Path) -> None:
    text = SMALL.replace('"matrix"', '"libraries"').replace('["tcp", "unix"]', '["tcp"]')
    assert load(tmp_path, text).kind == "libraries"
    with pytest.raises(TlstaxError, match="a server has several keys"):
        load(tmp_path, text.replace("[matrix]", '[matrix]\nkeys = ["rsa:2048", "rsa:4096"]'))


def test_a_cell_is_compared_with_itself_elsewhere(tmp_path: Path) -> None:
    cells = load(tmp_path, SMALL).cells
    baseline = {"tls": "off", "transport": "tcp"}
    found = {cell: baseline_of(cell, cells, baseline) for cell in cells}
    base = next(cell for cell in cells if (cell.tls, cell.transport) == ("off", "tcp"))
    assert found.pop(base) is None
    assert set(found.values()) == {base}


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    recipe = load(tmp_path, SMALL)
    folder = tmp_path / "out"
    folder.mkdir()
    rows = [CellRow(cell, "connect", True, None) for cell in recipe.cells]
    with Store.create(folder) as store:
        meta = {"recipe": "mine", "baseline": "{}"}
        store.write_plan(meta, rows, plan(recipe.cells, 3, 1, seed=1))
    return folder


def outcome(samples: int = 0) -> Outcome:
    latencies = Latencies(10, 20, 30, samples_ns=tuple(range(samples)))
    driven = DriveResult(100, 10**9, latencies, 100, 5, (1,))
    row = Run(1, "sysbench", "connect", "tls", 0, 1, 2, 1, 100, 100, 10, 20, 30, 5, "{}")
    return Outcome(row, driven, "TLSv1.3", "AES", None)


def test_results_are_private_and_kept_run_by_run(planned: Path) -> None:
    assert (planned / store_module.NAME).stat().st_mode & 0o777 == 0o600
    with Store.open(planned) as store:
        store.finish(3, CAPTURE, outcome(samples=5000))
        store.fail([1, 2], "why")
        store.fail([4], "never", "skipped")
    with Store.open(planned) as store:
        assert store.counts() == {"done": 1, "failed": 2, "skipped": 1, "planned": 8}
        assert [run.run_id for run in store.runs("planned")] == list(range(5, 13))
        assert sum(count for _, _, count in store.reasons()) == 3
        assert store.plan_again() == 3, "what was left out may be possible now"
        assert store.counts()["planned"] == 11
    found = matrix_results.read(planned)
    (kept,) = found.samples.values()
    assert 1000 <= len(kept) <= store_module.SAMPLES_MAX, "thinned out evenly"
    assert kept == sorted(kept)


def test_captures_of_a_server_become_one(planned: Path) -> None:
    with Store.open(planned) as store:
        for run_id, capture in ((2, "captures/b"), (1, "captures/a"), (3, "captures/b")):
            row = outcome().row._replace(start_ns=run_id)
            store.finish(run_id, capture, replace(outcome(), row=row))
        assert store.captures("mariadb") == ["captures/a", "captures/b"], "in the order of time"
        store.replace_captures(["captures/a", "captures/b"], "mariadb.tlstax")
        assert store.captures("mariadb") == ["mariadb.tlstax"]
        assert store.captures("mysql56") == []


def test_a_full_disk_keeps_what_is_finished(planned: Path) -> None:
    with Store.open(planned) as store:
        store.finish(1, CAPTURE, outcome())
        connection = store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(TlstaxError, match=r"full.*tlstax lab resume") as caught:
            store.finish(2, CAPTURE, outcome(samples=100_000))
        assert caught.value.exit_code == ExitCode.IO
        assert store.counts() == {"done": 1, "planned": 11}


def test_another_file_is_no_matrix(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match=r"holds no results\.sqlite"):
        Store.open(tmp_path)
    sqlite3.connect(tmp_path / store_module.NAME).close()
    (tmp_path / store_module.NAME).write_bytes(b"not a database, and long enough to be one" * 50)
    with pytest.raises(TlstaxError, match="not a database") as caught:
        Store.open(tmp_path)
    assert caught.value.exit_code == ExitCode.CAPTURE
    with pytest.raises(TlstaxError, match="not a database"):
        matrix_results.read(tmp_path)


def test_closure_is_of_all_runs_together_and_of_enough_time() -> None:
    least = matrix_costs.JUDGED_NS
    runs = [{1: (least, least)}, {7: (least * 8 // 10, least)}]
    assert matrix_costs.closure_of(runs) == pytest.approx(0.9)
    assert matrix_costs.closure_of([*runs, {8: (1, 1)}]) is None, "two runs' worth for three"
    assert matrix_costs.closure_of([]) is None
