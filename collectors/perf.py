# SPDX-License-Identifier: GPL-2.0-only
"""`perf record` beside the native engine: whole stacks by DWARF, frame pointers or branch records.

With DWARF, perf copies pieces of the server's stack, which may hold anything. The file is therefore
unlinked as soon as perf has opened it: it is gone with tlstax and perf, however they end, and only
names and counts reach the capture. It can be large: about 16 KB a sample.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.child import die_with_parent, run_in_child
from tlstax.collectors.native import monotonic_ns
from tlstax.collectors.perf_script import FIELDS, parse

_CALL_GRAPHS: Final = {"dwarf": "dwarf,16384", "fp": "fp", "lbr": "lbr"}
_OPEN_PATIENCE_S: Final = 10.0
_END_PATIENCE_S: Final = 20.0


class Perf:
    """One `perf record` for as long as the recording lasts, read when it ends."""

    name = "perf"
    warning = ""

    def __init__(
        self, pid: int, directory: Path, *, sample_hz: int = 99, call_graph: str = "dwarf"
    ) -> None:
        """`directory`: where there is room for its file while it records."""
        self._pid = pid
        self._directory = directory
        self._sample_hz = sample_hz
        self._call_graph = call_graph
        self._process: subprocess.Popen[bytes] | None = None
        self._data = -1
        self._start_ns = 0
        self.event = ""

    def start(self) -> str:
        """Start it. Raises TlstaxError where perf is missing or may not record."""
        perf = find_perf()
        version = _ask([perf, "--version"]).strip()
        self.event = "cycles" if has_cycles(perf) else "cpu-clock"
        descriptor, path = tempfile.mkstemp(prefix=".tlstax-perf-", dir=self._directory)
        self._data = descriptor
        command = [
            perf, "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", self.event,
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
        return f"{version}, {self.event}, {self._call_graph}"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """Nothing before the end; but it must still run."""
        if self._process is not None and self._process.poll() is not None:
            raise _failed("it ended before the recording did", self._said())
        return ()

    def stop(self) -> Iterable[schema.Row]:
        """End it, read its samples, and let go of its file."""
        process = self._process
        if process is None:
            return ()
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_PATIENCE_S)
            if process.poll() is None:
                process.kill()
                raise _failed("it did not end", f"{_END_PATIENCE_S:.0f} s after SIGINT")
            window = schema.Window(0, None, self._start_ns, monotonic_ns(), 1, "record", self.name)
            return run_in_child(
                "Reading what perf recorded", lambda: read_data(self._data, window, self._root())
            )
        finally:
            self._discard()

    def _root(self) -> str:
        return f"/proc/{self._pid}/root"

    def _wait_until_open(self) -> None:
        """Until perf has written the head of its file, or ended."""
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
        return next((line.strip() for line in lines if line.strip()), "it gave no reason")

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        if self._data >= 0:
            os.close(self._data)
            self._data = -1


def find_perf() -> str:
    """Path of perf. Raises TlstaxError (HOST) where there is none."""
    path = shutil.which("perf")
    if path is None:
        raise TlstaxError(
            "perf is not here",
            "no program of that name is on the PATH",
            "Install the package linux-perf, or leave perf out of --collect",
            ExitCode.HOST,
        )
    return path


def has_cycles(perf: str) -> bool:
    """Whether this machine lets perf count CPU cycles: virtual machines often do not."""
    command = [perf, "stat", "-x", ",", "-e", "cycles", "true"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.returncode == 0 and said.stderr.split(",")[0].isdigit()


def read_data(data: int, window: schema.Window, root: str = "") -> list[schema.Row]:
    """The rows of a perf.data file that is open as `data`; its samples' window is numbered.

    A window without times gets those of its samples. Run it in a child: it needs much memory.
    """
    from tlstax.collectors.perf_rows import FIRST_ID, PerfRows, read_build_ids, read_frequency_hz
    from tlstax.collectors.stack_phases import StackPhases
    from tlstax.probes.definitions import load_definitions

    perf, path = find_perf(), f"/proc/self/fd/{data}"
    build_ids = read_build_ids(_ask([perf, "buildid-list", "-i", path], data))
    hz = read_frequency_hz(_ask([perf, "evlist", "-F", "-i", path], data))
    if not hz:
        raise _failed("its samples cannot be turned into time", "it was not told a frequency (-F)")
    rows = PerfRows(StackPhases(load_definitions()), build_ids, root)
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
    """Lines as perf prints them."""
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
            raise _failed("its file cannot be read", text.split("\n")[0] or "it gave no reason")


def _ask(command: list[str], data: int | None = None) -> str:
    pass_fds = () if data is None else (data,)
    said = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, pass_fds=pass_fds
    )
    if said.returncode != 0:
        raise _failed("it refuses", (said.stderr.strip() or "no reason given").split("\n")[0])
    return said.stdout


def _failed(what: str, why: str) -> TlstaxError:
    return TlstaxError(
        f"perf: {what}",
        why,
        "Try `perf record -p PID` by hand, or leave perf out of --collect",
        ExitCode.FAILED,
    )
