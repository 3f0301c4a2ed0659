# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet whatif`: sums over hosts, who is left out and why, and the models of one host."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.store import adding
from tlstax.analysis.fleet.whatif import judging, savings, states
from tlstax.analysis.fleet.whatif.inputs import Inputs
from tlstax.analysis.fleet.whatif.judging import Peers, Verdicts, Wish
from tlstax.analysis.fleet.whatif.states import Ends
from tlstax.analysis.model.fleet import Saving
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.whatif import forecast
from tlstax.analysis.whatif import predict as predicting
from tlstax.analysis.whatif.summary import Scenario
from tlstax.collectors.capture import micro_costs
from tlstax.collectors.capture.micro_costs import Cost, HandshakeCost, KeyCosts, MicroCosts

CPU, LIBRARY = "Intel(R) Xeon(R) Processor", "OpenSSL 3.0.19"
US = 1000.0


def cost(us: float) -> Cost:
    return Cost(us * US, us * 0.99 * US, us * 1.01 * US)


def key(sign: float, full: float) -> KeyCosts:
    """In us; a resumed handshake takes 480."""
    shakes = [HandshakeCost(cost(us), cost(us)) for us in (full, 480)]
    return KeyCosts(cost(sign), cost(20), shakes[0], shakes[1], cost(860))


COSTS = MicroCosts(
    LIBRARY, "vm", CPU, "TLSv1.3", True, cost(40), cost(35),
    {"rsa:2048": key(300, 1200), "rsa:4096": key(3800, 4700), "ec:p256": key(27, 920)},
)  # fmt: skip


def fleet(count: int = 10, **changed: Any) -> Inputs:
    """Hosts with 100 handshakes a second of 1.5 ms each, with one command of 0.5 ms."""
    cpu = {name: np.zeros(count) for name in SERVED_PHASES}
    per_handshake = {"sign": 300, "verify": 40, "keygen": 40, "derive": 35, "certificate": 85}
    for name, us in {**per_handshake, "handshake": 1000, "connect": 100, "command": 500}.items():
        cpu[name] += 100 * us * US
    hosts = [f"db{number}" for number in range(count)]
    facts = {"tls_library": LIBRARY, "cpu_model": CPU, "cluster": "eu"}
    made: dict[str, Any] = {
        "hosts": hosts,
        "facts": {host: dict(facts) for host in hosts},
        "cpu": cpu,
        "handshakes": np.full(count, 100.0),
        "signed": np.full(count, 100.0),
        "seen": np.full(count, 6000.0),
        "sign_ns": np.full(count, 300 * US),
        "resumed_share": np.zeros(count),
        "told_share": np.ones(count),
        "connections": np.full(count, 100.0),
        "commands": np.full(count, 100.0),
        "versions": ["TLSv1.3"] * count,
        "verify_ns": np.full(count, 40 * US),
        "kernel": (np.full(count, 0.1), np.full(count, 0.3)),
    }
    return Inputs(**{**made, **changed})


def predict(
    inputs: Inputs, wish: Wish, costs: Sequence[MicroCosts] = (COSTS,)
) -> tuple[Verdicts, list[int], Ends]:
    return savings._predict(inputs, wish, costs)


def saved_cpus(inputs: Inputs, wish: Wish) -> tuple[float, float]:
    """Bounds of the sum."""
    _, chosen, ends = predict(inputs, wish)
    now = inputs.served_cpu[chosen]
    total = savings._total(Ends((now - ends.high) / 1e9, (now - ends.low) / 1e9))
    assert total.low <= total.value <= total.high
    return total.low, total.high


def test_a_longer_key_costs_what_its_signatures_cost() -> None:
    # 100 handshakes a second on ten hosts, 3.5 ms each: 3.5 CPUs, and 7 to 20 % of all else.
    low, high = saved_cpus(fleet(), Wish(key="rsa:4096"))
    assert -5.0 < low < -3.5
    assert -3.7 < high < -3.3


def test_the_sum_is_that_of_the_hosts() -> None:
    for wish in (Wish(key="ec:p256"), Wish(resume=0.9), Wish(pool=20)):
        once, twice = saved_cpus(fleet(8), wish), saved_cpus(fleet(16), wish)
        assert twice == pytest.approx([2 * end for end in once], rel=1e-6)
        assert once[1] > 0


