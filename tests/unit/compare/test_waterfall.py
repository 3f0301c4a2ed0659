# SPDX-License-Identifier: GPL-2.0-only
"""The waterfall: exact on a hand-made capture, conserved on any."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlstax.analysis import quantities
from tlstax.analysis.compare import waterfall_steps
from tlstax.analysis.document import explain
from tlstax.analysis.model.tables import Comparison, WaterfallStep
from tlstax.analysis.rows.tables import Tables
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
from tlstax.collectors.capture.vocabulary import CATEGORIES, PHASES, STATES

Costs = dict[tuple[str, str], int]
FRAMES = [
    Frame(1, "/usr/lib/libcrypto.so.3", "", 0, "EVP_EncryptUpdate", 0, "dynsym", ""),
    Frame(2, "/usr/sbin/mariadbd", "", 0, "net_real_write", 0, "dynsym", ""),
]
STACKS = [Stack(1, "1"), Stack(2, "2")]


class Experiment:
    """Runs of one driver, added one by one."""

    def __init__(self) -> None:
        self.tables = Tables(frames=FRAMES, stacks=STACKS)

    def run(
        self,
        arm: str,
        number: int,
        latency_ns: int,
        costs: Costs,
        count: int = 1000,
        client_cpu_ns: int = 0,
        samples: tuple[SampleStack, ...] = (),
        handshakes: int | None = None,
    ) -> None:
        """A run whose `costs` are per operation."""
        run_id = len(self.tables.runs) + 1
        start_ns = run_id * 10**9
        self.tables.runs.append(
            Run(
                run_id, "storm", "connect", arm, number, start_ns, start_ns + 10**9, 4,
                count, count, latency_ns, 0, 0, client_cpu_ns * count, "{}",
            )
        )  # fmt: skip
        self.tables.windows.append(Window(run_id, run_id, start_ns, start_ns + 10**9))
        for (phase, state), time_ns in costs.items():
            self.tables.ledger.append(Ledger(run_id, 1, phase, state, time_ns * count))
        shakes = (count if arm == "tls" else 0) if handshakes is None else handshakes
        if shakes:
            self.tables.phase_counts.append(PhaseCount(run_id, "handshake", shakes))
        mine = [row._replace(window_id=run_id) for row in samples]
        self.tables.samples = [*self.tables.samples, *mine]

    def compare(self) -> Comparison:
        (comparison,) = explain.explain(self.tables).comparisons
        return comparison


def by_name(comparison: Comparison) -> dict[str, WaterfallStep]:
    return {cell.name: cell for cell in (*comparison.cells, *comparison.beside)}


def test_cells_of_a_hand_made_experiment() -> None:
    experiment = Experiment()
    samples = (
        SampleStack(0, "record_write", -1, 1, None, 30),
        SampleStack(0, "record_write", -1, 2, None, 70),
    )
    for number in range(2):
        plaintext: Costs = {
            ("command", "on_cpu"): 100,
            ("connect", "blocked_network"): 50,
            ("idle", "blocked_network"): 9999,
        }
        tls: Costs = {
            **plaintext,
            ("sign", "on_cpu"): 1000,
            ("sign", "runnable"): 20,
            ("handshake", "blocked_network"): 400,
            ("record_write", "on_cpu"): 10,
            ("disconnect", "on_cpu"): 77,
        }
        experiment.run("plaintext", number, 300, plaintext, client_cpu_ns=60)
        experiment.run("tls", number, 2000, tls, client_cpu_ns=560, samples=samples)
    comparison = experiment.compare()
    differences = {name: cell.difference.value_ns for name, cell in by_name(comparison).items()}
    assert {name: value for name, value in differences.items() if value} == {
        "handshake_sign": 1000,
        "scheduling": 20,
        "handshake_wait": 400,
        "record_cipher": pytest.approx(3),
        "record_other": pytest.approx(7),
        # 500 more CPU at the client, 420 of them while the server waited for it or for a CPU.
        "client": 80,
        # 1700 in all.
        "unexplained": pytest.approx(190),
        "disconnect": 77,
        "client_cpu": 500,
    }
    assert comparison.difference is not None
    assert comparison.difference.value_ns == 1700
    assert comparison.ratio is not None
    assert comparison.ratio.value == pytest.approx(2000 / 300)
    assert comparison.operation == "connection"
    assert by_name(comparison)["handshake_sign"].share == pytest.approx(1000 / 1700)


def test_bars_of_the_waterfall_join_the_two_latencies() -> None:
    experiment = Experiment()
    experiment.run("plaintext", 0, 300, {("command", "on_cpu"): 100})
    experiment.run("tls", 0, 900, {("command", "on_cpu"): 150, ("sign", "on_cpu"): 400})
    lines = experiment.compare().cells
    assert lines[0].start_ns == 300
    assert lines[-1].end_ns == pytest.approx(900)
    for left, right in itertools.pairwise(lines):
        assert left.end_ns == right.start_ns


def test_few_rounds_give_their_range_and_no_verdict() -> None:
    experiment = Experiment()
    for number in range(7):
        experiment.run("plaintext", number, 300, {("command", "on_cpu"): 100})
        experiment.run("tls", number, 900 + number, {("sign", "on_cpu"): 400 + number})
    comparison = experiment.compare()
    assert comparison.verdict == "no interval"
    assert {cell.verdict for cell in comparison.cells} == {"no interval"}
    sign = by_name(comparison)["handshake_sign"].difference
    assert (sign.low_ns, sign.value_ns, sign.high_ns, sign.unit_count) == (400, 403, 406, 7)
    assert "7 paired rounds, with their range" in comparison.note
    assert "range of 7" in comparison.sentence
    assert "95 %" not in comparison.sentence + comparison.note


def test_a_difference_within_the_noise_is_no_difference() -> None:
    experiment = Experiment()
    pairs = ((300, 310), (305, 299), (299, 302), (301, 297)) * 2
    for number, (plaintext, tls) in enumerate(pairs):
        experiment.run("plaintext", number, plaintext, {("command", "on_cpu"): plaintext // 2})
        experiment.run("tls", number, tls, {("command", "on_cpu"): tls // 2})
    comparison = experiment.compare()
    assert comparison.verdict == "no difference seen"
    assert by_name(comparison)["command"].verdict == "no difference seen"
    assert "no difference seen" in comparison.sentence
    assert comparison.difference is not None
    assert comparison.difference.smallest_ns is not None
    smallest = quantities.time_text(comparison.difference.smallest_ns)
    assert f"{smallest} would have been seen" in comparison.sentence
    assert 5 < comparison.difference.smallest_ns < 20
    assert {cell.share for cell in comparison.cells} == {None}


def test_a_difference_beyond_the_noise_is_more_or_less() -> None:
    experiment = Experiment()
    for number, noise in enumerate((0, 4, -3, 2, -1, 3, 1, -2)):
        experiment.run("plaintext", number, 300 + noise, {("command", "on_cpu"): 200 + noise})
        costs = {("sign", "on_cpu"): 400 + noise, ("command", "on_cpu"): 100 - noise}
        experiment.run("tls", number, 800 - noise, costs)
    comparison = experiment.compare()
    found = by_name(comparison)
    assert comparison.verdict == found["handshake_sign"].verdict == "more"
    assert found["command"].verdict == "less"
    sign = found["handshake_sign"].difference
    assert sign.low_ns is not None
    assert sign.high_ns is not None
    assert sign.low_ns <= sign.value_ns <= sign.high_ns
    assert " and 2.7 times as long" in comparison.sentence


def test_a_figure_is_the_median_of_its_rounds() -> None:
    experiment = Experiment()
    experiment.run("plaintext", 0, 100, {("command", "on_cpu"): 50}, count=1000)
    experiment.run("plaintext", 1, 200, {("command", "on_cpu"): 90}, count=3000)
    experiment.run("tls", 0, 100, {("command", "on_cpu"): 50})
    experiment.run("tls", 1, 100, {("command", "on_cpu"): 50})
    comparison = experiment.compare()
    assert comparison.latency["plaintext"].value_ns == 150
    assert by_name(comparison)["command"].plaintext_ns == 70
    assert comparison.operation_counts == {"plaintext": 4000, "tls": 2000}
    rate = comparison.throughput_per_second["plaintext"]
    assert (rate.value, rate.low, rate.high, rate.unit_count) == (2000, 1000, 3000, 2)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda e: e.tables.runs.pop(), "no tls run"),
        (lambda e: e.run("plaintext", 0, 5, {}, handshakes=3), "plaintext arm made 3 TLS"),
        (lambda e: e.tables.phase_counts.clear(), "no handshake was seen"),
        (
            lambda e: e.tables.runs.append(e.tables.runs.pop()._replace(operation_count=0)),
            "no operation finished in the tls",
        ),
        (
            lambda e: e.tables.runs.append(e.tables.runs.pop()._replace(threads_count=99)),
            "different numbers of client threads",
        ),
        (lambda e: e.tables.runs.append(e.tables.runs.pop()._replace(round=7)), "no round"),
        (
            lambda e: e.tables.targets.extend(
                Target(n, n, "", "", "", "", "", "", "") for n in (1, 2)
            ),
            "more than one server",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(spoil: object, reason: str) -> None:
    experiment = Experiment()
    experiment.run("plaintext", 0, 300, {("command", "on_cpu"): 100})
    experiment.run("tls", 0, 900, {("sign", "on_cpu"): 400})
    assert callable(spoil)
    spoil(experiment)
    comparison = experiment.compare()
    assert comparison.refusal is not None
    assert reason in comparison.refusal
    assert comparison.cells == []
    assert reason in comparison.sentence


def test_a_phase_without_samples_is_not_split() -> None:
    experiment = Experiment()
    experiment.run("plaintext", 0, 300, {})
    experiment.run("tls", 0, 900, {("handshake", "on_cpu"): 400})
    assert by_name(experiment.compare())["handshake_other"].difference.value_ns == 400


COSTS = st.dictionaries(
    st.tuples(st.sampled_from(PHASES), st.sampled_from(STATES)), st.integers(0, 10**7), max_size=12
)
ROUNDS = st.lists(
    st.tuples(COSTS, COSTS, st.integers(1, 10**7), st.integers(1, 10**7), st.integers(0, 10**6)),
    min_size=1,
    max_size=9,
)
SAMPLES = st.lists(
    st.builds(
        lambda phase, syscall, stack, count: SampleStack(0, phase, syscall, stack, None, count),
        st.sampled_from(PHASES),
        st.sampled_from((-1, 44, 202)),
        st.sampled_from((None, 1, 2, 99)),
        st.integers(1, 100),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(rounds=ROUNDS, samples=SAMPLES)
def test_cells_and_unexplained_sum_to_the_difference(
    rounds: list[tuple[Costs, Costs, int, int, int]], samples: list[SampleStack]
) -> None:
    experiment = Experiment()
    for number, (plaintext, tls, slow_ns, fast_ns, cpu_ns) in enumerate(rounds):
        experiment.run("plaintext", number, slow_ns, plaintext, 7, cpu_ns // 2, tuple(samples))
        experiment.run("tls", number, fast_ns, tls, 11, cpu_ns, tuple(samples))
    comparison = experiment.compare()
    assert comparison.difference is not None
    total = sum(cell.difference.value_ns for cell in comparison.cells)
    assert total == pytest.approx(comparison.difference.value_ns, abs=1e-3)
    for arm, take in (("plaintext", "plaintext_ns"), ("tls", "tls_ns")):
        latency = comparison.latency[arm].value_ns
        assert sum(getattr(cell, take) for cell in comparison.cells) == pytest.approx(latency)
    if comparison.round_count > 1:
        for cell in comparison.cells:
            assert cell.difference.low_ns is not None
            assert cell.difference.high_ns is not None
            assert cell.difference.low_ns <= cell.difference.value_ns <= cell.difference.high_ns


def test_one_disturbed_round_changes_neither_the_figure_nor_the_verdict() -> None:
    def found(disturbance_ns: int) -> Comparison:
        experiment = Experiment()
        for number in range(8):
            extra = disturbance_ns if number == 3 else 0
            plaintext: Costs = {("command", "on_cpu"): 100 + number}
            tls: Costs = {("command", "on_cpu"): 130 + 2 * number + extra, ("sign", "on_cpu"): 400}
            experiment.run("plaintext", number, 300 + number, plaintext)
            experiment.run("tls", number, 800 + 2 * number + extra, tls)
        return experiment.compare()

    calm, disturbed = found(0), found(50_000)
    assert calm.difference is not None
    assert disturbed.difference is not None
    assert disturbed.difference.value_ns == pytest.approx(calm.difference.value_ns, abs=1)
    assert by_name(disturbed)["handshake_sign"].verdict == "more"
    rest = disturbed.unexplained["tls"]
    assert rest.value_ns == pytest.approx(calm.unexplained["tls"].value_ns, abs=2)


def test_equal_arms_have_hardly_ever_a_marked_step() -> None:
    """Thirteen steps that differ by noise: judged one by one, every second table had a mark."""
    generator = np.random.default_rng(8)
    phases = ("sign", "keygen", "derive", "verify", "certificate", "connect", "command", "tde")
    keys = [(phase, "on_cpu") for phase in phases]
    keys += [("command", state) for state in STATES if state != "on_cpu"]
    marked = 0
    for _ in range(20):
        experiment = Experiment()
        for number in range(8):
            for arm in ("plaintext", "tls"):
                costs = {key: round(generator.normal(1000, 50)) for key in keys}
                latency_ns = sum(costs.values()) + round(generator.normal(500, 50))
                experiment.run(arm, number, latency_ns, costs)
        lines = experiment.compare().cells
        marked += any(line.verdict in ("more", "less") for line in lines)
    assert marked <= 3


def test_every_time_and_every_category_has_a_cell() -> None:
    names = {kind.name for kind in (*waterfall_steps.KINDS, *waterfall_steps.BESIDE)}
    for phase in PHASES:
        for state in STATES:
            cell = waterfall_steps.exact_step(phase, state)
            split = phase in waterfall_steps.SAMPLED_PHASES and state == "on_cpu"
            unserved = phase in ("unknown", "background", "idle")
            assert (cell is None) == (split or unserved)
            assert cell is None or cell in names
    for phase in waterfall_steps.SAMPLED_PHASES:
        for category in CATEGORIES:
            assert waterfall_steps.sampled_step(phase, category) in names


def test_texts_of_numbers() -> None:
    assert quantities.time_text(0) == "0 ns"
    assert quantities.time_text(999.9) == "1.00 µs"
    assert quantities.time_text(12_345) == "12.3 µs"
    assert quantities.time_text(6.2e6) == "6.20 ms"
    assert quantities.time_text(1.5e9) == "1.50 s"
    assert quantities.change_text(-1500) == "−1.50 µs"
    assert quantities.share_text(0.043) == "4.3 %"
    assert quantities.share_text(0.61) == "61 %"
    assert quantities.factor_text(12.34) == "12 times as long"
    assert quantities.factor_text(1.27) == "27 % longer"
    assert quantities.factor_text(0.9) == "10 % less time"
