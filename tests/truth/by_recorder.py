# SPDX-License-Identifier: GPL-2.0-only
"""Programs of the tests under the static recorder."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tlstax import ExitCode
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.recording.function_windows import FunctionRows
from tlstax.collectors.recording.programs.ledger_layout import (
    HandshakeRecord,
    OffcpuKey,
    OffcpuValue,
    SampleKey,
)
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.tables_file import process_tables, write_tables
from tlstax.collectors.unwinding.process_tables import lay_out, maps_of

Spawn = Callable[..., "subprocess.Popen[Any]"]
NOTICED_S = 1.5  # it looks for new code at most once a second

LAST_SWITCHES_S = 0.3  # they come after a thread was joined
WINDOW = "500ms"


def record(
    pid: int, plan_text: str, folder: Path, run: Callable[[], None], options: Sequence[str] = ()
) -> "Recorded":
    """Record while `run` runs."""
    (recorded,) = record_all({pid: plan_text}, folder, run, options)
    return recorded


def record_all(
    plans: Mapping[int, str], folder: Path, run: Callable[[], None], options: Sequence[str] = ()
) -> "list[Recorded]":
    """Record several processes with one recorder while `run` runs, each by its plan."""
    stream = folder / "truth.stream"
    command = [os.environ.get("TLSTAX_RECORDER") or str(recorder_path())]
    for pid, plan_text in plans.items():
        plan = folder / f"truth.{pid}.plan"
        plan.write_text(plan_text)
        command += ["--next"] * (len(command) > 1)
        command += ["--plan", str(plan), "--pid", str(pid), "--window", WINDOW, *options]
    with (
        stream.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE) as recorder,
    ):
        assert recorder.stderr is not None
        for _ in plans:
            line = recorder.stderr.readline()
            assert b"attached to" in line, line
        try:
            run()
            time.sleep(LAST_SWITCHES_S)
        finally:
            recorder.terminate()
        said = recorder.stderr.read()
        assert recorder.wait(60) == 0, said
    return [Recorded(stream, target) for target in range(len(plans))]


class Recorded(Replay):
    """All windows of a stream as one: accounts of all threads, all handshakes."""

    def __init__(self, path: Path, target: int = 0) -> None:
        with path.open("rb") as stream:
            super().__init__(stream, target=target)
            self._all: list[HandshakeRecord] = []
            functions = self.plan_file.functions
            self.function_rows = FunctionRows(functions, self.functions) if functions else None
            while self.next_window():
                self._all += self.window_records
        self.maps = self  # as of the engine of tests

    def latency_counts(self) -> dict[int, tuple[int, ...]]:
        """Histogram of each phase that ended."""
        return {phase: tuple(counts) for phase, counts in self.latency.items()}

    def handshake_records(self) -> list[HandshakeRecord]:
        """Those of all windows."""
        return self._all


class StackRecorder:
    """The static recorder with unwind tables, whose stacks are read."""

    def __init__(
        self, pid: int, plan_text: str, folder: Path, hz: int, spawn: Spawn, *, tables: bool = True
    ) -> None:
        self._pid, self._spawn = pid, spawn
        self._plan, self._stream = folder / "stacks.plan", folder / "stacks.stream"
        self._plan.write_text(plan_text)
        made = process_tables(pid)
        assert made is not None
        if tables:
            write_tables(self._plan, made, overwrite=False)
        self._made = made
        self._options = ["--pid", str(pid), "--window", "200ms", "--sample-hz", str(hz)]
        self._from_ns = 0
        self._samples: list[tuple[SampleKey, int]] = []
        self._waits: list[tuple[OffcpuKey, OffcpuValue]] = []
        self.maps = self.walker = self
        self.replay: Replay

    def attach(self) -> None:
        """Begin."""
        command = [recorder_path(), "--plan", self._plan, *self._options]
        command += ["--output", self._stream]
        self._recorder = self._spawn(command, stderr=subprocess.PIPE)
        assert self._recorder.stderr is not None
        line = self._recorder.stderr.readline()
        assert b"attached to" in line, line

    def keep_up(self) -> None:
        """Write tables of what was mapped since; the samples up to now do not count."""
        added = lay_out(self._pid, maps_of(self._pid), self._made.layout)
        whole = added._replace(words=self._made.words + added.words)
        write_tables(self._plan, whole, overwrite=True)
        time.sleep(NOTICED_S)
        self._from_ns = monotonic_ns()

    def finish(self) -> None:
        """Read what was recorded; the target has ended."""
        assert self._recorder.wait(60) == ExitCode.TARGET
        with self._stream.open("rb") as stream:
            self.replay = Replay(stream)
            while self.replay.next_window():
                if self.replay.window.end_ns > self._from_ns:
                    self._samples += self.replay.window_samples
                    self._waits += self.replay.window_waits

    def samples(self) -> list[tuple[SampleKey, int]]:
        """The samples that count."""
        return self._samples

    def waits(self) -> list[tuple[OffcpuKey, OffcpuValue]]:
        """The waits that count."""
        return self._waits

    def stack_addresses(self, stack: int) -> tuple[int, ...]:
        """Addresses of a stack, innermost first."""
        return self.replay.stack_addresses(stack)

    def counts(self) -> dict[str, int]:
        """How walks ended."""
        return self.replay.walk_counts()

    def close(self) -> None:
        """It ended with the target."""
