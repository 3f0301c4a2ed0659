# SPDX-License-Identifier: GPL-2.0-only
"""`perf record` as a source: whole stacks by DWARF, frame pointers or branch records.

With DWARF, perf copies parts of the server's stack, which may hold any data. The file is therefore
unlinked as soon as perf has opened it: it disappears with tlstax and perf, however they end, and
only names and counts reach the capture. It can be large: about 16 KB per sample.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.tool_process import die_with_parent, how_it_ended, last_words, reap
from tlstax.collectors.sources.perf.script import FIELDS, parse

HARDWARE: Final = ("cycles", "instructions")
CLOCK: Final = "cpu-clock"
_CALL_GRAPHS: Final = {"dwarf": "dwarf,16384", "fp": "fp", "lbr": "lbr"}
_OPEN_PATIENCE_S: Final = 10.0
_END_PATIENCE_S: Final = 60.0  # it reads all that it wrote, on a host that may be busy


class Perf:
    """One `perf record` during the recording; its file is read at the end."""

    name = "perf"

    def __init__(
        self,
        pid: int,
        directory: Path,
        *,
        sample_hz: int = 99,
        call_graph: str = "dwarf",
        events: Sequence[str] = (),
    ) -> None:
        """`directory`: where its file is during the recording.

        `events`: the event that samples, then those that are counted with it. By default cycles
        and instructions if the machine counts them, else the clock.
        """
        self._pid = pid
        self._directory = directory
        self._sample_hz = sample_hz
        self._call_graph = call_graph
        self._process: subprocess.Popen[bytes] | None = None
        self._data = -1
        self._start_ns = self._end_ns = 0
        self.events = tuple(events)
        self.warning = ""

    def start(self) -> str:
        """Start it. Raises TlstaxError if perf is missing or is not allowed to record."""
        perf = find_perf()
        version = _ask([perf, "--version"]).strip()
        if not self.events:
            self.events, self.warning = choose_events(perf)
        if self._call_graph == "lbr":
            require_branch_records(perf)
        descriptor, path = tempfile.mkstemp(prefix=".tlstax-perf-", dir=self._directory)
        self._data = descriptor
        command = [
            perf, "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", group(self.events),
            "-F", str(self._sample_hz), "--call-graph", _CALL_GRAPHS[self._call_graph],
            "-p", str(self._pid), "-o", f"/proc/self/fd/{descriptor}",
        ]  # fmt: skip
        self._start_ns = monotonic_ns()
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, pass_fds=(descriptor,), start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
            self._wait_until_open()
        except BaseException:
            self._discard()
            raise
        finally:
            os.unlink(path)
        return f"{version}, {' and '.join(self.events)}, {self._call_graph}"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """No rows before the end, but it must still be running."""
        self._check()
        return ()

    def halt(self) -> None:
        """Ask it to write its data and to end."""
        if self._process is not None and not self._end_ns and self._process.poll() is None:
            self._end_ns = monotonic_ns()
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> Iterable[schema.Row]:
        """End it, read its samples, and close its file.

        If perf has ended early, its samples are returned before the error is raised.
        """
        cause: TlstaxError | None = None
        try:
            self._check()
        except TlstaxError as error:
            cause = error
        try:
            yield from self._finish()
        except TlstaxError as error:
            raise cause or error from None
        if cause:
            raise cause

    def _check(self) -> None:
        """Raise TlstaxError if it has ended early; only once, as its data can still be read."""
        process = self._process
        if process is None or self._end_ns or process.poll() is None:
            return
        self._end_ns = monotonic_ns()
        if process.returncode == 0 and not Path(f"/proc/{self._pid}").exists():
            return  # it ended together with the server
        said = process.stderr.read().decode(errors="replace") if process.stderr else ""
        raise _failed(
            "it ended before the recording did",
            f"{how_it_ended(process)}; it said: {last_words(said)}",
        )

    def _finish(self) -> Iterable[schema.Row]:
        process = self._process
        if process is None:
            return ()
        try:
            self.halt()
            if process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_PATIENCE_S)
            if process.poll() is None:
                process.kill()
                raise _failed("it did not end", f"{_END_PATIENCE_S:.0f} s after SIGINT")
            window = schema.Window(0, None, self._start_ns, self._end_ns, 1, "record", self.name)
            return run_in_child(
                "Reading the samples of perf", lambda: read_data(self._data, window, self._root())
            )
        finally:
            self._discard()

    def _root(self) -> str:
        return f"/proc/{self._pid}/root"

    def _wait_until_open(self) -> None:
        """Wait until perf has written the header of its file, or has ended."""
        end = time.monotonic() + _OPEN_PATIENCE_S
        while self._process is not None and time.monotonic() < end:
            if self._process.poll() is not None:
                raise _failed("it did not start", self._said())
            if os.fstat(self._data).st_size > 0:
                return
            time.sleep(0.01)
        raise _failed("it did not start", f"no data after {_OPEN_PATIENCE_S:.0f} s")

    def _said(self) -> str:
        if self._process is None or self._process.stderr is None:
            return ""
        lines = self._process.stderr.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in lines if line.strip()), "no reason given")

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            reap(process)
            if process.stderr is not None:
                process.stderr.close()
        if self._data >= 0:
            os.close(self._data)
            self._data = -1


def find_perf() -> str:
    """Path of perf. Raises TlstaxError (HOST) if there is none."""
    path = shutil.which("perf")
    if path is None:
        raise TlstaxError(
            "perf not found",
            "no program of that name is on the PATH",
            "Install the package linux-perf, or leave perf out of --collect",
            ExitCode.HOST,
        )
    return path


def group(events: Sequence[str]) -> str:
    """The first event samples; the others are only counted, and read with each sample."""
    return events[0] if len(events) == 1 else "{" + ",".join(events) + "}:S"


def choose_events(perf: str) -> tuple[tuple[str, ...], str]:
    """The events to record, and a warning if hardware counters are missing, else ''."""
    counted = [event for event in HARDWARE if _counts(perf, event)]
    if counted == list(HARDWARE):
        return HARDWARE, ""
    if counted[:1] == [HARDWARE[0]]:
        return HARDWARE[:1], "this machine counts cycles but no instructions"
    return (CLOCK,), (
        "this machine counts no CPU cycles (as many virtual machines), so samples are taken by the "
        "clock, and instructions per cycle are unknown"
    )


def _counts(perf: str, event: str) -> bool:
    """Whether perf can count an event on this host, by trying it."""
    command = [perf, "stat", "-x", ",", "-e", event, "true"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.returncode == 0 and said.stderr.split(",")[0].isdigit()


def require_branch_records(perf: str) -> None:
    """Raise TlstaxError (HOST) unless perf can walk branch records of the CPU, by trying it."""
    command = [perf, "record", "-q", "-e", HARDWARE[0], "--call-graph", "lbr", "-o", os.devnull]
    said = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        lines = [line.strip() for line in said.stderr.splitlines() if line.strip()]
        raise TlstaxError(
            "perf cannot walk stacks by branch records on this host",
            "the CPU or the virtual machine provides none (LBR): "
            + (lines[-1] if lines else "no reason given"),
            "Use --perf-call-graph dwarf, or fp",
            ExitCode.HOST,
        )


def read_data(data: int, window: schema.Window, root: str = "") -> list[schema.Row]:
    """The rows of a perf.data file that is open as `data`.

    A window without times gets those of its samples. Run it in a child process: it needs much
    memory.
    """
    from tlstax.collectors.sources.perf.rows import FIRST_ID, PerfRows, read_build_ids, read_leader
    from tlstax.probes.definitions import load_definitions

    perf, path = find_perf(), f"/proc/self/fd/{data}"
    build_ids = read_build_ids(_ask([perf, "buildid-list", "-i", path], data))
    leader, hz = read_leader(_ask([perf, "evlist", "-F", "-i", path], data))
    if not hz:
        raise _failed("cannot convert samples to time", "perf recorded without a frequency (-F)")
    rows = PerfRows(load_definitions(), build_ids, root, leader)
    try:
        for sample in parse(_script([perf, "script", "-i", path, *FIELDS], data)):
            rows.add(sample)
        window = window._replace(
            window_id=FIRST_ID,
            start_ns=window.start_ns or rows.start_ns,
            end_ns=window.end_ns or rows.end_ns,
        )
        return rows.rows(window, 1e9 / hz)
    finally:
        rows.close()


def _script(command: list[str], data: int) -> Iterator[str]:
    """The lines that perf prints."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints,
            text=True, errors="replace", pass_fds=(data,),
        )  # fmt: skip
        with process:
            yield from process.stdout or ()
        if process.returncode != 0:
            complaints.seek(0)
            text = complaints.read(2000).decode(errors="replace").strip()
            raise _failed("cannot read its file", text.split("\n")[0] or "no reason given")


def _ask(command: list[str], data: int | None = None) -> str:
    pass_fds = () if data is None else (data,)
    said = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, pass_fds=pass_fds
    )
    if said.returncode != 0:
        raise _failed("it failed", (said.stderr.strip() or "no reason given").split("\n")[0])
    return said.stdout


def _failed(what: str, why: str) -> TlstaxError:
    return TlstaxError(
        f"perf: {what}",
        why,
        "Run `perf record -p PID` by hand, or leave perf out of --collect",
        ExitCode.FAILED,
    )
