# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax whatif`: the arithmetic, what is refused, what is called too wide. Against real runs:
`make check-whatif`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.compare import replicates, selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.rows import tables
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.whatif import cipher_change, predict, recorded
from tlstax.analysis.whatif.forecast import RECORDING
from tlstax.analysis.whatif.summary import Scenario
from tlstax.collectors.capture import micro_costs
from tlstax.collectors.capture.ciphers import bulk_cipher
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Status
from tlstax.collectors.microbench import crypto_operations
from tlstax.collectors.microbench import micro_costs as measuring
from tlstax.tests.unit.whatif.costs import COSTS

DEMO = Path(__file__).resolve().parents[3] / "docs/demo/demo.tlstax"


@pytest.fixture(scope="module")
def storm() -> RecordingSelection:
    with CaptureReader.open(DEMO) as reader:
        rows = tables.load(reader)
    return RecordingSelection("demo", rows, selections.matching(rows, "connect/tls")[0])


def test_the_recorded_key_is_told_by_its_signature(storm: RecordingSelection) -> None:
    assert recorded.present_key(storm, COSTS) == "rsa:2048"
    with pytest.raises(TlstaxError, match="cannot identify the kind of the recorded key"):
        recorded.present_key(storm, replace(COSTS, keys={"ec:p256": COSTS.keys["ec:p256"]}))


def test_checks_that_were_not_recorded_do_not_tell_of_certificates(
    storm: RecordingSelection,
) -> None:
    """As at level signature; of handshakes with checks and without, those with them tell."""
    assert recorded.handshake_facts(storm).mutual
    shakes = storm.tables.handshakes
    some = [row._replace(verify_ns=-1) if at % 3 else row for at, row in enumerate(shakes)]
    partly = replace(storm, tables=replace(storm.tables, handshakes=some))
    assert recorded.handshake_facts(partly) == recorded.handshake_facts(storm)
    none = [row._replace(verify_ns=-1) for row in shakes]
    with pytest.raises(TlstaxError, match="whether clients have certificates"):
        recorded.handshake_facts(replace(storm, tables=replace(storm.tables, handshakes=none)))


def test_another_key_changes_what_the_costs_say(storm: RecordingSelection) -> None:
    found = {}
    for name in ("rsa:2048", "rsa:4096", "ec:p256"):
        line = predict.predict(storm, Scenario(key=name, present_key="rsa:2048"), COSTS).forecasts[
            0
        ]
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
    assumed = predict.predict(
        storm, Scenario(key="ec:p256", present_key="rsa:2048"), COSTS
    ).assumptions
    assert any("for each ms by which a signature is shorter" in one for one in assumed)
    # Whole handshakes: what they differ by in the costs, and 3.5 % of all else, 1,374 us, for each
    # ms of the signature. Parts: signature, two checks of 36 us each, scaled, the rest scaled.
    for name, model, us in (
        ("rsa:2048", "by handshake", 0),
        ("rsa:2048", "by parts", 0),
        ("rsa:4096", "by handshake", 3700 + 169),
        ("rsa:4096", "by parts", 3520 + 145 + 92 + 169),
        ("ec:p256", "by handshake", -120 - 12),
        ("ec:p256", "by parts", -253 + 158 + 37 - 12),
    ):
        change_ns = found[name].models[model].value_ns - same.now.value_ns
        assert change_ns == pytest.approx(us * 1000, rel=0.015, abs=15_000), (name, model)


def test_resumption_saves_a_share(storm: RecordingSelection) -> None:
    lines = [
        predict.predict(storm, Scenario(resume=share, present_key="rsa:2048"), COSTS).forecasts[0]
        for share in (0.0, 0.5, 1.0)
    ]
    assumed = predict.predict(
        storm, Scenario(resume=0.5, present_key="rsa:2048"), COSTS
    ).assumptions
    assert any("up to 40 % less in the kernel" in one.replace("\u00a0", " ") for one in assumed)
    middles = [line.models["by handshake"].value_ns for line in lines]
    assert middles[0] == pytest.approx(lines[0].now.value_ns)
    assert middles[0] - middles[1] == pytest.approx(middles[1] - middles[2], rel=0.01)
    assert middles[0] - middles[2] == pytest.approx(720_000, rel=0.15)


def test_pooling_without_a_warm_query_is_said_to_be_too_wide(storm: RecordingSelection) -> None:
    prediction = predict.predict(storm, Scenario(pool=20), None)
    line = prediction.forecasts[0]
    assert line.is_wide
    assert "no prediction within ±20 %" in prediction.sentence
    assert "--warm" in line.reason
    warm = RecordingSelection(
        "demo", storm.tables, selections.matching(storm.tables, "pooled/point_select/tls")[0]
    )
    line = predict.predict(storm, Scenario(pool=20, warm=warm), None).forecasts[0]
    assert not line.is_wide
    with pytest.raises(TlstaxError, match="has no warm queries"):
        predict.predict(storm, Scenario(pool=20, warm=storm), None)


