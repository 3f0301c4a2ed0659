# SPDX-License-Identifier: GPL-2.0-only
"""What the static recorder can still do once it is attached."""

import errno
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tlstax.tests.kernel.recorder_runs import OK, SANITIZED, Record, await_attached, serve

# By linux/capability.h; docs/recorder.md lists them.
KEPT: Final = {
    "CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38, "CAP_BPF": 39, "CAP_CHECKPOINT_RESTORE": 40,
}  # fmt: skip
CAPABILITIES = re.compile(r"^Cap(?:Inh|Prm|Eff):\s*([0-9a-f]+)$", re.MULTILINE)
STATES = re.compile(r"^(?:NoNewPrivs|Seccomp):\s*(\d)$", re.MULTILINE)
FILTERED = "2"
PERMITTED: Final = {"reads-file", "reads-map", "signals-watchdog"}
pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


def statuses(pid: int) -> dict[int, str]:
    """/proc/PID/status of each thread."""
    tasks = Path(f"/proc/{pid}/task")
    return {int(task.name): (task / "status").read_text() for task in tasks.iterdir()}


def test_an_attached_recorder_keeps_what_it_needs(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record
) -> None:
    recorder = record_it()
    await_attached(recorder)
    children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
    threads = statuses(recorder.pid)
    (watchdog,) = (statuses(int(child))[int(child)] for child in children)
    (own,) = CAPABILITIES.findall(Path("/proc/self/status").read_text())[2:3]
    most = sum(1 << bit for bit in KEPT.values())
    for tid, text in threads.items():
        inherited, permitted, effective = (int(word, 16) for word in CAPABILITIES.findall(text))
        assert inherited == 0
        assert permitted == effective == (most & int(own, 16) if tid == recorder.pid else 0), tid
        if not SANITIZED or tid == recorder.pid:
            assert STATES.findall(text) == ["1", FILTERED], tid
    assert len(threads) > 8, "the writer and those that close probes"
    assert {int(word, 16) for word in CAPABILITIES.findall(watchdog)} == {0}
    assert STATES.findall(watchdog)[0] == "1"
    serve(recorded_server)
    recorder.terminate()
    _, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors


def test_other_system_calls_are_refused(repository: Path) -> None:
    """Also in threads that were there before."""
    program = repository / "tests/testprogs/bin/privileges"
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    results = dict(line.split() for line in done.stdout.splitlines())
    assert len(results) > 15
    for name, number in results.items():
        is_refused = int(number) == errno.EPERM
        assert is_refused == (name not in PERMITTED), (name, os.strerror(int(number)))
    assert not Path("/tmp/tlstax-privileges").exists()
