# SPDX-License-Identifier: GPL-2.0-only
"""Block devices, second by second, from the JSON of `iostat` (sysstat).

iostat writes one object per device and line; each gets the time of its arrival, on the clock of
the capture. If a version writes another format, the source ends with an error.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.known_sources import IOSTAT
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.recording.source_set import Source
from tlstax.collectors.sources.declaration import Asked, Declaration

_NAMES: Final = {
    "r/s": ("reads_per_s", 1.0), "w/s": ("writes_per_s", 1.0), "f/s": ("flushes_per_s", 1.0),
    "rkB/s": ("read_bytes_per_s", 1024.0), "wkB/s": ("write_bytes_per_s", 1024.0),
    "r_await": ("read_await_ns", 1e6), "w_await": ("write_await_ns", 1e6),
    "f_await": ("flush_await_ns", 1e6), "aqu-sz": ("queue_mean_count", 1.0),
    "util": ("busy_ratio", 0.01),
}  # fmt: skip
_GRACE_S: Final = 2.0
_UNPARSED_MAX: Final = 65536
"""Bytes without an end of line after which the output is taken for another format."""


class Iostat:
    """One `iostat` child process during the recording."""

    name = "iostat"
    warning = ""

    def __init__(self, program: str = "iostat") -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._seen = False  # a device was read, or a failure was reported
        self._last_ns = 0

    def start(self) -> str:
        """Start it. Raises TlstaxError (HOST) if it is not installed or does not run."""
        path = shutil.which(self._program)
        if path is None:
            raise TlstaxError(
                f"{self._program} not found",
                "the package sysstat is not installed",
                "Install it, or collect procfs, which reads the same counters from /proc",
                ExitCode.HOST,
            )
        environment = {"PATH": os.defpath, "LC_ALL": "C", "S_TIME_FORMAT": "ISO"}
        said = subprocess.run(
            [path, "-V"], capture_output=True, text=True, env=environment, check=False
        )
        command = [path, "-d", "-x", "-y", "-o", "JSON", "1"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
        os.set_blocking(self._output(), False)
        self._last_ns = monotonic_ns()
        return (said.stdout or said.stderr).partition("\n")[0] or "unknown version"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """The devices of the seconds that ended since the last poll."""
        ended = self._fill()
        rows = self._parse(now_ns)
        if ended:
            last = self._pending[-200:].decode(errors="replace").strip()
            raise self._broken(f"iostat ended: {last}")
        if len(self._pending) > _UNPARSED_MAX:
            raise self._broken("its output is not the expected JSON")
        return rows

    def stop(self) -> Iterable[schema.Row]:
        """End it."""
        process, self._process = self._process, None
        if process is None or process.stdout is None:
            return ()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()
        if not self._seen and self._pending:
            raise self._broken("its output holds no device")
        return ()

    def _output(self) -> int:
        if self._process is None or self._process.stdout is None:
            raise self._broken("it is not running")
        return self._process.stdout.fileno()

    def _fill(self) -> bool:
        """Read what is in the pipe; True if the child has ended."""
        while True:
            try:
                received = os.read(self._output(), 65536)
            except BlockingIOError:
                return False
            if not received:
                return True
            self._pending += received

    def _parse(self, now_ns: int) -> list[schema.Row]:
        *lines, self._pending = self._pending.split(b"\n")
        rows: list[schema.Row] = []
        interval_ns = now_ns - self._last_ns
        for line in lines:
            text = line.strip().rstrip(b",")
            if not text.startswith(b'{"disk_device"'):
                continue
            rows += self._device(text, now_ns, interval_ns)
            self._seen = True
        if rows:
            self._last_ns = now_ns
        return rows

    def _device(self, text: bytes, now_ns: int, interval_ns: int) -> list[schema.Row]:
        try:
            values: dict[str, Any] = json.loads(text)
            return [
                schema.Metric(
                    now_ns, interval_ns, self.name, str(values["disk_device"]), name,
                    float(values[key]) * scale,
                )
                for key, (name, scale) in _NAMES.items()
                if values.get(key)
            ]  # fmt: skip
        except (ValueError, TypeError) as error:
            raise self._broken("a line is not the expected JSON") from error

    def _broken(self, why: str) -> TlstaxError:
        self._seen = True  # reported once
        return TlstaxError(
            "cannot read the output of iostat",
            why,
            "Collect procfs instead, which reads the same counters from /proc",
            ExitCode.FAILED,
        )


def _open(asked: Asked) -> Sequence[Source]:
    return (Iostat(),)


SOURCE: Final = Declaration(
    name="iostat",
    summary="block devices, from its JSON",
    needs="sysstat",
    open=_open,
    panels=IOSTAT,
)