def test_resumption_saves_at_least_the_signature() -> None:
    half, whole = (saved_cpus(fleet(), Wish(resume=share)) for share in (0.5, 1.0))
    assert 10 * 100 * 300e-6 * 0.8 < whole[0] < whole[1] < 10 * 0.21
    assert half[0] == pytest.approx(whole[0] / 2, rel=0.1)


def test_pooling_saves_handshakes_of_further_commands() -> None:
    low, high = saved_cpus(fleet(), Wish(pool=20))
    assert low == pytest.approx(10 * 100 * 0.95 * 1.6e-3, rel=0.05)
    assert high > low


def test_later_commands_of_a_connection_stay_as_they_are() -> None:
    """1,000 commands on each connection: a handshake does not change the price of all of them."""
    busy = fleet(commands=np.full(10, 100_000.0))
    busy.cpu["command"] = busy.cpu["command"] * 1000
    low, high = saved_cpus(busy, Wish(resume=1.0))
    assert high - low < 0.02 * float(busy.served_cpu.sum()) / 1e9


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"seen": 10.0}, "fewer than 20 handshakes were seen"),
        ({"sign_ns": 1200 * US}, "its key cannot be identified"),
        ({"sign_ns": np.nan}, "too few signatures"),
        ({"resumed_share": 0.4}, "some of its handshakes were resumed already"),
        ({"told_share": 0.5}, "does not tell whether handshakes were resumed"),
        ({"verify_ns": 0.0}, "without client certificates"),
        ({"verify_ns": np.nan}, "whether clients have certificates was not recorded"),
    ],
)
def test_a_host_that_says_too_little_is_left_out_by_name(
    changed: dict[str, float], says: str
) -> None:
    arrays: dict[str, Any] = {
        name: np.array([value, *getattr(fleet(), name)[1:]]) for name, value in changed.items()
    }
    found, chosen, _ = predict(fleet(**arrays), Wish(key="ec:p256", resume=0.9))
    assert says in found.why[0]
    assert chosen == list(range(1, 10))
    (left,) = savings._left(fleet(**arrays), found)
    assert (left.host_count, left.hosts) == (1, ["db0"])
    assert left.cpus == pytest.approx(0.21)


def test_costs_are_those_of_the_library_and_cpu() -> None:
    inputs = fleet(3)
    inputs.facts["db0"]["cpu_model"] = "another"
    inputs.facts["db1"]["tls_library"] = "OpenSSL 3.5.4"
    inputs.facts["db2"]["tls_library"] = "OpenSSL 3.0.2"  # another patch of the same branch
    found, chosen, _ = predict(inputs, Wish(key="ec:p256"))
    assert chosen == [2]
    assert "on another" in found.why[0]
    assert "no --costs for OpenSSL 3.5.4" in found.why[1]
    both = (COSTS, replace(COSTS, library="OpenSSL 3.5.7"))
    assert predict(inputs, Wish(key="ec:p256"), both)[1] == [1, 2]


def test_who_has_it_already_saves_nothing() -> None:
    found, chosen, _ = predict(fleet(2), Wish(key="rsa:2048"))
    assert (found.has_it, chosen) == ([True, True], [])
    assert predict(fleet(2, resumed_share=np.array([0.95, 0.0])), Wish(resume=0.9))[1] == [1]
    assert predict(fleet(2, commands=np.array([5000.0, 100.0])), Wish(pool=20))[1] == [1]
    # Neither needs costs to have it.
    found, _, _ = predict(fleet(1, resumed_share=np.array([0.95])), Wish(resume=0.9), [])
    assert found.has_it == [True]


def test_a_part_that_a_host_has_already_is_not_taken_from_it() -> None:
    """Of --key with --pool 20, a host with 100 commands on a connection keeps these."""
    key = Wish(key="ec:p256")
    pooled = fleet(1, connections=np.array([50.0]), commands=np.array([5000.0]))
    assert saved_cpus(pooled, replace(key, pool=20)) == saved_cpus(pooled, key)
    unseen = fleet(1, connections=np.array([0.0]))
    assert saved_cpus(unseen, replace(key, pool=20)) == saved_cpus(unseen, key)
    resumed = fleet(1, resumed_share=np.array([0.95]), signed=np.array([5.0]))
    assert saved_cpus(resumed, replace(key, resume=0.9)) == saved_cpus(resumed, key)
    same = fleet(1)
    assert saved_cpus(same, Wish(key="rsa:2048", resume=0.9)) == saved_cpus(same, Wish(resume=0.9))


