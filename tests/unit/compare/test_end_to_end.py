# SPDX-License-Identifier: GPL-2.0-only
"""Both sides of an operation: the lanes add up, and the rest is what was put between them."""

import io
import itertools
from dataclasses import dataclass, field

import pytest

from tlstax.analysis.classify.client_samples import PROGRAM, client_category
from tlstax.analysis.classify.taxonomy import Sample, builtin
from tlstax.analysis.document import explain
from tlstax.analysis.model.clients import EndToEnd
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.terminal import report as terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.schema import (
    Frame,
    Handshake,
    Ledger,
    PhaseCount,
    ProcessClock,
    Run,
    Target,
    Thread,
    ThreadClock,
    Window,
)

US = 1000
OTHER_NS = 10**8  # CPU time of the client's other thread in a round
CLIENT_US = {
    ("connect", "on_cpu"): 100,
    ("handshake", "on_cpu"): 200,
    ("sign", "on_cpu"): 50,
    ("handshake", "blocked_network"): 150,
    ("handshake", "runnable"): 20,
    ("background", "blocked_network"): 60,
    ("background", "on_cpu"): 15,
    ("disconnect", "blocked_disk"): 5,
}
SERVER_US = {
    ("idle", "blocked_network"): 5000,
    ("background", "on_cpu"): 70,
    ("handshake", "on_cpu"): 90,
    ("handshake", "blocked_network"): 220,
    ("command", "on_cpu"): 30,
    ("command", "runnable"): 10,
    ("disconnect", "on_cpu"): 8,
}


