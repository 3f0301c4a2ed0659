# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax probes plan`: the same plan as text and as JSON, and its errors."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.commands.plan_text import as_lines, totals_of
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.probe_costs import costs
from tlstax.collectors.host.probe_costs.prices import (
    PLAIN,
    STEPPED,
    Price,
    host_costs_of,
    unmeasured_note,
)
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process import usable_cpus
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording import safe_request
from tlstax.collectors.recording.stream import plan_file
from tlstax.collectors.recording.stream.tables_file import SUFFIX
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import Function


def test_text_shows_every_probe_with_its_reason(
    tls_process: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probes", "plan", str(tls_process.pid)]) == ExitCode.OK
    text = capsys.readouterr().out
    planned = plan(tls_process, load_definitions())
    for site in planned.sites:
        assert f"{site.boundary} {site.event}" in text
        assert site.instruction in text
        assert site.reason in text
    assert "OpenSSL 3." in text
    assert f"{len(planned.sites)} probes" in text
    assert "for each handshake: " in text
    assert "not taken" not in text
    assert main(["probes", "plan", "-v", str(tls_process.pid)]) == ExitCode.OK
    assert "rejected: " in capsys.readouterr().out


def test_json_says_the_same(tls_process: Target, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probes", "plan", "--json", "--level", "handshake", str(tls_process.pid)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["pid"] == tls_process.pid
    assert document["level"] == "handshake"
    assert {site["boundary"] for site in document["sites"]} >= {"handshake_call", "sign_digest"}
    assert all(len(o["build_id"]) >= 16 for lib in document["libraries"] for o in lib["objects"])
    assert document["accessors"]["ssl_version"] >= 0
    assert all(site["cost_ns"] > 0 for site in document["sites"])
    assert {"boundary", "function", "what", "why"} == document["refused"][0].keys()
    assert document["totals"][0]["hits"] >= 1


@pytest.mark.parametrize(("cpus", "price_ns"), [(1, 500.0), (4, 650.0), (9, 650.0)])
def test_costs_are_those_at_the_cpus_of_the_process(
    tls_process: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], cpus: int, price_ns: float,
) -> None:  # fmt: skip
    """On the command line, and in the plans of recordings, in whose files a budget finds them."""
    rows = [
        Price(kind, code, cost_ns, cost_ns, cost_ns, 9, count)
        for count, cost_ns in ((1, 500.0), (4, 650.0))
        for kind, code in (("uprobe", PLAIN), ("uretprobe", PLAIN), ("uprobe", STEPPED))
    ]
    monkeypatch.setattr(costs, "this_host_costs", lambda _: host_costs_of(rows, ()))
    monkeypatch.setattr(usable_cpus, "usable_cpus_count", lambda *_: cpus)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["probes", "plan", str(tls_process.pid)]) == ExitCode.OK
    text = capsys.readouterr().out
    measured = "1 CPU" if cpus == 1 else "4 CPUs"
    assert f"costs were measured on its host, on {measured} at once" in text
    assert f"{price_ns / 1000:6.2f} us uprobe" in text
    _, planned = plan_in_child(tls_process.pid)
    assert {site.cost_ns for site in planned.sites} == {price_ns}
    _, kept = plan_in_child(tls_process.pid)
    assert kept == planned, "a plan that was kept is priced, too"


