# SPDX-License-Identifier: GPL-2.0-only
"""Rounds on several starts of a server: all bounds are of starts, and few starts have a range."""

from tlstax.analysis.document import explain, sentences
from tlstax.analysis.findings import arm_metrics
from tlstax.analysis.findings.finding_metrics import Judged
from tlstax.analysis.findings.window_metrics import Metric
from tlstax.analysis.model.tables import Comparison
from tlstax.analysis.rows import round_units, tables, window_units
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.statistics import units
from tlstax.tests.unit.compare import test_diff, test_end_to_end, test_intermediaries
from tlstax.tests.unit.compare.test_waterfall import Experiment, by_name
from tlstax.tests.unit.experiment import test_libraries

ROUNDS = 2  # of a start


def on_starts(rows: Tables) -> Tables:
    """The same with a new start of the server after every second round."""
    first = min(run.round for run in rows.runs)
    rows.runs = [run._replace(server_start=(run.round - first) // ROUNDS) for run in rows.runs]
    return rows


def experiment(starts: int, *, restarted: bool = True, each: int = 100) -> Comparison:
    """A signature takes `each` ns more on each start, and 1 ns more in its second round."""
    made = Experiment()
    for number in range(starts * ROUNDS):
        sign = 600 + each * (number // ROUNDS) + number % ROUNDS
        plain = {("command", "on_cpu"): 400}
        made.run("plaintext", number, 1000, plain)
        made.run("tls", number, 1000 + sign, {**plain, ("sign", "on_cpu"): sign})
    if restarted:
        on_starts(made.tables)
    return made.compare()


def test_rounds_of_a_start_are_one_unit() -> None:
    of = round_units.of_starts({7: 1, 3: 0, 4: 0, 8: 1})
    assert (of.unit_of, of.units) == ({3: 0, 4: 0, 7: 1, 8: 1}, units.server_starts(2))
    assert of.start_count == 2
    one = round_units.of_starts({3: 4, 5: 4}, "paired rounds")
    assert (one.unit_of, one.units) == ({3: 0, 5: 1}, units.rounds(2, "paired rounds"))
    assert one.start_count == 1


def test_few_starts_have_a_range_however_many_rounds() -> None:
    found = experiment(5)
    assert (found.round_count, found.start_count) == (10, 5)
    assert found.difference is not None
    assert found.server_cpu is not None
    sign = by_name(found)["handshake_sign"].difference
    for measure in (found.difference, sign, found.server_cpu.difference):
        assert measure.unit_count == 5
        assert (measure.low_ns, measure.value_ns, measure.high_ns) == (600.5, 800.5, 1000.5)
        assert measure.smallest_ns is None
    assert found.verdict == "no interval"
    assert found.throughput_per_second["tls"].unit_count == 5
    assert found.note.startswith("Medians of 5 server starts, with their range: an interval needs")
    assert found.causes[0].share.unit_count == 5
    assert " in 5 server starts; " in sentences.answer([found], [], [], []).sentence


def test_as_many_rounds_of_one_start_had_an_interval() -> None:
    """It is one of this start: the next one may be 100 ns off."""
    found = experiment(5, restarted=False)
    assert found.difference is not None
    assert found.difference.unit_count == 10
    assert found.verdict == "more"
    assert found.note == "Medians of 10 paired rounds, with the 95 % intervals of these medians."


def test_eight_starts_have_an_interval() -> None:
    found = experiment(8)
    assert found.difference is not None
    assert found.difference.unit_count == 8
    assert found.verdict == "more"
    assert found.note == "Medians of 8 server starts, with the 95 % intervals of these medians."
    assert found.difference.low_ns is not None
    assert 600.5 < found.difference.low_ns < 700.5 + 1, "just outside of the second start"


def test_what_differs_between_starts_is_not_hidden_by_their_rounds() -> None:
    widths = []
    for restarted in (True, False):
        found = experiment(16, restarted=restarted).difference
        assert found is not None
        assert found.low_ns is not None
        assert found.high_ns is not None
        widths.append(found.high_ns - found.low_ns)
    assert widths[0] > 1.2 * widths[1]


def test_both_sides_and_what_is_between_are_of_starts() -> None:
    scene = test_end_to_end.Scene(rounds=10, plaintext=True)
    on_starts(scene.made)
    line = scene.explain()
    assert line.latency.unit_count == 5
    assert line.latency_added is not None
    assert line.latency_added.unit_count == 5
    assert any("5 server starts" in note for note in line.notes)
    made = test_intermediaries.made(10)
    on_starts(made)
    (between,) = explain.explain(made).between
    assert between.cpu.unit_count == 5
    assert between.cpu.value_ns == 80 * test_intermediaries.US


def test_recordings_of_several_starts_are_compared_by_start() -> None:
    before, after = (on_starts(test_diff.driven(ns, rounds=10)) for ns in (3000, 4000))
    line = test_diff.compare(before, after)
    assert line.refusals == []
    assert line.before.replicate_count == 5
    assert line.difference is not None
    assert line.difference.unit_count == 5
    assert "Medians of 5 server starts, with their range" in line.note
    rounds = test_diff.compare(before, test_diff.driven(4000, rounds=8))
    assert "Medians of 5 server starts and 8 rounds, with their range" in rounds.note


def test_too_few_starts_are_not_compared() -> None:
    before, after = (on_starts(test_diff.driven(ns, rounds=6)) for ns in (3000, 4000))
    refusals = test_diff.compare(before, after).refusals
    assert any("too few server starts: old: storm connect, TLS has 3" in text for text in refusals)


def test_findings_rest_on_starts() -> None:
    made = Experiment()
    for number in range(10):
        made.run("tls", number, 1000, {("sign", "on_cpu"): 500}, client_cpu_ns=300 + number)
        made.run("plaintext", number, 1000, {}, client_cpu_ns=100)
    on_starts(made.tables)
    parts = tuple(tables.groups(made.tables))
    part = next(one for one in parts if one.arm == "tls")
    plaintext = arm_metrics.partner_of(part, parts)
    assert plaintext is not None
    of = window_units.of_group(part, made.tables.windows)
    assert of.units == units.server_starts(5)
    assert sorted(of.unit_of.values()) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    metrics = dict.fromkeys(("connecting_wait_ns", "connecting_network_share"), Metric(None))
    arm_metrics.add_client_of_arms(Judged(metrics, "connection", 0.0, 8), part, plaintext)
    added = metrics["client_tls_ns"]
    assert added.unit_count == 5
    assert (added.low, added.value, added.high) == (200.5, 204.5, 208.5)


def test_two_or_three_starts_are_blocks_without_an_interval() -> None:
    made = Experiment()
    for number in range(6):
        made.run("tls", number, 1000, {("sign", "on_cpu"): 500})
    on_starts(made.tables)
    (part,) = tables.groups(made.tables)
    found = window_units.of_group(part, made.tables.windows).units
    assert not found.have_interval


def test_libraries_are_compared_by_start(capture: test_libraries.Capture) -> None:
    on_starts(capture.tables)
    compared = test_libraries.compare({"one": capture.tables}, "one")
    (server,) = compared.servers
    assert (server.round_count, server.start_count) == (4, 2)
    for cost in (server.handshake, server.record):
        assert cost is not None
        assert cost.total.unit_count == 2
    assert compared.note.startswith("Medians of 2 server starts, with their range")


capture = test_libraries.capture
