# SPDX-License-Identifier: GPL-2.0-only
"""Preflight on this very host: trials that can fail, and processes with something wrong."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tlstax.collectors.host import bpf
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.host.trial_code import (
    PAGE_BYTES,
    PROBED_CODE,
    RETURN_ZERO,
    kept,
    mapped_code,
)
from tlstax.collectors.preflight import trial_child, trials
from tlstax.collectors.preflight.throwing_code import ThrowingCode
from tlstax.collectors.preflight.trial_child import Outcome, RunningTrial, State, Trial
from tlstax.tests.kernel.tracing import traced
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("uprobes")]

Process = subprocess.Popen[bytes]
TARGET = 4
DIES = {"throw_through_return_probe"}
# Depend on the kernel: each of them is mended in some, and was harmless before others.
DIFFERS = {"probe_in_red_zone", "return_probe_under_seccomp", "uprobe_multi_threads"}


def tried(trial: Trial) -> Outcome:
    return run_in_child("A trial", lambda: RunningTrial(trial).outcome())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs("overlay") if "overlay" in name else ())
        for name in trials.TRIALS
    ],
)
def test_a_trial_comes_to_an_answer(name: str) -> None:
    outcome = tried(trials.TRIALS[name])
    assert outcome.state != State.UNKNOWN, outcome
    if name in DIES:
        assert outcome == (State.HARMFUL, "a process of our own died by SIGABRT")
    elif name not in DIFFERS:
        assert outcome.state == State.SAFE, outcome


def test_all_trials_at_once_give_the_same() -> None:
    together = run_in_child("Trials", lambda: trials.begin()())
    assert {name: outcome.state for name, outcome in together.items()} == {
        name: tried(trial).state for name, trial in trials.TRIALS.items()
    }


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGSYS])
def test_a_child_that_dies_is_harm(number: signal.Signals) -> None:
    def die() -> Outcome:
        os.kill(os.getpid(), number)
        return Outcome(State.SAFE, "alive")

    assert tried(die) == (State.HARMFUL, f"a process of our own died by {number.name}")


def test_a_child_that_hangs_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_child, "DEADLINE_S", 0.2)

    def hang() -> Outcome:
        time.sleep(60)
        return Outcome(State.SAFE, "alive")

    start_s = time.monotonic()
    assert tried(hang).state == State.UNKNOWN
    assert time.monotonic() - start_s < 30


def test_a_refusal_of_the_kernel_is_no_answer() -> None:
    def refuse() -> Outcome:
        raise PermissionError(1, "Operation not permitted")

    assert tried(refuse) == (State.UNKNOWN, "refused: Operation not permitted")


def test_what_fails_without_a_probe_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThrowingCode, "register", lambda _self, _address: None)
    outcome = tried(trials.throw_through_return_probe)
    assert outcome == (State.UNKNOWN, "an exception is not caught even without a probe")


def test_a_throw_passes_without_a_return_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "probe_self", lambda *_arguments, **_named: -1)
    assert tried(trials.throw_through_return_probe).state == State.SAFE


def test_a_refused_system_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter works: a filter that refuses getpid() ends a trial that needs it."""

    def refused() -> Outcome:
        trials._refuse_system_calls([39])  # getpid
        pid = ctypes.CDLL(None).syscall(39)
        return Outcome(State.HARMFUL if pid < 0 else State.SAFE, "getpid")

    assert tried(refused).state == State.HARMFUL


def test_trials_leave_nothing_mounted_and_no_core() -> None:
    before = Path("/proc/self/mounts").read_text()
    run_in_child("Trials", lambda: trials.begin()())
    assert Path("/proc/self/mounts").read_text() == before
    assert not list(Path.cwd().glob("core*"))


# ---- processes ----


def doctor(pid: int, *options: str) -> tuple[int, dict[str, str]]:
    """Exit code of `doctor PID`, and the status of each hazard."""
    command = [sys.executable, "-m", "tlstax", "doctor", str(pid), "--json", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert result.stdout, result.stderr
    document = json.loads(result.stdout)
    return result.returncode, {one["id"]: one["status"] for one in document["hazards"]}


def test_a_plain_process_is_not_refused(target: Process) -> None:
    code, statuses = doctor(target.pid)
    assert code == 0
    assert "refused" not in statuses.values()
    for name in ("stopped", "tracer", "frozen-cgroup", "replaced-files"):
        assert statuses[name] == "ok"


def test_a_tracer_is_seen(traced: Process) -> None:
    code, statuses = doctor(traced.pid)
    assert (code, statuses["tracer"]) == (TARGET, "refused")
    code, statuses = doctor(traced.pid, "--accept", "tracer")
    assert (code, statuses["tracer"]) == (0, "accepted")


def test_a_tracer_of_a_single_thread_is_seen(spawn: Callable[..., Process]) -> None:
    """`strace -p TID` follows a connection, and not the first thread of the server."""
    code = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"
    process = spawn([sys.executable, "-c", f"{code}; print(flush=True)"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    (tid,) = {int(name) for name in os.listdir(f"/proc/{process.pid}/task")} - {process.pid}
    with traced(tid):
        code_of, statuses = doctor(process.pid)
    assert (code_of, statuses["tracer"]) == (TARGET, "refused")


def test_a_frozen_cgroup_is_seen(frozen: Process) -> None:
    code, statuses = doctor(frozen.pid)
    assert (code, statuses["frozen-cgroup"]) == (TARGET, "refused")


def test_a_stopped_process_is_seen(target: Process) -> None:
    target.send_signal(signal.SIGSTOP)
    while ") T " not in Path(f"/proc/{target.pid}/stat").read_text():
        time.sleep(0.01)
    code, statuses = doctor(target.pid)
    assert (code, statuses["stopped"]) == (TARGET, "refused")


def test_a_replaced_program_is_seen(replaced: Process) -> None:
    code, statuses = doctor(replaced.pid)
    assert (code, statuses["replaced-files"]) == (0, "safe variant")


@pytest.mark.needs("uprobe_multi")
@pytest.mark.parametrize("probed_pid", [os.getpid(), 1], ids=["own", "init"])
def test_probes_of_another_tool_are_seen(tmp_path: Path, probed_pid: int) -> None:
    code = tmp_path / "code"
    code.write_bytes(PROBED_CODE.ljust(PAGE_BYTES, b"\xcc"))
    with ExitStack() as stack:
        stack.enter_context(mapped_code(stack.enter_context(code.open("rb")).fileno()))
        program = bpf.load_program(bpf.ProgramType.KPROBE, RETURN_ZERO, bpf.ATTACH_UPROBE_MULTI)
        kept(stack, program)
        kept(stack, bpf.attach_uprobe_multi(program, str(code), [0], [0], probed_pid, False))
        _, statuses = doctor(os.getpid())
    expected = "safe variant" if probed_pid == os.getpid() else "ok"
    assert statuses["other-probes"] == expected


def test_a_thread_is_not_its_process() -> None:
    """`attach` refuses it: doctor must not say that it will be recorded."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    command = [sys.executable, "-m", "tlstax", "doctor", str(thread.native_id)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    over.set()
    assert result.returncode == TARGET
    assert f"Pass the pid of the process: {os.getpid()}" in result.stderr


def test_a_process_that_does_not_exist() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    command = [sys.executable, "-m", "tlstax", "doctor", str(process.pid)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == TARGET
    assert "no such process" in result.stderr


@pytest.mark.timing
def test_doctor_answers_within_a_second(target: Process) -> None:
    start_s = time.monotonic()
    doctor(target.pid)
    assert time.monotonic() - start_s < 1
