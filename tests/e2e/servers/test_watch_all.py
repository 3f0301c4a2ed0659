# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax watch --all` on real servers: a restart of one leaves the other alone."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.analysis.fleet import columns
from tlstax.collectors.process.find_process import pids_of_name
from tlstax.collectors.watching.server_labels import long_label, server_marks, short_label
from tlstax.tests.bpf_objects import watch_leftovers
from tlstax.tests.e2e.recording import prometheus_server
from tlstax.tests.e2e.recording.prometheus_server import Ask, query
from tlstax.tests.e2e.recording.watch_runs import (
    WatchRun,
    await_true,
    connect,
    copied_server,
    rows_of,
    server_of,
)
from tlstax.tests.otlp_receiver import Collector
from tlstax.tests.processes import children_of
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.server_directory import free_port

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
COUNTS, MEANWHILE, AFTER, SETTLE_S, GONE_S = (20, 12), 8, 6, 2.0, 5.0
Spawn = Callable[..., "subprocess.Popen[bytes]"]
# The third window of the first server cannot be read.
# The server whose stream is broken waits for longer than a slow host takes to end the recorder;
# those that are due at the same time would share one.
UNREADABLE = """
from tlstax.collectors.watching import watch_all
watch_all._AGAIN_NS = (4_000_000_000,)
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.recording.stream_capture import StreamRows
whole, asked = StreamRows.next_window, []
def next_window(rows, *told):
    asked.append(rows)
    if rows is asked[0] and sum(one is rows for one in asked) == 3:
        raise StreamError("planted")
    return whole(rows, *told)
StreamRows.next_window = next_window
"""


@pytest.fixture
def program(lab_directory: Path) -> Iterator[Path]:
    made = copied_server(lab_directory, f"tlstax-{lab_directory.name[-6:]}")
    yield made
    made.unlink()


@pytest.fixture
def servers(program: Path) -> Iterator[list[PrivateServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(server_of(program)) for _ in COUNTS]


def recorders(watch: WatchRun) -> list[int]:
    found = children_of(watch.process.pid)
    return [pid for pid, name in found.items() if name == "tlstax-recorder"]


def handshakes(data: Path) -> dict[str, int]:
    """Successful ones by host."""
    found: dict[str, int] = {}
    for row in rows_of(data, columns.Handshake):
        if row["outcome"] == "success":
            found[row["host"]] = found.get(row["host"], 0) + row["handshake_count"]
    return found


@pytest.fixture
def start_again(spawn: Spawn) -> Iterator[Callable[..., None]]:
    """Kill a server, and start it as it was started, while its supervisor sees nothing of it.

    Options may be added.
    """
    stopped: list[int] = []

    def run(pid: int, *more: str) -> None:
        process = Path(f"/proc/{pid}")
        command = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        owner, group, parent = (status_of(pid, key) for key in ("Uid", "Gid", "PPid"))
        os.kill(parent, signal.SIGSTOP)
        stopped.append(parent)
        os.kill(pid, signal.SIGKILL)
        await_true(lambda: not (process / "cmdline").read_bytes(), lambda: "it did not end")
        spawn(
            [*command, *more],
            user=owner, group=group, extra_groups=[group], stderr=subprocess.DEVNULL,
        )  # fmt: skip

    yield run
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)


