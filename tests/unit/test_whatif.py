# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax whatif`: the arithmetic, what is refused, what is called too wide. Against real runs:
`make check-whatif`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis import sides, tables, whatif
from tlstax.analysis.sides import Side
from tlstax.analysis.whatif import Wish
from tlstax.collectors import micro_costs as measuring
from tlstax.collectors.capture import micro_costs
from tlstax.collectors.capture.micro_costs import Cost, HandshakeCost, KeyCosts, MicroCosts
from tlstax.collectors.capture.reader import CaptureReader

DEMO = Path(__file__).resolve().parents[2] / "docs/demo/demo.tlstax"


def cost(us: float) -> Cost:
    return Cost(us * 1000, us * 990, us * 1010)


def key(sign: float, verify: float, full: float, resumed: float, setup: float) -> KeyCosts:
    """Costs in us: of the server; a client takes as much."""
    return KeyCosts(
        cost(sign), cost(verify), HandshakeCost(cost(full), cost(full)),
        HandshakeCost(cost(resumed), cost(resumed)), cost(setup),
    )  # fmt: skip


COSTS = MicroCosts(
    library="OpenSSL 3.0.19", hostname="vm", cpu_model="Intel(R) Xeon(R) Processor",
    tls_version="TLSv1.3", mutual=True, keygen=cost(40), derive=cost(35),
    keys={
        "rsa:2048": key(280, 22, 1200, 480, 860),
        "rsa:4096": key(3800, 66, 4900, 490, 870),
        "ec:p256": key(27, 70, 1080, 490, 900),
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def storm() -> Side:
    with CaptureReader.open(DEMO) as reader:
        rows = tables.load(reader)
    return Side("demo", rows, sides.matching(rows, "connect/tls")[0])


def test_the_recorded_key_is_told_by_its_signature(storm: Side) -> None:
    assert whatif.present_key(storm, COSTS) == "rsa:2048"
    with pytest.raises(TlstaxError, match="cannot tell what key was recorded"):
        whatif.present_key(storm, replace(COSTS, keys={"ec:p256": COSTS.keys["ec:p256"]}))


def test_another_key_changes_what_the_costs_say(storm: Side) -> None:
    found = {}
    for name in ("rsa:2048", "rsa:4096", "ec:p256"):
        line = whatif.predict(storm, Wish(key=name, present_key="rsa:2048"), COSTS).forecasts[0]
        assert line.then is not None
        assert line.then.low_ns is not None
        assert line.then.high_ns is not None
        assert line.then.low_ns <= line.then.value_ns <= line.then.high_ns
        found[name] = line
    same = found["rsa:2048"]
    assert same.then is not None
    assert same.then.low_ns is not None
    assert same.then.high_ns is not None
    assert same.then.low_ns < same.now.value_ns < same.then.high_ns
    for name, us in (("rsa:4096", 3700), ("ec:p256", -120)):
        for model in found[name].models.values():
            assert model.value_ns - same.now.value_ns == pytest.approx(us * 1000, rel=0.25, abs=9e4)


def test_resumption_saves_a_share(storm: Side) -> None:
    lines = [
        whatif.predict(storm, Wish(resume=share, present_key="rsa:2048"), COSTS).forecasts[0]
        for share in (0.0, 0.5, 1.0)
    ]
    middles = [line.models["by handshake"].value_ns for line in lines]
    assert middles[0] == pytest.approx(lines[0].now.value_ns)
    assert middles[0] - middles[1] == pytest.approx(middles[1] - middles[2], rel=0.01)
    assert middles[0] - middles[2] == pytest.approx(720_000, rel=0.15)


def test_pooling_without_a_warm_query_is_said_to_be_too_wide(storm: Side) -> None:
    prediction = whatif.predict(storm, Wish(pool=20), None)
    line = prediction.forecasts[0]
    assert line.is_wide
    assert "no prediction within ±20 %" in prediction.sentence
    assert "--warm" in line.reason
    warm = Side("demo", storm.tables, sides.matching(storm.tables, "pooled/point_select/tls")[0])
    line = whatif.predict(storm, Wish(pool=20, warm=warm), None).forecasts[0]
    assert not line.is_wide
    with pytest.raises(TlstaxError, match="says nothing about warm queries"):
        whatif.predict(storm, Wish(pool=20, warm=storm), None)


def test_costs_survive_a_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    micro_costs.save(COSTS, path)
    assert micro_costs.load(path) == COSTS
    for text in ("", "[]", '{"version": 9}', '{"version": 1, "keys": {"a": 1}}'):
        path.write_text(text)
        with pytest.raises(TlstaxError, match="cannot read the costs"):
            micro_costs.load(path)


def test_the_command_and_its_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs, data = tmp_path / "costs.json", tmp_path / "w.json"
    micro_costs.save(COSTS, costs)
    wish = ["whatif", f"{DEMO}:connect", "--costs", str(costs)]
    assert main([*wish, "--key", "rsa:4096", "--json", str(data)]) == 0
    printed = capsys.readouterr().out
    document = json.loads(data.read_text())
    assert document["sentence"].replace(" ", "") in printed.replace("\n", "").replace(
        "\u00a0", ""
    ).replace(" ", "")
    assert document["key"] == "rsa:2048"
    assert main([*wish, "--pool", "20"]) == ExitCode.FAILED
    assert main(["whatif", str(DEMO)]) == ExitCode.USAGE
    assert main([*wish, "--key", "ed25519"]) == ExitCode.USAGE
    assert main(["whatif", f"{DEMO}:plaintext", "--pool", "3"]) == ExitCode.CAPTURE
    capsys.readouterr()
    assert main([*wish, "--library", "wolfssl"]) == ExitCode.HOST
    assert "cannot be measured here" in capsys.readouterr().err
    micro_costs.save(replace(COSTS, hostname="elsewhere"), costs)
    assert main([*wish, "--key", "rsa:4096"]) == ExitCode.HOST
    assert "costs of another host" in capsys.readouterr().err
    micro_costs.save(replace(COSTS, library="OpenSSL 3.5.0"), costs)
    assert main([*wish, "--key", "rsa:4096"]) == ExitCode.HOST


def test_this_host_is_measured() -> None:
    found = measuring.measure(["ed25519"], ["ec:p256"], True, "TLSv1.3")
    assert found.library == measuring.host_library()
    shake = found.keys["ec:p256"]
    assert shake.full is not None
    assert shake.resumed is not None
    assert shake.full.server.value_ns > shake.sign.value_ns
    assert shake.resumed.server.value_ns < shake.full.server.value_ns
    assert found.keys["ed25519"].full is None
    with pytest.raises(TlstaxError, match="cannot measure TLSv1 handshakes"):
        measuring.measure([], [], True, "TLSv1")
