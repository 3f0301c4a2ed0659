# SPDX-License-Identifier: GPL-2.0-only
"""The metrics of a watch: names, units and sums as its counters have them; alerts fire."""

import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import build_parser
from tlstax.analysis.fleet.continuous.counters import KINDS_MOST
from tlstax.analysis.report.live import prometheus
from tlstax.analysis.report.live.prometheus import Exposition
from tlstax.analysis.rows import tables as capture_tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.watched_rows import Watching, by_window

LOOPBACK = "127.0.0.1"
SERIES = re.compile(r"tlstax_\w+")
UNITS = ("_seconds", "_bytes", "_total", "_info", "_up", "_bucket", "_count", "_sum")


@pytest.fixture(scope="module")
def tables(repository: Path) -> Tables:
    with CaptureReader.open(repository / "docs/demo/demo.tlstax") as reader:
        return capture_tables.load(reader)


@pytest.fixture
def watching(tables: Tables, tmp_path: Path) -> Watching:
    return Watching(tmp_path, tables)


@pytest.fixture
def exposition(watching: Watching) -> Iterator[Exposition]:
    served = Exposition(watching.servers, LOOPBACK, 0)
    yield served
    served.close()


def scrape(exposition: Exposition) -> str:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{exposition.port}/metrics") as answer:
        return str(answer.read().decode())


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], name: str) -> float:
    return sum(value for (sample, _), value in found.items() if sample == name)


def test_sums_are_those_of_the_recording(
    watching: Watching, exposition: Exposition, tables: Tables
) -> None:
    assert total(values(scrape(exposition)), "tlstax_handshakes_total") == 0
    watching.take(by_window(tables))
    found = values(scrape(exposition))
    spent_s = sum(row.time_ns for row in tables.ledger) / 1e9
    assert total(found, "tlstax_ledger_seconds_total") == pytest.approx(spent_s)
    done = [row for row in tables.handshakes if row.outcome == "success"]
    assert total(found, "tlstax_handshakes_total") == len(tables.handshakes)
    assert found["tlstax_handshake_duration_seconds_count", ()] == len(done)
    wall_s = sum(row.end_ns - row.start_ns for row in done) / 1e9
    assert found["tlstax_handshake_duration_seconds_sum", ()] == pytest.approx(wall_s)
    commands = sum(row.ended_count for row in tables.phase_counts if row.phase == "command")
    assert found["tlstax_commands_total", ()] == commands
    assert found["tlstax_server_up", ()] == 1
    watching.sink.detached()
    assert values(scrape(exposition))["tlstax_server_up", ()] == 0


def test_a_bucket_holds_what_took_no_longer(
    watching: Watching, exposition: Exposition, tables: Tables
) -> None:
    watching.take(by_window(tables))
    found = values(scrape(exposition))
    walls_s = [
        (row.end_ns - row.start_ns) / 1e9 for row in tables.handshakes if row.outcome == "success"
    ]
    bounds = [
        (float(dict(labels)["le"]), round(value))
        for (name, labels), value in found.items()
        if name == "tlstax_handshake_duration_seconds_bucket"
    ]
    for bound_s, count in bounds:
        assert count == sum(wall_s <= bound_s for wall_s in walls_s)
    means = found["tlstax_command_duration_seconds_sum", ()] / found["tlstax_commands_total", ()]
    latencies = [row for row in tables.latencies if row.phase == "command"]
    middle_ns = sum((row.low_ns + row.high_ns) / 2 * row.ended_count for row in latencies)
    ended = sum(row.ended_count for row in latencies)
    assert means == pytest.approx(middle_ns / ended / 1e9, rel=0.1)


