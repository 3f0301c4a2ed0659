# SPDX-License-Identifier: GPL-2.0-only
"""Each rule of the findings fires on its cause, and never on an interval that spans its bound."""

from dataclasses import replace

import pytest

from tlstax import TlstaxError
from tlstax.analysis.findings import rules as finding_rules
from tlstax.analysis.findings.conditions import Condition
from tlstax.analysis.findings.finding_metrics import Judged
from tlstax.analysis.findings.metric_labels import LABELS
from tlstax.analysis.findings.rules import Rule
from tlstax.analysis.findings.window_metrics import Metric, Metrics
from tlstax.analysis.rows import tables

ALL = tables.Group("all", "", "", "", (), frozenset())


REFERENCE = 0.5
"""The value of metrics without a condition, with which others are compared."""


def satisfied(condition: Condition, wrong: bool = False) -> Metric:
    """A fact for which a condition holds, or does not."""
    if condition.above_of is not None:
        value = REFERENCE / 2 if wrong else 1e12
        return Metric(value, value, value)
    if condition.text is not None:
        return Metric(None, text="something else" if wrong else f"{condition.text} 1")
    bound = condition.above if condition.above is not None else condition.below
    assert bound is not None
    is_more = (condition.above is not None) != wrong
    value = bound * 1.5 + 1 if is_more else bound * 0.5 - (bound <= 0)
    return Metric(value, value, value)


def met(rule: Rule) -> Metrics:
    """Facts with which a rule fires."""
    metrics = {name: Metric(REFERENCE, REFERENCE, REFERENCE, "x") for name in LABELS}
    metrics |= {one.metric: satisfied(one) for one in rule.when}
    for one in rule.unless:
        metrics[one.metric] = satisfied(one, wrong=True)
    return metrics


RULES = pytest.mark.parametrize("rule", finding_rules.rules(), ids=lambda rule: rule.id)


@RULES
def test_a_rule_fires_on_its_cause_and_says_how_much_it_is(rule: Rule) -> None:
    metrics = met(rule)
    assert rule.fires(metrics)
    (finding,) = finding_rules.judge(ALL, Judged(metrics, "command", 1000.0, 8), [rule])
    size_ns = metrics[rule.time].value if rule.time else 1000.0 * finding.share.value
    assert finding.size.value_ns == pytest.approx(size_ns)
    assert "{" not in finding.sentence
    assert finding.evidence
    assert finding.advice
    assert finding.source


@RULES
def test_a_rule_needs_each_of_its_conditions(rule: Rule) -> None:
    for condition in rule.when:
        assert not rule.fires(met(rule) | {condition.metric: satisfied(condition, wrong=True)})
        assert not rule.fires(met(rule) | {condition.metric: Metric(None)}), "not measured"
    for condition in rule.unless:
        assert not rule.fires(met(rule) | {condition.metric: satisfied(condition)})


@RULES
def test_a_rule_never_fires_on_an_interval_that_spans_its_bound(rule: Rule) -> None:
    for condition in rule.when:
        if condition.text is not None:
            continue
        metric = met(rule)[condition.metric]
        assert metric.value is not None
        bound = condition.above if condition.above is not None else condition.below
        bound = REFERENCE if condition.above_of is not None else bound
        assert bound is not None
        low, high = sorted((metric.value, bound))
        wide = replace(metric, low=low - 1, high=high + 1)
        assert not rule.fires(met(rule) | {condition.metric: wide})
        alone = replace(metric, low=None, high=None)
        assert not rule.fires(met(rule) | {condition.metric: alone}), "too few windows"