@pytest.mark.parametrize("resumed", [0.0, 0.5, 0.9])
def test_another_key_changes_the_handshakes_that_make_a_signature(resumed: float) -> None:
    """90 of 100 handshakes without one: by the handshake, all 100 had been made cheaper."""
    inputs = fleet(1, resumed_share=np.array([resumed]), signed=np.array([100 * (1 - resumed)]))
    inputs.cpu["sign"] *= (1 - resumed) * 3800 / 300
    inputs = replace(inputs, sign_ns=np.array([3800 * US]))
    saved = 100 * (1 - resumed) * (3800 - 27) * 1e-6
    low, high = saved_cpus(inputs, Wish(key="ec:p256"))
    warmth = forecast.WARMTH_MOST * float(inputs.served_cpu[0]) / 1e9  # of all else
    assert saved * 0.95 < low < high < saved * 1.1 + warmth


def test_who_has_the_key_needs_no_costs_of_it() -> None:
    """It was a KeyError: the key was given, and the costs have only other ones."""
    costs = [replace(COSTS, keys={"rsa:2048": COSTS.keys["rsa:2048"]})]
    wish = Wish(key="ec:p256", present_key="ec:p256", pool=20)
    found, chosen, ends = predict(fleet(3), wish, costs)
    assert (found.why, found.keys, chosen) == ([""] * 3, ["ec:p256"] * 3, [0, 1, 2])
    _, _, pooled = predict(fleet(3), Wish(pool=20), [])
    assert np.array_equal(ends.low, pooled.low)
    assert np.array_equal(ends.high, pooled.high)


def test_costs_without_any_key_identify_none() -> None:
    with pytest.raises(TlstaxError, match="key cannot be identified"):
        predict(fleet(1), Wish(key="ec:p256"), [replace(COSTS, keys={})])


def test_a_library_that_only_an_unseen_host_has_is_no_answer() -> None:
    """It was "nothing would be saved: 0 hosts have it already", with status 0."""
    inputs = fleet(3, seen=np.array([5.0, 6000.0, 6000.0]))
    inputs.facts["db0"]["tls_library"] = "OpenSSL 3.5.4"
    with pytest.raises(TlstaxError, match="no host can be predicted") as error:
        predict(inputs, Wish(library="openssl-3.5"))
    assert "--costs" not in error.value.do
    assert "library that at least 4 such hosts have" in error.value.do


def test_the_sentence_says_whose_cpus_are_saved() -> None:
    of: Any = {"is_wide": False, "now": 5.0, "predicted": 2}
    total = Saving(1.5, 1.0, 2.0)
    text = savings._sentence(Wish(pool=20), total, unchanged=8, **of)
    assert "of 5.00 CPUs that connections use on these and on 8 hosts that have it already" in text
    assert "already" not in savings._sentence(Wish(pool=20), total, unchanged=0, **of)


def test_the_hosts_listed_are_those_that_change_most() -> None:
    inputs = fleet(40)
    size = np.linspace(1, 2, 40)
    for phase in inputs.cpu:
        inputs.cpu[phase] *= size
    inputs = replace(inputs, handshakes=100 * size, signed=100 * size)
    wish = Wish(key="rsa:4096")
    found, chosen, ends = predict(inputs, wish)
    now = inputs.served_cpu[chosen]
    saved = Ends((now - ends.high) / 1e9, (now - ends.low) / 1e9)
    lines = savings._lines(Question(Path("none")), inputs, found, chosen, saved, 3)
    assert [line.host for line in lines] == ["db39", "db38", "db37"]
    alone = savings._total(Ends(*(end[:, [39]] for end in saved)))
    assert lines[0].saved == alone