def test_names_have_units_and_promtool_accepts_them(
    watching: Watching, exposition: Exposition, tables: Tables
) -> None:
    watching.take(by_window(tables))
    text = scrape(exposition)
    names = {name for name, _ in values(text) if name.startswith("tlstax_")}
    assert [name for name in names if not name.endswith(UNITS)] == []
    promtool = shutil.which("promtool")
    assert promtool, "run `make packages-test`"
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_kinds_of_handshakes_are_bounded(watching: Watching, exposition: Exposition) -> None:
    (window,) = (rows for rows in by_window(watching.tables)[:1])
    handshake = watching.tables.handshakes[0]._replace(window_id=window[0].window_id)  # type: ignore[union-attr]
    strange = [handshake._replace(cipher=f"cipher {n}") for n in range(3 * KINDS_MOST)]
    watching.take([[window[0], *strange]])
    found = values(scrape(exposition))
    kinds = [labels for name, labels in found if name == "tlstax_handshakes_total"]
    assert len(kinds) == KINDS_MOST + 1
    assert total(found, "tlstax_handshakes_total") == 3 * KINDS_MOST


def test_a_client_that_says_nothing_is_cut_off(
    exposition: Exposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.5)
    with socket.create_connection((LOOPBACK, exposition.port)) as silent:
        silent.sendall(b"GET /metrics HT")
        begun_s = time.monotonic()
        assert "tlstax_server_up" in scrape(exposition)
        assert time.monotonic() - begun_s < 30