@pytest.fixture(scope="module")
def pooled(storm: RecordingSelection) -> RecordingSelection:
    return RecordingSelection(
        "demo", storm.tables, selections.matching(storm.tables, "pooled/read_only/tls")[0]
    )


def test_another_cipher_changes_records(pooled: RecordingSelection) -> None:
    assert cipher_change.present_cipher(pooled) == "AES256-GCM"
    found = {}
    for name in ("AES256-GCM", "AES128-GCM", "CHACHA20-POLY1305"):
        scenario = Scenario(cipher=name, present_cipher="AES256-GCM")
        prediction = predict.predict(pooled, scenario, COSTS)
        assert prediction.cipher == "AES256-GCM"
        line = prediction.forecasts[0]
        assert line.then is not None
        found[name] = line.then.value_ns - line.now.value_ns
    assert abs(found["AES256-GCM"]) < abs(found["AES128-GCM"])
    assert found["AES128-GCM"] < 0 < found["CHACHA20-POLY1305"]


def test_traffic_is_what_the_server_counted(pooled: RecordingSelection) -> None:
    base = replicates.of_side(pooled, "query", builtin(), by_driver=True)
    sources = ErrorSources({RECORDING: base.units})
    flows = cipher_change.traffic(base, sources, by_driver=True)
    with CaptureReader.open(DEMO) as reader:
        readings = [row for row in reader.rows(Status) if row.name == "Bytes_sent"]
    runs = {run.run_id for run in pooled.group.runs}
    grown = sum(
        max(values) - min(values)
        for run in runs
        if (values := [int(row.value) for row in readings if row.run_id == run])
    )
    count = sum(run.operation_count for run in pooled.group.runs)
    assert flows.sent.size_bytes == pytest.approx(grown / count)
    assert flows.sent.mean_bytes > flows.received.mean_bytes > 10
    silent = replace(pooled.tables, status=[])
    base = replicates.of_side(replace(pooled, tables=silent), "query", builtin(), by_driver=True)
    with pytest.raises(TlstaxError, match="does not have the bytes"):
        cipher_change.traffic(base, sources, by_driver=True)


def test_a_counter_that_is_no_number_is_left_out(pooled: RecordingSelection) -> None:
    """A capture that somebody sent ended the prediction by a traceback."""
    strange = [row._replace(value="²") for row in pooled.tables.status]
    side = replace(pooled, tables=replace(pooled.tables, status=strange))
    assert cipher_change._grown(side, "Bytes_sent", by_driver=True) == 0


def test_blocks_without_operations_do_not_count(storm: RecordingSelection) -> None:
    group = replace(storm.group, runs=())
    own = [row for row in storm.tables.phase_counts if row.window_id in group.window_ids]
    busy = max(row.window_id for row in own if row.phase == "connect" and row.ended_count)
    rows = replace(
        storm.tables,
        phase_counts=[row for row in own if row.window_id == busy],
    )
    base = replicates.of_side(
        RecordingSelection("demo", rows, group), "connection", builtin(), by_driver=False
    )
    assert (base.arm.operations > 0).sum() == 1
    assert np.isfinite(base.operations).sum() == 2, "all together, and one block"


