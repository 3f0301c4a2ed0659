# SPDX-License-Identifier: GPL-2.0-only
"""Arguments of `tlstax attach`, and results that come from a child process."""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.commands.attach_request import sample_hz
from tlstax.collectors.commands.options import duration
from tlstax.collectors.host.child import own_cpu_ns, run_in_child
from tlstax.collectors.sources import registry


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("100ms", 0.1), ("2", 2)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "0s", "5d", "nan", "1e9h", "ten"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


@pytest.mark.parametrize("text", ["-1", "1000", "99.5", "x", ""])
def test_sampling_rates_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        sample_hz(text)


def test_who_is_asked_for_must_be_said() -> None:
    assert main(["attach", "-o", "x.tlstax"]) == ExitCode.USAGE


def test_a_child_gives_its_result() -> None:
    assert run_in_child("never", lambda: [os.getpid() == os.getppid(), "text"]) == [False, "text"]


def test_the_work_of_a_child_is_part_of_the_cost() -> None:
    """Tables are built in a child while recording: a budget that does not see it is not kept."""

    def work() -> None:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass

    before = own_cpu_ns()
    run_in_child("never", work)
    assert 0.15e9 < own_cpu_ns() - before < 0.6e9
    others = own_cpu_ns()
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    assert own_cpu_ns() - others < 0.03e9, "programs beside it are not its own work"


def test_a_childs_error_is_raised_here() -> None:
    def fail() -> None:
        raise TlstaxError("what", "why", "do", ExitCode.TARGET)

    with pytest.raises(TlstaxError, match="why") as caught:
        run_in_child("never", fail)
    assert caught.value.exit_code == ExitCode.TARGET


def test_a_child_that_is_killed_is_one_error() -> None:
    with pytest.raises(TlstaxError, match="status 9"):
        run_in_child("names", lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize(
    "options",
    [
        ["--collect", "procfs", "--level", "sample"],
        ["--collect", "perf", "--functions", "cipher"],
        ["--collect", "native,perf", "--budget", "1%"],
        ["--collect", "native,bpftrace", "--budget", "1%"],
        ["--collect", "native,bcc"],
        ["--collect", "native,bpftrace"],
        ["--collect", "bcc", "--bcc-tools", "profile,funclatency"],
        ["--collect", "native,status"],
        ["--collect", "native", "--status-file", "watcher.cnf"],
    ],
)
def test_options_that_the_sources_cannot_keep_are_refused(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.tlstax"
    assert main(["attach", "1", "-o", str(out), *options]) == ExitCode.USAGE
    assert "--collect" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("collected", "options", "parts"),
    [
        ("procfs", {}, ""),
        ("bcc", {}, "bcc (funclatency)"),
        ("bcc", {"bcc_tools": ("profile", "biolatency")}, ""),
        ("bpftrace", {"bpftrace_programs": ("handshake",)}, "bpftrace (handshake)"),
    ],
)
def test_which_sources_use_return_probes(
    collected: str, options: dict[str, object], parts: str
) -> None:
    asked = registry.asked_by_default(["native", collected], 1, Path("x.tlstax"))
    asked = replace(asked, options={**asked.options, **options})
    assert registry.return_probes(asked) == parts


def test_the_refusal_of_return_probes_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x.tlstax")
    assert main(["attach", "1", "-o", out, "--collect", "native,bcc"]) == ExitCode.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "bcc (funclatency) puts return probes on functions of the server" in said
    assert "ends the server" in said
    assert "--accept return-probes" in said
