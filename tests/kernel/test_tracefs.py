# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace finds tracepoints where the host has no tracefs mounted, and the host stays as it is."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.patience import COMMAND_S
from tlstax.tests.safe_programs import is_guarded

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

HOST = 3
ACCEPT = ["--accept", "return-probes"]  # the program under test is in C
NO_ADMIN = ["setpriv", "--bounding-set", "-sys_admin"]
# Shared, as systemd has it: what a child mounts shows here unless the child takes care.
HIDE = """
while umount -a -t tracefs 2>/dev/null && grep -q ' tracefs ' /proc/self/mounts; do :; done
mount --make-rshared /
cat /proc/self/mounts >"$0/before"
"$@"
status=$?
cat /proc/self/mounts >"$0/after"
exit $status
"""
Result = subprocess.CompletedProcess[str]


@pytest.fixture
def without_tracefs(tmp_path: Path) -> Callable[[list[str]], Result]:
    """A function that runs a command where tracefs is not mounted; no mount may change by it."""

    def run(command: list[str]) -> Result:
        result = subprocess.run(
            ["unshare", "--mount", "sh", "-c", HIDE, str(tmp_path), *command],
            capture_output=True, text=True, check=False, timeout=COMMAND_S,
        )  # fmt: skip
        before, after = ((tmp_path / name).read_text() for name in ("before", "after"))
        assert " tracefs " not in before
        assert after == before
        return result

    return run


@pytest.fixture
def bpftrace_allowed() -> None:
    """Leave a test out where preflight refuses bpftrace, and tracefs is not come to."""
    if is_guarded():
        pytest.skip("bpftrace is refused on preemptible kernels since Linux 6.13")


@pytest.mark.usefixtures("bpftrace_allowed")
def test_a_program_of_tracepoints_runs(
    tlstax: list[str],
    target: "subprocess.Popen[bytes]",
    without_tracefs: Callable[[list[str]], Result],
    tmp_path: Path,
) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    capture = tmp_path / "a.tlstax"
    definitions = str(Path(__file__).parents[1] / "testprogs")
    command = [*tlstax, "probes", "run", "offcpu", "--pid", str(target.pid), "--for", "2s", *ACCEPT]
    done = without_tracefs([*command, "--definitions", definitions, "-o", str(capture)])
    assert done.returncode == 0, done.stderr
    with CaptureReader.open(capture) as reader:
        (window,) = reader.rows(schema.Window)
    assert window.engine == "bpftrace"
    assert Path("/proc/self/mounts").read_text() == mounts


@pytest.mark.usefixtures("bpftrace_allowed")
def test_as_a_source_of_a_recording(
    tlstax: list[str],
    target: "subprocess.Popen[bytes]",
    without_tracefs: Callable[[list[str]], Result],
    tmp_path: Path,
) -> None:
    capture = tmp_path / "a.tlstax"
    command = [*tlstax, "attach", str(target.pid), "--quiet", "--for", "2s", "-o", str(capture)]
    command += ["--collect", "bpftrace,procfs", "--bpftrace-programs", "locks", *ACCEPT]
    done = without_tracefs(command)
    assert done.returncode == 0, done.stderr
    with CaptureReader.open(capture) as reader:
        states = {row.name: row.state for row in reader.rows(schema.Collector)}
    assert states == {"bpftrace": "finished", "procfs": "finished"}


@pytest.mark.usefixtures("bpftrace_allowed")
def test_one_clear_error_where_nothing_may_be_mounted(
    tlstax: list[str],
    target: "subprocess.Popen[bytes]",
    without_tracefs: Callable[[list[str]], Result],
) -> None:
    command = [*NO_ADMIN, *tlstax, "probes", "run", "locks", "--pid", str(target.pid), *ACCEPT]
    done = without_tracefs(command)
    assert done.returncode == HOST, done.stderr
    (error,) = done.stderr.splitlines()
    for words in ("tracefs cannot be mounted", "unshare: Operation not permitted", "CAP_SYS_ADMIN"):
        assert words in error


@pytest.mark.parametrize(
    ("prefix", "ok", "found"),
    [
        ([], True, "not mounted; tlstax mounts it"),
        (NO_ADMIN, False, "cannot be mounted: unshare: Operation not permitted"),
    ],
)
def test_doctor_tries_it(
    tlstax: list[str],
    without_tracefs: Callable[[list[str]], Result],
    prefix: list[str],
    ok: bool,
    found: str,
) -> None:
    done = without_tracefs([*prefix, *tlstax, "doctor", "--json"])
    answers = {check["check_id"]: check for check in json.loads(done.stdout)["checks"]}
    assert answers["tracefs"]["ok"] is ok
    assert found in answers["tracefs"]["found"]


def test_a_tool_is_the_process_that_was_started_and_ends_with_us(tlstax: list[str]) -> None:
    """Accounting, signals and the end of a killed tlstax all go by the pid of the tool."""
    code = (
        "import subprocess, sys\n"
        "from tlstax.collectors.host.tracefs import prepare_tool\n"
        "tool = subprocess.Popen(['sleep', '60'], preexec_fn=prepare_tool)\n"
        "print(tool.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [tlstax[0], "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        tool = int(parent.stdout.readline())
        assert Path(f"/proc/{tool}/comm").read_text() == "sleep\n"
        assert " tracefs " in Path(f"/proc/{tool}/mounts").read_text()
        parent.kill()
        parent.wait()
        end = time.monotonic() + 10
        while Path(f"/proc/{tool}").exists() and time.monotonic() < end:
            time.sleep(0.01)
    assert not Path(f"/proc/{tool}").exists()


def test_where_it_is_mounted_nothing_is_done() -> None:
    """The tool then stays in the mount namespace of tlstax."""
    script = (
        "mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null\n"
        "readlink /proc/self/ns/mnt\n"
        'exec "$@"'
    )
    code = (
        "import subprocess\n"
        "from tlstax.collectors.host.tracefs import prepare_tool\n"
        "subprocess.run(['readlink', '/proc/self/ns/mnt'], preexec_fn=prepare_tool, check=True)\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    outer, tool = done.stdout.split()
    assert outer == tool