def status_of(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def test_each_server_has_rollups_of_its_own(
    servers: list[PrivateServer], program: Path, tmp_path: Path,
    start_again: Callable[[int], None],
) -> None:  # fmt: skip
    leftover = watch_leftovers()
    data = tmp_path / "data"
    hosts = [f"db1-{short_label(server_marks(server.pid))}" for server in servers]
    watch = WatchRun(tmp_path / "said", data, "--name", program.name, "--all")
    watch.await_said("recording process", 2)
    (recorder,) = recorders(watch)
    for server, count in zip(servers, COUNTS, strict=True):
        connect(server, count)
    wanted = dict(zip(hosts, COUNTS, strict=True))
    await_true(lambda: handshakes(data) == wanted, lambda: f"{handshakes(data)} {watch.said}")
    start_again(servers[0].pid)
    watch.await_said("is no longer recorded: it exited or was killed")
    connect(servers[1], MEANWHILE)
    watch.await_said("recording process", 3)
    assert len(recorders(watch)) == 2, "that of the other one goes on"
    assert recorder in recorders(watch)
    for server in servers:
        connect(server, AFTER)
    time.sleep(SETTLE_S)
    assert watch.end() == ExitCode.OK, watch.said
    assert handshakes(data) == {
        hosts[0]: COUNTS[0] + AFTER,
        hosts[1]: COUNTS[1] + MEANWHILE + AFTER,
    }, watch.said
    intervals = rows_of(data, columns.Interval)
    assert {row["host"] for row in intervals} == set(hosts)
    assert all(row["engine_cpu_ns"] > 0 for row in intervals)
    assert "tlstax and its recorders used" in watch.said.splitlines()[-1]
    of_host = [len(list(data.glob(f"raw/{host}/*.tlstax"))) for host in hosts]
    assert of_host[0] == of_host[1] + 1, "the other one's hour was not divided"
    files = [path for path in data.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert leftover() == set()


def test_servers_of_one_port_keep_their_own_data(
    servers: list[PrivateServer], program: Path, tmp_path: Path,
    start_again: Callable[..., None],
) -> None:  # fmt: skip
    """The second one does not become the first one when that ends."""
    data, port = tmp_path / "data", servers[0].port
    start_again(servers[0].pid, f"--port={port}")
    start_again(servers[1].pid, f"--port={port}", "--bind-address=127.0.0.2")
    for number in (1, 2):
        address = (f"127.0.0.{number}", port)
        await_true(lambda to=address: is_served(to), lambda to=address: str(to))  # type: ignore[misc]
    pids = pids_of_name(program.name)
    (first,) = [pid for pid in pids if "bind-address" not in command_line(pid)]
    (second,) = [pid for pid in pids if pid != first]
    hosts = {pid: f"db1-{long_label(server_marks(pid))}" for pid in pids}
    assert len({short_label(server_marks(pid)) for pid in pids}) == 1 < len(set(hosts.values()))
    watch = WatchRun(tmp_path / "said", data, "--name", program.name, "--all", "--raw", "0")
    watch.await_said("recording process", 2)
    connect(servers[0], COUNTS[0])
    await_true(lambda: handshakes(data) == {hosts[first]: COUNTS[0]}, lambda: watch.said)
    os.kill(first, signal.SIGKILL)
    watch.await_said("is no longer recorded: it exited or was killed")
    kept = recorded_s(data)
    await_true(
        lambda: recorded_s(data)[hosts[second]] > kept[hosts[second]] + 2, lambda: watch.said
    )
    assert watch.end() == ExitCode.OK, watch.said
    assert set(recorded_s(data)) == set(hosts.values())
    assert recorded_s(data)[hosts[first]] < kept[hosts[first]] + 2, "nothing came after its end"
    assert watch.said.count("recording process") == 2, watch.said


def is_served(address: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(address, 5):
        return True
    return False


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def recorded_s(data: Path) -> dict[str, float]:
    """Time that was recorded, by host."""
    found: dict[str, float] = {}
    for row in rows_of(data, columns.Interval):
        found[row["host"]] = found.get(row["host"], 0.0) + row["recorded_ns"] / 1e9
    return found


def test_a_stream_that_cannot_be_read_leaves_no_second_recorder(
    servers: list[PrivateServer], program: Path, tmp_path: Path
) -> None:
    """The recorder cannot leave one server, so it ends before the next one is attached."""
    watch = WatchRun(
        *(tmp_path / "said", tmp_path / "data", "--name", program.name, "--all", "--raw", "0"),
        changes=UNREADABLE,
    )
    while watch.said.count("recording process") < 2 * len(servers):
        assert watch.process.poll() is None, watch.said
        with suppress(FileNotFoundError):
            words = [word for pid in recorders(watch) for word in command_line(pid).split("\0")]
            at = [words.count(str(server.pid)) for server in servers]
            assert max(at) <= 1, f"{words} {watch.said}"
        time.sleep(0.01)
    assert "cannot be read: planted" in watch.said
    assert len(recorders(watch)) == len(servers), "the other one was attached to at once"
    for server in servers:
        connect(server, AFTER)
    assert watch.end() == ExitCode.OK, watch.said
    assert set(handshakes(tmp_path / "data").values()) == {AFTER}


@pytest.fixture
def prometheus(tmp_path: Path, repository: Path, spawn: Spawn) -> Callable[[int], Ask]:
    """Starts one that scrapes a port, whose alerts fire at once; asks it."""
    rules = (repository / "docs/monitoring/tlstax-alerts.yml").read_text()
    hurried = re.sub(r"for: \d+m", "for: 1s", rules)
    return lambda port: prometheus_server.start(tmp_path, hurried, port, spawn)


def test_metrics_of_all_servers_are_at_one_address(
    servers: list[PrivateServer], program: Path, tmp_path: Path, collector: Collector,
    prometheus: Callable[[int], Ask],
) -> None:  # fmt: skip
    port, name = free_port(), program.name
    hosts = [f"db1-{short_label(server_marks(server.pid))}" for server in servers]
    metrics = ("--listen", str(port), "--otlp", collector.address, "--raw", "0")
    watch = WatchRun(tmp_path / "said", tmp_path / "data", "--name", name, "--all", *metrics)
    watch.await_said("recording process", 2)
    ask = prometheus(port)

    def by_server(text: str) -> dict[str, float]:
        found = ask(query(text))
        return {row["metric"].get("server", ""): float(row["value"][1]) for row in found}

    for server, count in zip(servers, COUNTS, strict=True):
        connect(server, count)
    wanted = dict(zip(hosts, COUNTS, strict=True))
    text = 'sum by (server) (tlstax_handshakes_total{outcome="success"})'
    await_true(lambda: by_server(text) == wanted, lambda: f"{by_server(text)} {watch.said}")
    text = "sum by (server) (tlstax_handshake_duration_seconds_count)"
    assert by_server(text) == wanted
    assert ask(query('{__name__=~"tlstax_.+",server=""}')) == [], "each has its server"
    assert by_server("tlstax_server_up") == dict.fromkeys(hosts, 1)
    assert ask("alerts") == []
    servers[1].stop()
    await_true(
        lambda: (
            {
                tuple(row["labels"].get(key) for key in ("alertname", "server"))
                for row in ask("alerts")
            }
            == {("TlstaxServerNotRecorded", hosts[1])}
        ),
        lambda: f"{ask('alerts')} {watch.said}",
    )
    assert by_server("tlstax_server_up") == {hosts[0]: 1, hosts[1]: 0}
    assert watch.end() == ExitCode.OK, watch.said
    points = collector.metrics()["tlstax.connections"].sum.data_points
    sent = {point.attributes[0].value.string_value: point.as_double for point in points}
    assert sent.keys() == set(hosts)
    assert all(sent[host] >= count for host, count in wanted.items())


def test_a_killed_watch_leaves_nothing(
    servers: list[PrivateServer], program: Path, tmp_path: Path
) -> None:
    leftover = watch_leftovers()
    watch = WatchRun(tmp_path / "said", tmp_path / "data", "--name", program.name, "--all")
    watch.await_said("recording process", len(servers))
    own = recorders(watch)
    watch.process.kill()
    watch.process.wait()
    await_true(lambda: not any(Path(f"/proc/{pid}").exists() for pid in own), lambda: str(own))
    await_true(lambda: leftover() == set(), lambda: str(leftover()))


def test_a_killed_recorder_is_replaced(
    servers: list[PrivateServer], program: Path, tmp_path: Path
) -> None:
    watch = WatchRun(tmp_path / "said", tmp_path / "data", "--name", program.name, "--all")
    watch.await_said("recording process", len(servers))
    (recorder,) = recorders(watch)
    os.kill(recorder, signal.SIGKILL)
    watch.await_said("recording process", 2 * len(servers))
    assert len(recorders(watch)) == 1, "they share the next one"
    assert watch.end() == ExitCode.OK, watch.said
    assert watch.said.count("signal 9 ended the recorder") == len(servers)