def test_costs_of_another_machine_are_told_once(
    tls_process: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A recording plans for the server, for stretches and for its clients."""

    def refused() -> str:
        raise costs.UnmeasuredError(f"refused in {tmp_path.name}")

    monkeypatch.setattr(costs, "measured_text", refused)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        assert not plan_in_child(tls_process.pid)[1].host_costs.measured
    assert main(["probes", "plan", str(tls_process.pid)]) == ExitCode.OK
    said = capsys.readouterr().err
    assert said == f"tlstax: {unmeasured_note('this host', f'refused in {tmp_path.name}')}\n"


def test_costs_are_no_news_where_there_is_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> str:
        raise costs.UnmeasuredError(f"refused in {tmp_path.name}")

    monkeypatch.setattr(costs, "measured_text", refused)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert main(["probes", "plan", str(process.pid)]) == ExitCode.TARGET
        finally:
            process.kill()
    assert capsys.readouterr().err.count("\n") == 1


def test_two_boundaries_on_one_instruction_share_its_trap(tls_process: Target) -> None:
    (openssl,) = [entry for entry in load_definitions() if entry.id == "openssl3"]
    first = next(boundary for boundary in openssl.boundaries if boundary.id == "verify_digest")
    alone = plan(tls_process, [replace(openssl, boundaries=(first,))])
    both = plan(tls_process, [replace(openssl, boundaries=(first, replace(first, id="again")))])
    (entry,) = [site for site in both.sites if site.boundary == "again"]
    assert entry.event == "enter"
    assert entry.cost_ns == 0.0, "the trap is the first boundary's"
    assert totals_of(both.sites)[0].cost_ns == totals_of(alone.sites)[0].cost_ns > 0


def test_missing_boundaries_are_printed_with_their_consequence(tls_process: Target) -> None:
    (openssl,) = [entry for entry in load_definitions() if entry.id == "openssl3"]
    first = replace(openssl.boundaries[0], functions=(Function("SSL_is_gone"),))
    changed = replace(openssl, boundaries=(first,))
    lines = as_lines(tls_process, plan(tls_process, [changed]))
    assert lines[-1].startswith(f"missing: {first.id}: {first.missing} (no function has this name")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["probes", "plan", str((1 << 22) - 1)], ExitCode.TARGET, "no such process"),
        (["probes", "plan", "--name", "no-such-name"], ExitCode.TARGET, "No process is called"),
        (
            ["probes", "plan", "--definitions", "/nowhere", str(os.getpid())],
            ExitCode.USAGE,
            "no .toml file",
        ),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], status: ExitCode, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_names_from_binaries_are_shown_with_escapes() -> None:
    assert visible("a\x1b[31m\nb\udcff") == "a\\x1b[31m\\nb\\udcff"
    assert visible("do_command(THD*)") == "do_command(THD*)"


def test_level_flow_says_why_each_probe_stays(
    tls_process: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probes", "plan", "--level", "flow", str(tls_process.pid)]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    if not HOST.socket_events:
        assert any("recorded at level command" in line for line in lines)
        return
    probes = [at for at, line in enumerate(lines) if " us uprobe" in line]
    assert probes
    assert all("stays probed: crossed" in lines[at + 2] for at in probes)
    told = [
        line
        for line in lines
        if "no probe: sock_recv_length" in line
        or "no probe: returns of inet_recvmsg, inet_sendmsg" in line
    ]
    assert [line.split()[0] for line in told] == ["commands"]
    assert any("unavailable: records: " in line for line in lines)


def test_a_plan_that_cannot_be_written_keeps_the_earlier_files(
    tls_process: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise ValueError("made up")

    monkeypatch.setattr(safe_request, "preflight", lambda *_: Safety())
    path = tmp_path / "x.plan"
    words = ["probes", "plan", str(tls_process.pid), "--output", str(path)]
    assert main(words) == ExitCode.OK
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert before.keys() == {path.name, path.name + SUFFIX}
    monkeypatch.setattr(safe_request, "preflight", lambda *_: Safety(user_stacks=False))
    assert main(words) == ExitCode.USAGE  # it exists; a plan without stacks has no tables
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    monkeypatch.setattr(plan_file, "plan_file_text", fail)
    for more in (["--force"], ["--output", str(tmp_path / "y.plan")]):
        with pytest.raises(ValueError, match="made up"):
            main([*words, *more])
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    monkeypatch.setattr(plan_file, "plan_file_text", lambda *_: "text")
    monkeypatch.setattr(plan_file, "write_plan_file", fail)
    with pytest.raises(ValueError, match="made up"):
        main([*words, "--output", str(tmp_path / "y.plan")])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("part", ["plan", "tables"])
def test_what_cannot_be_written_whole_leaves_what_was_there(
    part: str, tls_process: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_request, "preflight", lambda *_: Safety())
    words = ["probes", "plan", str(tls_process.pid), "--output"]
    path = tmp_path / "x.plan"
    assert main([*words, str(path)]) == ExitCode.OK
    size_bytes = path.stat().st_size
    assert path.with_name(path.name + SUFFIX).stat().st_size > size_bytes + 1
    path.write_bytes(b"an earlier plan")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for more in ([str(path), "--force"], [str(tmp_path / "y.plan")]):
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (size_bytes + (1 if part == "tables" else -1), limits[1])
        )
        try:
            status = main([*words, *more])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert status == ExitCode.IO
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_from_the_cache_a_plan_needs_neither_disassembler_nor_numpy(
    tls_process: Target, tmp_path: Path
) -> None:
    """They took half of the CPU time before anything was attached."""
    command = ["probes", "plan", str(tls_process.pid), "--output", str(tmp_path / "plan")]
    assert main(command) == ExitCode.OK
    plan_text, tables = (tmp_path / "plan").read_bytes(), (tmp_path / f"plan{SUFFIX}").read_bytes()
    again = [sys.executable, "-X", "importtime", "-m", "tlstax", *command, "--force"]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "tlstax.collectors.placement.plan_cache" in imported
    assert not {name for name in imported if name.partition(".")[0] in ("numpy", "iced_x86")}
    assert (tmp_path / "plan").read_bytes() == plan_text
    assert (tmp_path / f"plan{SUFFIX}").read_bytes() == tables
