# SPDX-License-Identifier: GPL-2.0-only
"""What TLS costs the server's CPUs leads a comparison; its shares are sums of firm steps alone."""

from dataclasses import replace

import pytest

from tlstax.analysis.document import sentences
from tlstax.analysis.model.tables import Comparison
from tlstax.tests.unit.compare.test_waterfall import Experiment

ROUNDS = (0, 4, -3, 2, -1, 3, 1, -2)


def experiment(tls_latency: int = 3000, keygen_noise: int = 1, rounds: int = 8) -> Comparison:
    """Rounds whose key generation differs by its noise around nothing; all else is firm."""
    made = Experiment()
    for number, noise in enumerate(ROUNDS[:rounds]):
        plain = {("command", "on_cpu"): 100 + noise, ("command", "blocked_futex"): 900}
        made.run("plaintext", number, 1000 + noise, plain)
        costs = {
            **plain,
            ("sign", "on_cpu"): 600 + noise,
            ("keygen", "on_cpu"): 200 + 100 * keygen_noise * noise,
            ("handshake", "blocked_network"): 700,
            ("disconnect", "on_cpu"): 50,
            ("disconnect", "blocked_futex"): 500,
            ("background", "on_cpu"): 7000,
        }
        made.run("tls", number, tls_latency - noise, costs)
    return made.compare()


def test_the_cpu_time_of_a_server_holds_no_waits_and_all_phases_of_connections() -> None:
    cpu = experiment(keygen_noise=0).server_cpu
    assert cpu is not None
    assert cpu.plaintext.value_ns == pytest.approx(100.5, abs=0.6)
    assert cpu.difference.value_ns == pytest.approx(600 + 200 + 50, abs=1)
    assert cpu.ratio.value == pytest.approx(950 / 100, rel=0.02)
    assert cpu.verdict == "more"


def test_a_sentence_leads_with_the_cpu_time_and_then_the_latency() -> None:
    text = experiment(keygen_noise=0).sentence
    assert text.startswith("With TLS, a new connection takes 9.5 times the server CPU (+8")
    assert text.index("server CPU") < text.index("3.0 times as long")


def test_cpu_time_is_told_where_the_latency_does_not_differ() -> None:
    text = experiment(tls_latency=1000, keygen_noise=0).sentence
    assert "times the server CPU" in text
    assert "latency: no difference seen" in text


def test_few_rounds_are_named_where_the_latency_does_not_differ() -> None:
    made = experiment(tls_latency=1000, keygen_noise=0, rounds=4)
    text = sentences.answer([made], [], [], []).sentence
    assert " in 4 rounds; no difference in latency seen)" in text


def test_few_rounds_are_named_at_the_first_difference_that_was_seen() -> None:
    unseen = replace(in_rounds((-30, 0), (20, 0), (10, 0)), operation="connection")
    seen = replace(in_rounds((1000, 400), (900, 500), (1100, 600)), operation="query")
    text = sentences.answer([unseen, seen], [], [], []).sentence
    assert " in 3 rounds; " in text
    assert text.endswith("; no difference seen for a new connection.")


@pytest.mark.parametrize("rounds", [4, 8])
@pytest.mark.parametrize(("noise", "steps"), [(0, 2), (1, 1)])
def test_a_share_is_the_sum_of_firm_steps_alone(noise: int, steps: int, rounds: int) -> None:
    """One firm step of a group was enough to add all others to the share."""
    made = experiment(keygen_noise=noise, rounds=rounds)
    causes = {cause.label: cause for cause in made.causes}
    crypto = causes["asymmetric crypto in the server"]
    assert len(crypto.steps) == steps
    assert crypto.share.value == pytest.approx((600 + 200 * (steps - 1)) / 2000, rel=0.02)
    assert crypto.share.low is not None
    assert crypto.share.high is not None
    assert crypto.share.low <= crypto.share.value <= crypto.share.high


def in_rounds(*rounds: tuple[int, int], plain: int = 1000) -> Comparison:
    """Rounds of what TLS adds to the latency, and to the signature."""
    made = Experiment()
    for number, (added, sign) in enumerate(rounds):
        made.run("plaintext", number, plain, {("command", "on_cpu"): 500})
        costs = {("command", "on_cpu"): 500, ("sign", "on_cpu"): sign}
        made.run("tls", number, plain + added, costs)
    return made.compare()


def test_shares_of_a_sentence_have_bounds() -> None:
    made = in_rounds((1000, 400), (1000, 500), (1000, 600), (1000, 700))
    assert "40 to 70 % is asymmetric crypto in the server" in made.sentence


def test_a_share_that_is_the_same_in_each_round_has_no_wide_bounds() -> None:
    """They were bounds of a difference over one median whole: 50 to 160 % for this."""
    made = in_rounds((600, 540), (1000, 900), (1100, 990), (1900, 1710))
    assert "90 % is asymmetric crypto in the server" in made.sentence
    share = made.causes[0].share
    assert share.low == pytest.approx(0.9)
    assert share.high == pytest.approx(0.9)
    assert share.unit_count == 4


def test_a_difference_that_was_not_seen_has_no_causes() -> None:
    made = in_rounds((-300, 400), (1000, 400), (1000, 400), (1000, 400))
    assert made.causes == []
    assert {step.share for step in made.cells} == {None}


@pytest.mark.parametrize("plain", [(0, 0), (0, 700)])
def test_a_server_without_cpu_time_in_plaintext_has_no_ratio(plain: tuple[int, int]) -> None:
    """It was a traceback of the JSON (nan), and "inf times the server CPU"."""
    made = Experiment()
    for number, cpu_ns in enumerate(plain):
        made.run("plaintext", number, 1000, {("command", "on_cpu"): cpu_ns})
        made.run("tls", number, 2000, {("sign", "on_cpu"): 900})
    found = made.compare()
    assert found.server_cpu is None
    assert "server CPU" not in found.sentence


@pytest.mark.parametrize("rounds", [4, 8])
def test_a_step_that_tls_makes_shorter_is_no_cause(rounds: int) -> None:
    made = Experiment()
    for number, noise in enumerate(ROUNDS[:rounds]):
        made.run("plaintext", number, 1000 + noise, {("command", "on_cpu"): 300 + noise})
        costs = {
            ("command", "on_cpu"): 100 - noise,
            ("connect", "on_cpu"): 250,
            ("sign", "on_cpu"): 600,
        }
        made.run("tls", number, 3000 - noise, costs)
    causes = {cause.label: cause for cause in made.compare().causes}
    assert causes["connecting and commands"].steps == ["connect"]
    assert causes["connecting and commands"].share.value == pytest.approx(0.125, rel=0.02)
