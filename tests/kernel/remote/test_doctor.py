# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax doctor PID --ssh`: what is found is of the other host, and nothing stays there."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax import __version__
from tlstax.collectors.preflight.examination import examine
from tlstax.collectors.preflight.judge import Status
from tlstax.tests.kernel.recorder_runs import OK, TARGET, Leftover, Process
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
Doctor = Callable[[int, int], str]


@pytest.fixture
def doctor(
    box: RemoteHost, environment: dict[str, str], tlstax: list[str], leftover: Leftover
) -> Doctor:
    """Examines a process there, with that exit status; what it printed, an error last."""

    def run(pid: int, code: int) -> str:
        done = subprocess.run(
            [*tlstax, "doctor", str(pid), "--ssh", "box", "--sudo", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        box.await_nothing_left(GONE_SECONDS)
        assert leftover() == set()
        return done.stdout or done.stderr

    return run


def statuses(printed: str, pid: int) -> dict[str, str]:
    """The status of each hazard in a document on that process."""
    document = json.loads(printed)
    assert (document["tlstax_version"], document["pid"]) == (__version__, pid)
    return {str(hazard["id"]): str(hazard["status"]) for hazard in document["hazards"]}


def test_a_process_of_the_same_kernel_is_found_to_be_the_same(
    doctor: Doctor, recorded_server: Process
) -> None:
    """But for what is tried, which counts as present there, and for probes of other tools."""
    here = {each.hazard.id: each for each in examine(recorded_server.pid)}
    there = statuses(doctor(recorded_server.pid, OK), recorded_server.pid)
    assert set(there) == set(here)
    assert there.pop("other-probes") == Status.UNKNOWN
    read = {name for name in there if here[name].hazard.kind in ("table", "target")}
    assert len(read) > 10
    assert {name: there[name] for name in read} == {name: here[name].status for name in read}
    assert there["red-zone"] == there["rip-relative"] == Status.VARIANT


def test_what_is_read_is_read_there(
    doctor: Doctor, box: RemoteHost, recorded_server: Process
) -> None:
    """Its /proc says that the process is traced, which here it is not."""
    path = f"/proc/{recorded_server.pid}/status"
    text, count = re.subn(r"(?m)^TracerPid:.*$", "TracerPid:\t1", Path(path).read_text())
    assert count == 1
    box.show(path, text)
    there = statuses(doctor(recorded_server.pid, TARGET), recorded_server.pid)
    assert {name for name, status in there.items() if status == Status.REFUSED} == {"tracer"}
    here = {each.hazard.id: each.status for each in examine(recorded_server.pid)}
    assert here["tracer"] == Status.OK


def test_a_process_that_is_only_here_is_none_there(
    doctor: Doctor, box: RemoteHost, recorded_server: Process
) -> None:
    box.hide([recorded_server.pid])
    assert "there is no such process" in doctor(recorded_server.pid, TARGET)
