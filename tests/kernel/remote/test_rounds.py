# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet record` on real sshds: every host is in the data set, or named with its reason.

Each host is an sshd in network and mount namespaces of its own, whose /proc does not have the
servers of the others. The servers are the truth program, which rests. `make test-fleet-rounds`
records 200 times.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.store import parquet_files, selection
from tlstax.tests.kernel.recorder_runs import HANDSHAKES, PROGRAM, TARGET, Started
from tlstax.tests.kernel.remote.remote_host import RemoteHost, ssh_of

HOSTS = int(os.environ.get("TLSTAX_ROUND_HOSTS", "2"))
ROUNDS = int(os.environ.get("TLSTAX_ROUNDS", "1"))
AT_ONCE = 4
GONE_SECONDS = 20.0
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes"), pytest.mark.long]


@pytest.fixture
def boxes() -> Iterator[list[RemoteHost]]:
    """The hosts of a round, and behind them one that is dead."""
    made: list[RemoteHost] = []
    with tempfile.TemporaryDirectory(prefix="tlstax-round-") as folder:
        Path(folder).chmod(0o755)
        for number in range(HOSTS + 1):
            name = f"box{number}" if number < HOSTS else "dead"
            made.append(RemoteHost(Path(folder, name), PROGRAM, sys.executable, name))
        made[-1].close()
        yield made
        for box in made[:-1]:
            box.close()


@pytest.fixture
def ssh(boxes: Sequence[RemoteHost], tmp_path: Path) -> Path:
    """A folder with an ssh that knows them all."""
    config = tmp_path / "ssh_config"
    config.write_text("".join(box.ssh_config.read_text() for box in boxes))
    return ssh_of(tmp_path / "bin", config)


def running(program: Path) -> list[int]:
    """The processes of a program: servers, and the clients that each has started."""
    links = (entry / "exe" for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(link.parent.name) for link in links if _target(link) == str(program)]


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # it has ended, or is of the kernel
        return ""


def recorded(data: Path) -> list[tuple[str, int]]:
    """Host and recording of each complete row of facts."""
    files = selection.select(data, "1h", [columns.Host, columns.Interval])
    assert files.left_out == []
    return sorted(
        (row["host"], row["source_id"])
        for path in files.files[columns.Interval]
        for rows in parquet_files.groups(path)
        for row in rows.to_pylist()
        if row["ledger_observed_ns"] > 0
    )


def test_each_host_of_a_round_is_recorded_or_named(
    boxes: Sequence[RemoteHost], ssh: Path, program: Path, started: Started, tlstax: list[str],
    repository: Path, tmp_path: Path,
) -> None:  # fmt: skip
    server = Path(shutil.copy(program, tmp_path / f"round{os.getpid() % 100_000}"))
    servers = [started(server, "tls", "s" * HANDSHAKES) for _ in range(HOSTS)]
    for box, own in zip(boxes[:-1], servers, strict=True):
        box.hide(pid for pid in running(server) if pid != own.pid)
    hosts, data = tmp_path / "hosts", tmp_path / "data"
    names = [f"box{number}" for number in range(HOSTS)]
    hosts.write_text("".join(f"{name} c{at % 3}\n" for at, name in enumerate([*names, "dead"])))
    command = [
        *tlstax, "fleet", "record", "--hosts", hosts, "--name", server.name, "--for", "2s",
        "--parallel", AT_ONCE, "--per-cluster", 2, "--jitter", "1s", "--data", data, "--",
        "--sudo", "--budget", "none", "--definitions", repository / "tests/testprogs",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "PATH": f"{ssh}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    wanted: dict[str, int] = dict.fromkeys(names, 0)
    for _ in range(ROUNDS):
        done = subprocess.run(
            [str(part) for part in command], env=environment, capture_output=True, text=True
        )
        said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
        assert said.keys() == {*names, "dead"}, done.stderr
        why = said.pop("dead")
        assert "dead cannot be recorded" in why
        assert "resolve" not in why, "its name is known; nobody listens"
        assert done.returncode == TARGET
        for name, what in said.items():
            wanted[name] += what == "recorded"
            assert what == "recorded", (name, what)
    found = recorded(data)
    assert {name: sum(host == name for host, _ in found) for name in names} == wanted
    assert len({source for _, source in found}) == HOSTS * ROUNDS
    for box in boxes[:-1]:
        box.await_nothing_left(GONE_SECONDS)