def test_another_library_is_compared_on_hosts_like_it() -> None:
    inputs = fleet(10)
    for host in inputs.hosts[:5]:
        inputs.facts[host]["tls_library"] = "OpenSSL 3.5.4"
    for phase in inputs.cpu:
        inputs.cpu[phase][:5] *= 0.7
    signs: Floats = np.array([300 * US] * 9 + [2000 * US])
    inputs = replace(inputs, sign_ns=signs)
    found, chosen, ends = predict(inputs, Wish(library="openssl-3.5"))
    assert chosen == [5, 6, 7, 8]
    assert "hosts with that library are like it" in found.why[9]
    assert ends.low[0] == pytest.approx(100 * (1500 * 0.7 + 600) * US)
    few = Peers(inputs, [0, 1, 2])
    assert states.with_library(inputs, judging.judge_library(inputs, "openssl-3.5"), few)[0] == []


def test_hosts_differ_and_bounds_over_them_say_so() -> None:
    inputs = fleet(40)
    for phase in inputs.cpu:
        inputs.cpu[phase][:20] *= 3
    rates = np.repeat([300.0, 100.0], 20)
    inputs = replace(inputs, handshakes=rates, signed=rates)
    _, chosen, ends = predict(inputs, Wish(key="rsa:4096"))
    now = inputs.served_cpu[chosen]
    saved = Ends((now - ends.high) / 1e9, (now - ends.low) / 1e9)
    plain, over = savings._total(saved), savings._over_hosts(saved)
    assert over.low < plain.low
    assert plain.high < over.high


@pytest.mark.parametrize(
    ("wish", "scenario"),
    [
        (Wish(key="rsa:4096"), Scenario(key="rsa:4096", present_key="rsa:2048")),
        (Wish(key="ec:p256"), Scenario(key="ec:p256", present_key="rsa:2048")),
        (Wish(resume=0.9), Scenario(resume=0.9, present_key="rsa:2048")),
    ],
)
def test_a_host_is_predicted_like_its_recording(
    demo_tables: Tables, tmp_path: Path, wish: Wish, scenario: Scenario
) -> None:
    group = selections.matching(demo_tables, "connect/tls")[0]
    one = predicting.predict(RecordingSelection("demo", demo_tables, group), scenario, COSTS)
    line = one.forecasts[0]
    assert line.then is not None
    assert line.then.low_ns is not None
    assert line.then.high_ns is not None
    adding.add(capture.roll_up(of_group(demo_tables, group), "demo", host="db1"), tmp_path)
    found = savings.savings(Question(tmp_path), wish, [COSTS], 1)
    assert found.saved is not None
    # Costs of an operation against CPUs: both relative to now. Rounds differ by 7 % here.
    share = 1 - found.saved.value / found.now
    assert line.then.low_ns < share * line.now.value_ns < line.then.high_ns
    assert share == pytest.approx(line.then.value_ns / line.now.value_ns, rel=0.07)


def of_group(tables: Tables, group: Group) -> Tables:
    """What was recorded in its windows."""
    changed: dict[str, Any] = {"runs": [], "losses": []}
    for name in ("windows", "ledger", "latencies", "handshakes", "phase_counts", "samples"):
        rows = getattr(tables, name)
        changed[name] = [row for row in rows if row.window_id in group.window_ids]
    return replace(tables, **changed)


def test_the_command_on_a_data_set(demo: Path, rolled: Any, tmp_path: Path, capsys: Any) -> None:
    data, costs = tmp_path / "data", tmp_path / "costs.json"
    adding.add(rolled, data)
    micro_costs.save(COSTS, costs)
    words = ["fleet", "whatif", "--data", str(data)]
    assert main([*words, "--key", "rsa:4096", "--costs", str(costs), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    (line,) = document["hosts"]
    assert (line["host"], line["key"]) == ("db1", "rsa:2048")
    assert document["saved"]["high"] < 0
    assert document["over_hosts"] is None
    assert main([*words, "--key", "rsa:4096", "--costs", str(costs)]) == 0
    assert "would need" in " ".join(capsys.readouterr().out.split())
    micro_costs.save(replace(COSTS, cpu_model="another"), costs)
    assert main([*words, "--key", "rsa:4096", "--costs", str(costs)]) == ExitCode.CAPTURE
    assert "no host can be predicted: 1: no --costs for OpenSSL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing is to change"),
        (["--key", "ec:p256"], "costs of single TLS operations are unknown"),
        (["--library", "x", "--pool", "3"], "together with another change"),
        (["--pool", "3", "--most", "0"], "cannot list 0 hosts"),
    ],
)
def test_what_cannot_be_asked(words: list[str], says: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["fleet", "whatif", "--data", str(tmp_path), *words]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
