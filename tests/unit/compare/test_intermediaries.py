# SPDX-License-Identifier: GPL-2.0-only
"""What tunnels and proxies cost an operation: sums that come out, and who took no part."""

import io

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.terminal import report as terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.schema import (
    Ledger,
    ProcessClock,
    Run,
    Target,
    Thread,
    ThreadClock,
    Window,
)

US = 1000
EACH = 100  # operations of a round
SECOND_NS = 10**9
# Per operation: CPU, runnable, waiting for the network.
COSTS_US = {2: (30, 5, 400), 3: (50, 10, 300), 4: (0, 0, 9000)}


def made(rounds: int = 5, *, runs: bool = True) -> tables.Tables:
    """A server, two busy processes in between, and an idle one."""
    scene = tables.Tables()
    names = ("mariadbd", "ssh", "sshd", "openvpn")
    for number, name in enumerate(names, 1):
        role = "server" if number == 1 else "tunnel"
        exe = f"/usr/sbin/{name}"
        scene.targets.append(
            Target(number, 9, exe, "", "x", "1", "unknown", "unknown", "unknown", role)
        )
        scene.threads.append(Thread(number, 1, name, "background", 0, None, number))
    scene.targets[1] = scene.targets[1]._replace(label="the client's ssh")
    for place in range(rounds):
        run_id = place + 1 if runs else None
        start_ns, end_ns = place * SECOND_NS, (place + 1) * SECOND_NS
        if run_id:
            run = (run_id, "storm", "connect", "tls", place, start_ns, end_ns, 1, EACH, EACH)
            scene.runs.append(Run(*run, US, 0, 0, 0, "{}"))
        for number in range(1, 5):
            window = 100 * number + place
            scene.windows.append(Window(window, run_id, start_ns, end_ns, number))
            costs = COSTS_US.get(number, (10, 0, 0))
            states = ("on_cpu", "runnable", "blocked_network")
            phase = "command" if number == 1 else "background"
            times = {state: us * US * EACH for state, us in zip(states, costs, strict=True)}
            rows = [Ledger(window, number, phase, state, ns) for state, ns in times.items()]
            scene.ledger += rows
            clock = ThreadClock(window, number, sum(times.values()), None, None, 0, 0)
            scene.clocks.append(clock)
            cpu_ns = times["on_cpu"] * 4 // 5  # the ledger has a quarter more
            counts = (cpu_ns, cpu_ns, 0, 0, 0, 0, 1, 1)
            scene.process_clocks.append(ProcessClock(window, *counts))
    return tables.by_target(scene)


def test_cpu_time_per_operation_and_who_took_no_part() -> None:
    (line,) = explain.explain(made()).between
    assert [process.label for process in line.processes] == ["sshd", "the client's ssh"]
    sshd, ssh = line.processes
    assert (sshd.cpu.value_ns, ssh.cpu.value_ns) == (50 * US, 30 * US)
    assert sshd.cpu.low_ns == sshd.cpu.high_ns == pytest.approx(50 * US)
    assert sshd.runnable.value_ns == 10 * US
    assert ssh.blocked_ns == {"blocked_network": 400 * US}
    assert line.cpu.value_ns == 80 * US
    assert line.idle_count == 1, "openvpn did nothing"
    assert line.operation_count == 5 * EACH
    assert ssh.closure == pytest.approx(0.75)
    assert line.sentence == (
        "the tunnel computed 80.0 µs for each connection (sshd 50.0 µs, the client's ssh 30.0 µs)"
    )


def test_few_rounds_have_their_range() -> None:
    (line,) = explain.explain(made(3)).between
    assert line.cpu.unit_count == 3


def test_without_runs_times_are_of_the_whole() -> None:
    (line,) = explain.explain(made(2, runs=False)).between
    assert line.operation == ""
    assert line.cpu.value_ns == 2 * EACH * 80 * US
    assert "in the whole recording" in line.sentence


def test_the_server_s_own_tables_know_nothing_of_it() -> None:
    server = made()
    assert {row.thread_id for row in server.ledger} == {1}
    assert explain.explain(tables.by_target(tables.Tables())).between == []


def test_renderers_show_it() -> None:
    document = to_json(explain.explain(made()))
    stream = io.StringIO()
    terminal.print_report(document, stream=stream)
    assert "intermediaries: storm connect, TLS, per connection" in stream.getvalue()
    assert "the client's ssh" in stream.getvalue()
    assert '<section id="between">' in html.render(document)