@dataclass
class Scene:
    """A server and a client, `each` connection of which costs what the tables above say."""

    each: int = 10
    rounds: int = 4
    runs: bool = True
    plaintext: bool = False
    made: tables.Tables = field(default_factory=tables.Tables)

    def __post_init__(self) -> None:
        names = ("/usr/sbin/mariadbd", "/usr/bin/sysbench")
        for target_id, (exe, role) in enumerate(zip(names, ("server", "client"), strict=True), 1):
            row = Target(target_id, 9, exe, "", "x", "1", "OpenSSL", "3.0", "shared", role)
            self.made.targets.append(row)
            self.made.threads += [
                Thread(10 * target_id, 1, "busy", "connection", 0, None, target_id),
                Thread(10 * target_id + 1, 2, "other", "background", 0, None, target_id),
            ]
        for number in range(self.rounds):
            self._round(number, number, "tls", 1)
            if self.plaintext:
                self._round(number, self.rounds + number, "plaintext", 0.1)

    def _round(self, number: int, place: int, arm: str, cost: float) -> None:
        run_id = place + 1 if self.runs else None
        start_ns, end_ns = place * 10**9, (place + 1) * 10**9
        if run_id:
            run = Run(
                run_id, "storm", "connect", arm, number, start_ns, end_ns, 1, self.each,
                self.each, 600 * US, 0, 0, 0, "{}",
            )  # fmt: skip
            self.made.runs.append(run)
        for target_id, costs in ((1, SERVER_US), (2, CLIENT_US)):
            window = 100 * target_id + place
            thread = 10 * target_id
            self.made.windows.append(Window(window, run_id, start_ns, end_ns, target_id))
            times = {key: round(us * US * self.each * cost) for key, us in costs.items()}
            self.made.ledger += [Ledger(window, thread, *key, ns) for key, ns in times.items()]
            lifetime_ns = sum(times.values())
            self.made.clocks.append(ThreadClock(window, thread, lifetime_ns, None, None, 0, 0))
            on_cpu_ns = sum(ns for (_, state), ns in times.items() if state == "on_cpu")
            on_cpu_ns += OTHER_NS if target_id == 2 else 0
            counts = (on_cpu_ns * 10 // 9, on_cpu_ns, 0, 0, 0, 0, 1, 1)
            self.made.process_clocks.append(ProcessClock(window, *counts))
            self.made.phase_counts += [
                PhaseCount(window, phase, self.each) for phase in ("connect", "handshake")
            ]
            self.made.handshakes.append(_handshake(window))
        # A thread that makes no connection is not in the client's lane.
        self.made.ledger.append(Ledger(200 + place, 21, "background", "on_cpu", OTHER_NS))

    def explain(self) -> EndToEnd:
        return explain.explain(tables.by_target(self.made)).end_to_end[-1]


def _handshake(window: int) -> Handshake:
    return Handshake(
        window, window, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, "success", "TLSv1.3", "", "", 0
    )


def test_the_lanes_hold_what_each_side_did() -> None:
    line = Scene().explain()
    assert line.operation == "connection"
    assert line.operation_counts == {"client": 40, "server": 40}
    assert line.handshake_counts == {"client": 4, "server": 4}
    assert line.process_count == 1
    assert line.closure == pytest.approx(0.9)
    assert line.latency.value_ns == pytest.approx(sum(CLIENT_US.values()) * US)
    assert line.client_cpu.value_ns == pytest.approx(365 * US)
    assert line.client_wait.value_ns == pytest.approx(210 * US)
    assert line.server_cpu.value_ns == pytest.approx(120 * US)
    assert line.between.value_ns == pytest.approx(90 * US)
    # Every round is the same, so the intervals have no width.
    assert line.between.low_ns == pytest.approx(90 * US)
    parts = {part.name: part.cost.value_ns / US for part in line.parts}
    assert parts == pytest.approx(
        {
            "client_connect_cpu": 100,
            "client_handshake_cpu": 250,
            "client_own_cpu": 15,
            "client_runnable": 20,
            "client_wait": 5,
            "client_peer_handshake": 150,
            "client_peer_other": 60,
            "server_handshake_cpu": 90,
            "server_command_cpu": 30,
            "server_runnable": 10,
            "server_peer": 220,
            "between": 90,
        }
    )
    client = [part for part in line.parts if part.lane == "client"]
    assert sum(part.cost.value_ns for part in client) == pytest.approx(line.latency.value_ns)
    assert sum(part.share for part in client) == pytest.approx(1)
    for before, part in itertools.pairwise(client):
        assert part.start_ns == pytest.approx(before.end_ns)
    (gone,) = line.beside
    assert gone.cost.value_ns == pytest.approx(8 * US)
    assert "90.0 µs of the wait is network and scheduling" in line.sentence


def test_what_tls_adds_is_told_part_by_part_and_adds_up() -> None:
    line = Scene(plaintext=True).explain()
    assert line.arm == "tls"
    assert line.latency_added is not None
    assert line.latency_added.value_ns == pytest.approx(0.9 * line.latency.value_ns)
    added = {part.name: part.added.value_ns for part in line.parts if part.added is not None}
    assert len(added) == len(line.parts)
    assert added["client_handshake_cpu"] == pytest.approx(0.9 * 250 * US)
    assert added["between"] == pytest.approx(0.9 * 90 * US)
    client = sum(value for name, value in added.items() if name.startswith("client"))
    assert client == pytest.approx(line.latency_added.value_ns)
    assert "TLS adds 328 µs to the client's CPU time and 108 µs to the server's" in line.sentence


def test_a_plaintext_arm_of_other_rounds_is_not_compared() -> None:
    scene = Scene(plaintext=True)
    scene.made.runs = [run for run in scene.made.runs if run.arm == "tls" or run.round]
    assert scene.explain().latency_added is None


@pytest.mark.parametrize("arms", [True, False])
def test_both_sides_are_on_the_terminal_and_on_the_page(arms: bool) -> None:
    document = to_json(explain.explain(tables.by_target(Scene(plaintext=arms).made)))
    stream = io.StringIO()
    terminal.print_report(document, stream=stream)
    text = " ".join(stream.getvalue().split())
    assert "both sides: storm connect, TLS, per connection" in text
    assert "handshake: CPU 250 µs" in text
    assert ("TLS adds" in text) == arms
    assert 'id="both-sides"' in html.render(document)
    assert "waiting for the server" in html.render(document)


def test_work_at_the_same_time_is_a_bound_and_no_negative_network() -> None:
    scene = Scene()
    scene.made.ledger += [
        Ledger(100 + n, 10, "command", "on_cpu", 200 * US * scene.each) for n in range(4)
    ]
    line = scene.explain()
    assert line.between.value_ns == pytest.approx(-110 * US)
    assert "at least 110 µs of it while the client did not wait" in line.sentence


def test_without_runs_connections_are_counted_on_each_side() -> None:
    scene = Scene(runs=False)
    # Another client, which is not recorded, makes as many connections.
    scene.made.phase_counts += [PhaseCount(100 + n, "connect", 10) for n in range(4)]
    line = scene.explain()
    assert line.operation == "connection"
    assert line.operation_counts == {"client": 40, "server": 80}
    assert line.server_cpu.value_ns == pytest.approx(60 * US)
    assert any("80 connections" in note for note in line.notes)


def test_a_pool_is_counted_by_the_server_s_commands() -> None:
    scene = Scene(runs=False)
    scene.made.phase_counts += [PhaseCount(100 + n, "command", 5000) for n in range(4)]
    line = scene.explain()
    assert line.operation == "command"
    assert line.operation_counts == {"client": 20_000, "server": 20_000}


def test_few_rounds_have_their_range() -> None:
    line = Scene(rounds=2).explain()
    assert line.latency.unit_count == 2
    assert any("2 rounds, with their range" in note for note in line.notes)


def test_without_a_client_there_is_nothing_to_show() -> None:
    scene = Scene()
    scene.made.targets.pop()
    assert explain.explain(tables.by_target(scene.made)).end_to_end == []


def frame(symbol: str, path: str) -> Frame:
    return Frame(1, path, "", 0, symbol, 0, "dynsym", "")


@pytest.mark.parametrize(
    ("phase", "syscall", "user", "kernel", "category"),
    [
        ("background", -1, frame("lj_vm_call", "/usr/lib/libluajit-5.1.so.2"), None, PROGRAM),
        ("background", -1, frame("mysql_init", "/usr/lib/libmariadb.so.3"), None, PROGRAM),
        ("background", -1, frame("[unknown]", ""), None, PROGRAM),
        ("connect", -1, frame("[libcrypto+0x1]", "/usr/lib/libcrypto.so.3"), None, "unknown"),
        ("handshake", -1, frame("malloc", "/usr/lib/libc.so.6"), None, "memory"),
        ("background", 1, None, frame("sock_write_iter", "kernel"), "kernel_network"),
        ("background", 1, None, frame("ext4_file_write_iter", "kernel"), "kernel_other"),
    ],
)
def test_samples_of_a_client(
    phase: str, syscall: int, user: Frame | None, kernel: Frame | None, category: str
) -> None:
    sample = Sample(phase, syscall, (user,) if user else (), (kernel,) if kernel else ())
    assert client_category(sample, builtin()) == category
