# SPDX-License-Identifier: GPL-2.0-only
"""Sources that are missing, of another version, or unreadable, and a full disk, with real tools."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.sources.status import ServerStatus
from tlstax.workloads.servers.mariadb import PrivateServer

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes", "btf")]
ACCEPTED = ("--accept", "return-probes")

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer() as running:
        yield running


def attach(
    server: PrivateServer, capture: Path, names: str, path: Path | None = None, seconds: float = 2.5
) -> "subprocess.CompletedProcess[str]":
    """A whole recording, with programs from `path` alone."""
    environment = os.environ | ({"PATH": str(path)} if path else {})
    return subprocess.run(
        [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet", *ACCEPTED,
         "--for", f"{seconds}s", "-o", str(capture), "--collect", names],
        capture_output=True, text=True, check=False, timeout=120, env=environment,
    )  # fmt: skip


def collectors(capture: Path) -> dict[str, schema.Collector]:
    with CaptureReader.open(capture) as reader:
        return {row.name: row for row in reader.rows(schema.Collector)}


def windows(capture: Path, engine: str = "native") -> int:
    with CaptureReader.open(capture) as reader:
        return sum(row.engine == engine for row in reader.rows(schema.Window))


def test_missing_tools_are_named_and_the_rest_is_recorded(
    server: PrivateServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "bin"
    nowhere.mkdir()
    capture = tmp_path / "x.tlstax"
    done = attach(server, capture, "native,procfs,iostat,perf,bpftrace", nowhere)
    assert done.returncode == ExitCode.FAILED
    assert "3 of the sources failed" in done.stderr
    assert "Traceback" not in done.stderr
    found = collectors(capture)
    states = {name: row.state for name, row in found.items()}
    missing = dict.fromkeys(("iostat", "perf", "bpftrace"), "missing")
    assert states == {"procfs": "finished"} | missing
    assert all("not found" in found[name].note for name in missing)
    assert windows(capture) >= 2
    assert main(["report", str(capture)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name in missing:
        assert f"The source {name} is missing: " in shown


def wrapper(folder: Path, name: str, text: str) -> None:
    """A program that stands before the real one on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\nREAL={shutil.which(name)}\n{text}\n")
    path.chmod(0o755)


def test_tools_of_other_versions_serve_if_they_can_be_understood(
    server: PrivateServer, tmp_path: Path
) -> None:
    """Stand-ins for versions that no distribution has at hand: they differ in what they say."""
    programs = tmp_path / "bin"
    programs.mkdir()
    wrapper(
        programs, "perf", '[ "$1" = --version ] && echo perf version 99.1 && exit\nexec $REAL "$@"'
    )
    wrapper(programs, "bpftrace", "echo bpftrace v0.9.2")
    wrapper(
        programs, "iostat",
        '[ "$1" = -V ] && echo sysstat version 99.1 && exit\n'
        'echo \'{"disk_device": {"name": "vda"}, "r/s": {"now": 1}},\'\nexec /bin/sleep 60',
    )  # fmt: skip
    for name in ("sleep", "true"):
        (programs / name).symlink_to(shutil.which(name) or "")
    capture = tmp_path / "x.tlstax"
    done = attach(server, capture, "native,procfs,iostat,perf,bpftrace", programs)
    assert done.returncode == ExitCode.FAILED
    assert "2 of the sources failed" in done.stderr
    assert "Traceback" not in done.stderr
    found = collectors(capture)
    states = {name: row.state for name, row in found.items()}
    assert states == {
        "procfs": "finished", "iostat": "failed", "perf": "finished", "bpftrace": "missing",
    }  # fmt: skip
    assert found["perf"].version.startswith("perf version 99.1")
    assert found["iostat"].version == "sysstat version 99.1"
    assert "not the expected JSON" in found["iostat"].note
    assert "0.17 is the oldest" in found["bpftrace"].note
    assert windows(capture) >= 2
    assert windows(capture, "perf") == 1


def test_a_full_disk_ends_the_recording_and_keeps_what_was_written(
    server: PrivateServer, make_disk: Callable[[str], Path]
) -> None:
    small_disk = make_disk("1m")
    capture = small_disk / "x.tlstax"
    with subprocess.Popen(
        [sys.executable, "-m", "tlstax", "attach", str(server.pid), "--quiet", *ACCEPTED,
         "--for", "60s",
         "-o", str(capture), "--collect", "native,procfs,perf"],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        while "attached" not in (line := process.stderr.readline()):
            assert line
        deadline = time.monotonic() + PATIENCE_S
        while windows(capture) < 1:
            assert time.monotonic() < deadline, "no window was finished"
            time.sleep(0.2)
        fill(small_disk / "other")
        _, said = process.communicate(timeout=120)
    assert process.returncode == ExitCode.IO, said
    assert "full" in said
    assert "Traceback" not in said
    (small_disk / "other").unlink()
    assert windows(capture) >= 1
    assert sorted(path.name for path in small_disk.iterdir() if "perf" in path.name) == []


def fill(path: Path) -> None:
    """Take all of the room that is left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_login_paths_need_a_client_that_reads_them() -> None:
    """MariaDB's, which this host has, do not: the file of mysql_config_editor is MySQL's."""
    with pytest.raises(TlstaxError) as found:
        ServerStatus(login_path="watcher").start()
    assert found.value.exit_code == ExitCode.HOST
    assert "--status-file" in found.value.do
