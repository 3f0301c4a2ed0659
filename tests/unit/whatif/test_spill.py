# SPDX-License-Identifier: GPL-2.0-only
"""The bounds of `whatif --no-tls` from pairs of arms, with one server left out.

The second and third server are the demo's, with plaintext arms that take more or less.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.analysis.rows import tables
from tlstax.analysis.whatif.no_tls import Spill
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.tax import check, spill
from tlstax.tests.truth.tax.spill import Pair
from tlstax.workloads.matrix.recipe_file import load_recipe

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "docs/demo/demo.tlstax"
LOADS = 3


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    with CaptureReader.open(DEMO) as reader:
        return spill.pairs_of(tables.load(reader), "demo")


def other(pairs: list[Pair], name: str, factor: float) -> list[Pair]:
    """A server whose plaintext arms take so much of the demo's."""
    made = []
    for pair in pairs:
        parts = pair.plaintext
        assert parts is not None
        scaled = replace(
            parts,
            handshake=factor * parts.handshake,
            records=factor * parts.records,
            rest=factor * parts.rest,
        )
        made.append(replace(pair, server=name, plaintext=scaled))
    return made


def test_pairs_say_what_tls_costs_where_it_is_not_at_work(pairs: list[Pair]) -> None:
    assert len(pairs) == LOADS
    assert [pair.is_open for pair in pairs].count(True) == LOADS - 1
    for pair in pairs:
        assert pair.parts is not None
        elsewhere = float(pair.parts.now[0] - pair.parts.least[0]) - pair.plaintext_ns
        assert pair.elsewhere_ns == pytest.approx(elsewhere)


def test_rounds_are_paired_by_their_number(pairs: list[Pair]) -> None:
    """An arm that lost a round is held against the others' rounds, not against those beside it."""
    with CaptureReader.open(DEMO) as reader:
        rows = tables.load(reader)
    lost = min(run.round for run in rows.runs)
    rows.runs = [run for run in rows.runs if run.arm != "plaintext" or run.round != lost]
    for whole, fewer in zip(pairs, spill.pairs_of(rows, "demo"), strict=True):
        assert len(fewer.taxes_ns) == len(whole.taxes_ns) - 1
        assert fewer.taxes_ns[1:] == pytest.approx(whole.taxes_ns[2:])


def test_the_bounds_are_the_least_and_the_most_of_the_pairs(pairs: list[Pair]) -> None:
    found = spill.fit(pairs)
    opened = [pair for pair in pairs if pair.is_open]
    parts = [(pair.elsewhere_ns, pair.parts) for pair in opened if pair.parts]
    shares = [elsewhere_ns / float(of.rest[0]) for elsewhere_ns, of in parts]
    known = [
        (elsewhere_ns - float(of.unknown[0])) / float(of.rest[0]) for elsewhere_ns, of in parts
    ]
    assert found.rest == (min(shares), max(min(shares), *known))
    shipped = Spill()
    assert shipped.rest[0] <= found.rest[0] <= found.rest[1] <= shipped.rest[1]
    assert spill.fit([]) == shipped
    assert spill.fit(opened).handshake == shipped.handshake


def test_a_server_like_the_others_is_predicted_and_another_is_not(pairs: list[Pair]) -> None:
    alike = [*pairs, *other(pairs, "second", 0.99), *other(pairs, "third", 1.01)]
    held = spill.leave_one_out(alike)
    assert len(held) == 3 * LOADS
    assert all(one.is_inside for one in held if one.pair.server != "third")
    cheap = [*pairs, *other(pairs, "second", 0.99), *other(pairs, "third", 0.5)]
    held = spill.leave_one_out(cheap)
    assert not any(one.is_inside for one in held if one.pair.server == "third")
    assert spill.fit(cheap).rest[1] > spill.fit(alike).rest[1]


def test_wider_bounds_of_others_make_a_wider_interval(pairs: list[Pair]) -> None:
    near = spill.leave_one_out([*pairs, *other(pairs, "second", 0.99)])
    far = spill.leave_one_out([*pairs, *other(pairs, "second", 0.99), *other(pairs, "x", 0.8)])
    widths = [
        sum(one.half_width for one in held if one.pair.server == "second") for held in (near, far)
    ]
    assert widths[1] > widths[0]


def test_what_the_claim_lacks_is_said(pairs: list[Pair]) -> None:
    both = [*pairs, *other(pairs, "second", 0.99)]
    text = " ".join(spill.failures(both, spill.leave_one_out(both)))
    assert "servers with 8 loads or more: 0; the claim needs 5" in text
    refused = [replace(pair, parts=None) for pair in pairs]
    text = " ".join(spill.failures(refused, spill.leave_one_out(refused)))
    assert "all: 3 of 3 have no prediction" in text
    wide = [replace(one, is_wide=True) for one in spill.leave_one_out(both)]
    assert "too wide: 6 of 6 have no prediction" in " ".join(spill.failures(both, wide))
    wrong = [*both, *other(pairs, "third", 0.5)]
    assert "intervals contain" in " ".join(spill.failures(wrong, spill.leave_one_out(wrong)))


def test_the_command_prints_the_reason_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["check.py", str(DEMO)])
    assert check.main() == 0
    assert "3 of 3 inside" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["check.py", "--leave-one-server-out", str(DEMO)])
    assert check.main() == 1
    assert "the claim needs 5" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["check.py", str(DEMO), str(DEMO)])
    with pytest.raises(SystemExit, match="is there twice"):
        check.main()


@pytest.mark.parametrize(("scale", "servers", "loads"), [("standard", 8, 8), ("smoke", 2, 3)])
def test_the_recipe_of_the_pairs_has_servers_and_loads_enough(
    scale: str, servers: int, loads: int
) -> None:
    recipe = load_recipe(ROOT / "tests/truth/tax/pairs.toml", scale)
    assert len({cell.server for cell in recipe.cells}) == servers
    assert len({cell.scenario for cell in recipe.cells}) == loads
    if scale == "standard":
        assert servers >= spill.LEAST_SERVERS
        assert loads >= spill.LEAST_LOADS