@pytest.mark.parametrize(
    ("suite", "cipher"),
    [
        ("TLS_AES_128_GCM_SHA256", "AES128-GCM"),
        ("DHE-RSA-AES256-GCM-SHA384", "AES256-GCM"),
        ("TLS_CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("ECDHE-RSA-CHACHA20-POLY1305", "CHACHA20-POLY1305"),
        ("AES256-SHA", "AES256-CBC-SHA1"),
        ("ECDHE-ECDSA-AES128-SHA256", "AES128-CBC-SHA256"),
        ("TLS_AES_128_CCM_SHA256", ""),
        ("AES128-CCM8", ""),
        ("DES-CBC3-SHA", ""),
        ("unknown", ""),
    ],
)
def test_the_cipher_of_a_suite(suite: str, cipher: str) -> None:
    assert bulk_cipher(suite) == cipher


def test_records_are_measured_with_the_suite_that_was_asked_for() -> None:
    ciphers = ("AES128-GCM", "AES256-CBC-SHA1")
    found = measuring.measure((), (), False, "TLSv1.2", ciphers).records
    for name in ciphers:
        curve = found[name].sent
        assert curve[16384].value_ns > curve[1024].value_ns
    # A cipher and a hash against one pass with carry-less multiplications: never near each other.
    assert found["AES256-CBC-SHA1"].sent[16384].value_ns > found["AES128-GCM"].sent[16384].value_ns


def test_the_command_and_its_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs, data = tmp_path / "costs.json", tmp_path / "w.json"
    micro_costs.save(COSTS, costs)
    scenario = ["whatif", f"{DEMO}:connect", "--costs", str(costs)]
    assert main([*scenario, "--key", "rsa:4096", "--json", str(data)]) == 0
    printed = capsys.readouterr().out
    document = json.loads(data.read_text())
    assert document["sentence"].replace(" ", "") in printed.replace("\n", "").replace(
        "\u00a0", ""
    ).replace(" ", "")
    assert document["key"] == "rsa:2048"
    assert main(["whatif", f"{DEMO}:connect", "--pool", "20"]) == ExitCode.FAILED
    assert main(["whatif", str(DEMO)]) == ExitCode.USAGE
    assert main([*scenario, "--key", "ed25519"]) == ExitCode.USAGE
    assert main(["whatif", f"{DEMO}:plaintext", "--pool", "3"]) == ExitCode.CAPTURE
    capsys.readouterr()
    assert main(["whatif", f"{DEMO}:connect", "--library", "wolfssl"]) == ExitCode.HOST
    assert "cannot be measured here" in capsys.readouterr().err
    assert main([*scenario, "--cipher", "AES128-GCM"]) == ExitCode.CAPTURE
    assert "samples of records and commands" in capsys.readouterr().err
    pooled = ["whatif", f"{DEMO}:pooled/read_only/tls", "--costs", str(costs), "--cipher"]
    assert main([*pooled, "AES128-GCM"]) == 0
    assert "cipher AES128-GCM" in capsys.readouterr().out
    assert main([*scenario, "--cipher", "AES128-CBC-SHA1"]) == ExitCode.USAGE
    assert "TLSv1.3 cannot use AES128-CBC-SHA1" in capsys.readouterr().err
    assert main([*scenario, "--cipher", "AES128-GCM", "--pool", "3"]) == ExitCode.USAGE
    assert main([*pooled, "AES128-GCM", "--from-cipher", "AES128-CBC-SHA1"]) == ExitCode.USAGE
    for other in (replace(COSTS, mutual=False), replace(COSTS, tls_version="TLSv1.2")):
        micro_costs.save(other, costs)
        capsys.readouterr()
        for wish in (("--key", "rsa:4096"), ("--resume", "0.5")):
            assert main([*scenario, *wish]) == ExitCode.USAGE
            assert "costs are of other handshakes" in capsys.readouterr().err
    micro_costs.save(replace(COSTS, hostname="elsewhere"), costs)
    assert main([*scenario, "--key", "rsa:4096"]) == ExitCode.HOST
    assert "costs are from another host" in capsys.readouterr().err
    micro_costs.save(replace(COSTS, library="OpenSSL 3.5.0"), costs)
    assert main([*scenario, "--key", "rsa:4096"]) == ExitCode.HOST


def test_this_host_is_measured() -> None:
    found = measuring.measure(["ed25519"], ["ec:p256"], True, "TLSv1.3")
    assert found.library == crypto_operations.host_library()
    shake = found.keys["ec:p256"]
    assert shake.full is not None
    assert shake.resumed is not None
    assert shake.full.server.value_ns > shake.sign.value_ns
    assert shake.resumed.server.value_ns < shake.full.server.value_ns
    assert found.keys["ed25519"].full is None
    with pytest.raises(TlstaxError, match="cannot measure TLSv1 handshakes"):
        measuring.measure([], [], True, "TLSv1")


@pytest.mark.parametrize(
    ("idle", "wish"),
    [
        ("--from-key rsa:2048", "--pool 20"),
        ("--from-key rsa:2048", "--library wolfssl"),
        ("--costs none.json", "--pool 20"),
        ("--costs none.json", "--library wolfssl"),
        ("--save-costs none.json", "--no-tls"),
        ("--from-cipher AES128-GCM", "--key ec:p256"),
        ("--measured none", "--pool 20"),
        ("--warm none", "--key ec:p256"),
    ],
)
def test_an_option_that_nothing_uses_is_refused(
    idle: str, wish: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were ignored, so that a wrong file of costs looked as if it were used."""
    status = main(["whatif", f"{DEMO}:connect", *wish.split(), *idle.split()])
    assert status == ExitCode.USAGE
    assert f"{idle.split()[0]} has no effect here" in capsys.readouterr().err