def test_a_client_that_never_ends_its_request_is_cut_off_meanwhile_others_are_answered(
    exposition: Exposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "_PATIENCE_S", 1.0)
    with socket.create_connection((LOOPBACK, exposition.port)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        begun_s, took_s = time.monotonic(), []
        is_cut_off = False
        while not is_cut_off:  # a byte before each wait for one is over
            assert time.monotonic() - begun_s < 20
            asked_s = time.monotonic()
            assert "tlstax_server_up" in scrape(exposition)
            took_s.append(time.monotonic() - asked_s)
            time.sleep(0.05)
            try:
                slow.sendall(b"a")
            except OSError:
                is_cut_off = True
    assert max(took_s) < 1


def test_many_clients_that_say_nothing_have_few_threads(exposition: Exposition) -> None:
    with ExitStack() as opened:
        for _ in range(5 * prometheus._AT_ONCE):
            one = socket.create_connection((LOOPBACK, exposition.port))
            opened.enter_context(one)
        assert "tlstax_server_up" in scrape(exposition)
        end_s = time.monotonic() + 10
        while threading.active_count() > prometheus._AT_ONCE + 2 and time.monotonic() < end_s:
            time.sleep(0.05)
        assert threading.active_count() <= prometheus._AT_ONCE + 2


def test_nobody_is_asked_for_the_name_of_the_address(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that does not answer delayed the start."""
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("asked"))
    Exposition(watching.servers, LOOPBACK, 0).close()


@pytest.mark.parametrize("host", ["\u00e9" * 70, "a" * 300, "a..b"])
def test_a_name_that_is_none_is_refused(watching: Watching, host: str) -> None:
    with pytest.raises(TlstaxError, match="cannot serve metrics"):
        Exposition(watching.servers, host, 0)


def test_an_address_that_is_in_use_is_refused(exposition: Exposition, watching: Watching) -> None:
    with pytest.raises(TlstaxError, match="cannot serve metrics") as refused:
        Exposition(watching.servers, LOOPBACK, exposition.port)
    assert refused.value.exit_code == ExitCode.USAGE


def test_alert_rules_and_the_documentation_name_metrics_that_exist(
    watching: Watching, exposition: Exposition, repository: Path
) -> None:
    watching.take(by_window(watching.tables))
    names = {name for name, _ in values(scrape(exposition))}
    rules = (repository / "docs/monitoring/tlstax-alerts.yml").read_text()
    text = (repository / "docs/watch.md").read_text()
    told = set(SERIES.findall(text))
    ends = re.compile("_(bucket|count|sum)$")
    assert {ends.sub("", name) for name in names if name.startswith("tlstax_")} <= told
    asked = {name for name in SERIES.findall(rules) if not name.startswith("tlstax_handshake_cpu")}
    native = {name.removesuffix("_bucket") for name in names if name.endswith("_bucket")}
    assert asked <= names | native
    assert len(asked) > 8


# What Prometheus sees of a server: growth a minute. A fault changes that for its last 100 minutes.
HEALTHY = {
    "tlstax_server_up": 0.0,
    "tlstax_rollup_failures_total": 0,
    'tlstax_handshakes_total{outcome="success"}': 600,
    'tlstax_handshakes_total{outcome="failure"}': 1,
    'tlstax_handshake_duration_seconds_bucket{le="1"}': 600,
    'tlstax_handshake_duration_seconds_bucket{le="4"}': 600,
    'tlstax_handshake_duration_seconds_bucket{le="+Inf"}': 600,
    "tlstax_handshake_duration_seconds_count": 600,
    'tlstax_ledger_seconds_total{phase="sign",state="on_cpu"}': 12,
    'tlstax_ledger_seconds_total{phase="command",state="on_cpu"}': 60,
    "tlstax_recorded_seconds_total": 60,
    "tlstax_ledger_observed_seconds_total": 30,
    "tlstax_server_cpu_seconds_total": 144,
    "tlstax_own_cpu_seconds_total": 0.1,
    "tlstax_probe_overhead_seconds_total": 0.5,
}
STARTS = {"tlstax_server_up": 1}
FAULTS: dict[str, dict[str, float]] = {
    "TlstaxServerNotRecorded": {"tlstax_server_up": -1},
    "TlstaxRollupsNotWritten": {"tlstax_rollup_failures_total": 1},
    "TlstaxHandshakesFail": {'tlstax_handshakes_total{outcome="failure"}': 60},
    "TlstaxHandshakesSlow": {'tlstax_handshake_duration_seconds_bucket{le="1"}': 590},
    "TlstaxHandshakeCpuDoubled": {
        'tlstax_ledger_seconds_total{phase="sign",state="on_cpu"}': 40,
        "tlstax_server_cpu_seconds_total": 200,
    },
    "TlstaxLedgerIncomplete": {"tlstax_server_cpu_seconds_total": 160},
    "TlstaxExpensive": {"tlstax_probe_overhead_seconds_total": 4},
}
COMPARED_WITH_YESTERDAY = ("TlstaxHandshakeCpuDoubled",)


def values_of(name: str, before: int, fault: Mapping[str, float]) -> str:
    """A series as promtool reads it: `before` minutes of health, then the fault."""
    start, step = STARTS.get(name, 0), HEALTHY[name]
    now = fault.get(name, step)
    if now < 0:  # a gauge that falls
        return f"{start}+0x{before} 0+0x100"
    return f"{start}+{step}x{before} {start + step * before}+{now}x100"


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_each_alert_fires_at_its_fault_alone(fault: str, repository: Path, tmp_path: Path) -> None:
    labels = 'job="tlstax",instance="db1"'
    before = 1500 if fault in COMPARED_WITH_YESTERDAY else 120
    series = []
    for name in HEALTHY:
        whole = name.replace("{", f"{{{labels},") if "{" in name else f"{name}{{{labels}}}"
        change = values_of(name, before, FAULTS.get(fault, {}))
        series.append(f"      - series: '{whole}'\n        values: '{change}'")
    rules = repository / "docs/monitoring/tlstax-alerts.yml"
    alerts = re.findall(r"alert: (\w+)", rules.read_text())
    assert sorted(alerts) == sorted(FAULTS)
    at = f"      - eval_time: {before + 60}m\n        alertname: "
    checks = [at + alert for alert in alerts]
    text = "\n".join(
        [
            f"rule_files: [{rules}]", "evaluation_interval: 5m", "tests:", "  - interval: 1m",
            "    input_series:", *series, "    alert_rule_test:", *checks,
        ]
    )  # fmt: skip
    (tmp_path / "test.yml").write_text(text)
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    # No alert is expected: those that fire are failures by name.
    assert re.findall(r"alertname: ?(\w+)", done.stderr) == ([fault] if fault else [])
    assert (done.returncode == 0) == (not fault)


def test_the_unit_of_systemd_is_accepted(repository: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    assert program, "run `make packages-test`"
    text = (repository / "docs/monitoring/tlstax-watch.service").read_text()
    unit = tmp_path / "tlstax-watch.service"
    unit.write_text(text.replace("/opt/tlstax/bin/tlstax", "/bin/true"))
    command = [program, "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (started,) = re.findall(r"^ExecStart=\S+/tlstax (.*)$", text, re.MULTILINE)
    assert build_parser("watch").parse_args(started.split()).listen == ("127.0.0.1", 9917)