def test_ids_are_unique_and_rules_without_their_facts_are_refused() -> None:
    names = [rule.id for rule in finding_rules.rules()]
    assert len(set(names)) == len(names) >= 16
    for text in ("finding = 3", "[[finding]]\nid = 'a'", "no toml"):
        with pytest.raises(TlstaxError, match="rules of findings"):
            finding_rules.parse(text)
    good = next(rule for rule in finding_rules.rules() if rule.id == "run_queue")
    text = f"""
        [[finding]]
        id = "x"
        title = "x"
        question = "x"
        size = "no_such_metric"
        when = [{{ metric = "{good.size}", above = 1.0 }}]
        sentence = "x"
        evidence = []
        advice = "x"
        source = "x"
    """
    with pytest.raises(TlstaxError, match="no_such_metric"):
        finding_rules.parse(text)
    text = text.replace("no_such_metric", good.size)
    assert finding_rules.parse(text)
    text += 'advice_if = [{ metric = "no_such_version", is = "3.0", text = "x" }]'
    with pytest.raises(TlstaxError, match="no_such_version"):
        finding_rules.parse(text)


def test_what_explains_most_of_a_larger_finding_stands_before_it() -> None:
    by_id = {rule.id: rule for rule in finding_rules.rules()}
    fired = [by_id["connections_not_reused"], by_id["rsa_key_size"]]
    for share, first in ((0.6, "rsa_key_size"), (0.2, "connections_not_reused")):
        metrics = {"connecting_share": Metric(0.9), "sign_share": Metric(share)}
        assert finding_rules.order(fired, metrics)[0].id == first
    fired.append(by_id["profiler_costs"])
    metrics["observer_share"] = Metric(0.5)
    assert finding_rules.order(fired, metrics)[0].id == "profiler_costs"


def test_of_what_explains_most_of_a_larger_finding_the_larger_one_leads() -> None:
    """With a full queue it was "round trips": the smaller of two, and the false one."""
    by_id = {rule.id: rule for rule in finding_rules.rules()}
    names = ("round_trips", "connections_not_reused", "listen_overflow", "long_key")
    shares = {"connecting_share": 0.95, "connecting_network_share": 0.8, "sign_share": 0.1}
    metrics = {name: Metric(share) for name, share in shares.items()}
    ordered = finding_rules.order([by_id[name] for name in names], metrics)
    expected = ["listen_overflow", "round_trips", "connections_not_reused", "long_key"]
    assert [rule.id for rule in ordered] == expected


def test_a_rule_yields_to_a_more_exact_one() -> None:
    condition = (Condition("sign_share", above=0.5),)
    plain = replace(finding_rules.rules()[0], size="tls_share", unless=(), sentence="", evidence=())
    general = replace(plain, id="general", when=(), unless_found=("exact",))
    exact = replace(plain, id="exact", when=condition, unless_found=())
    for value, expected in ((0.9, ["exact"]), (0.1, ["general"])):
        metrics = {
            "tls_share": Metric(0.5, 0.5, 0.5),
            "sign_share": Metric(value, value, value),
        }
        judged = Judged(metrics, "query", 1e6, 8)
        found = finding_rules.judge(ALL, judged, [general, exact])
        assert [one.id for one in found] == expected


def test_rules_yield_to_rules_that_exist() -> None:
    known = {one.id for one in finding_rules.rules()}
    yielding = [one for one in finding_rules.rules() if one.unless_found]
    assert {"run_queue", "constant_pause", "client_waits"} <= {one.id for one in yielding}
    assert all(known.issuperset(one.unless_found) for one in yielding)


def test_what_has_yielded_is_not_called_uncertain() -> None:
    shares = {"runnable_share": Metric(0.5, 0.4, 0.6), "throttled_share": Metric(0.2, 0.2, 0.2)}
    judged = Judged(shares, "query", 1e6, 8)
    assert "the server waits for CPUs" in finding_rules.note([judged])
    shares["throttled_share"] = Metric(0.9, 0.9, 0.9)
    assert [one.id for one in finding_rules.rules() if one.fires(shares)] == ["cpu_quota"]
    assert "the server waits for CPUs" not in finding_rules.note([judged])
