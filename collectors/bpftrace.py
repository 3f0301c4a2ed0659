# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace as a child process: which one, what it can, one run of a program with JSON output."""

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.bpftrace_text import Rendered
from tlstax.collectors.child import die_with_parent
from tlstax.collectors.native import monotonic_ns
from tlstax.collectors.target import Target

OLDEST: Final = (0, 17)
TRACEFS: Final = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))
MAP_KEYS: Final = "65536"
_START_PATIENCE_S: Final = 30.0
_END_PATIENCE_S: Final = 30.0
_TICK: Final = "tlstax is attached"
_HARMLESS: Final = re.compile(r"RLIMIT_MEMLOCK|instruction boundary|^\s*$|Running as root")


@dataclass(frozen=True)
class Tool:
    """A bpftrace of this host."""

    path: str
    version: tuple[int, int]
    text: str  # as it says it
    offsets: bool  # it takes offsets into functions


def find_bpftrace(path: Path | None = None) -> Tool:
    """The one at `path`, or on the PATH. Raises TlstaxError (HOST) when none serves."""
    found = shutil.which(str(path) if path is not None else "bpftrace")
    if found is None:
        raise _unfit("bpftrace is not here", f"no program {path or 'bpftrace'} on the PATH")
    said = _ask(found, "--version")
    version = re.match(r"bpftrace v(\d+)\.(\d+)", said)
    if version is None:
        shown = (said.splitlines() or ["nothing"])[0][:80]
        raise _unfit(f"{found} is no bpftrace that tlstax knows", f"it calls itself {shown!r}")
    number = int(version[1]), int(version[2])
    if number < OLDEST:
        raise _unfit(f"{found} is too old", f"{said.strip()}, and 0.17 is the oldest that serves")
    # A build without bfd cannot check that an offset is the start of an instruction.
    offsets = re.search(r"\bbfd: yes", _ask(found, "--info")) is not None
    return Tool(found, number, said.strip(), offsets)


def require_tracefs(text: str) -> None:
    """Raise TlstaxError (HOST) if the program needs tracepoints and the host does not show them."""
    wanted = re.findall(r"^tracepoint:(\w+):(\w+)", text, re.MULTILINE)
    if wanted and not any(folder.is_dir() for folder in TRACEFS):
        raise TlstaxError(
            "tracepoints cannot be used",
            "tracefs is not mounted, where bpftrace looks their arguments up",
            "mount -t tracefs nodev /sys/kernel/tracing",
            ExitCode.HOST,
        )
    for group, name in dict.fromkeys(wanted):
        if not any((folder / group / name).is_dir() for folder in TRACEFS):
            raise TlstaxError(
                f"the tracepoint {group}:{name} cannot be used",
                "this kernel does not have it",
                "Choose another program, or the native engine (`tlstax attach`)",
                ExitCode.HOST,
            )


class Run:
    """One run of a program. Times are CLOCK_MONOTONIC ns, 0 until known."""

    def __init__(self, tool: Tool, rendered: Rendered, target: Target) -> None:
        self.tool = tool
        self.start_ns = self.end_ns = 0
        self._rendered = rendered
        self._target = target
        self._messages: list[dict[str, Any]] = []
        self._rest = b""

    def record(self, duration_s: float) -> list[dict[str, Any]]:
        """Run it for that long once it is attached; the messages of its JSON output.

        Raises TlstaxError when bpftrace refuses, dies, or says what is not JSON, and when the
        process ends (TARGET).
        """
        program = f'{self._rendered.text}\ninterval:ms:500 {{ printf("{_TICK}\\n"); }}\n'
        keys = {"BPFTRACE_MAP_KEYS_MAX": MAP_KEYS, "BPFTRACE_MAX_MAP_KEYS": MAP_KEYS}
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as complaints:
            source.write(program.encode())
            source.seek(0)
            unsafe = ["--unsafe"] if self._rendered.unsafe else []
            process = subprocess.Popen(
                [self.tool.path, *unsafe, "--no-warnings", "-f", "json", "-"], stdin=source,
                stdout=subprocess.PIPE, stderr=complaints, start_new_session=True,
                preexec_fn=die_with_parent, env=os.environ | keys,
            )  # fmt: skip
            try:
                self._follow(process, duration_s)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
            complaints.seek(0)
            said = complaints.read(8000).decode(errors="replace").splitlines()
        self._judge(process.returncode, [line for line in said if not _HARMLESS.search(line)])
        return self._messages

    def _follow(self, process: "subprocess.Popen[bytes]", duration_s: float) -> None:
        deadline = time.monotonic() + _START_PATIENCE_S
        asked = False
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(min(0.2, max(0.0, deadline - time.monotonic()))):
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    if not data:
                        break
                    if self._take(data) and not self.start_ns:
                        self.start_ns = monotonic_ns()
                        print(f"attached to {self._target.pid}", file=sys.stderr, flush=True)
                        deadline = time.monotonic() + duration_s
                gone = not Path(f"/proc/{self._target.pid}").exists()
                if self.start_ns and not asked and (gone or time.monotonic() >= deadline):
                    asked = True
                    self.end_ns = monotonic_ns()
                    process.send_signal(signal.SIGINT)
                    deadline = time.monotonic() + _END_PATIENCE_S
        if process.stdout is not None and not asked and process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_PATIENCE_S)  # it takes its probes off after its last word
        except subprocess.TimeoutExpired:
            process.kill()
        self._ended = asked

    def _take(self, data: bytes) -> bool:
        """Keep the messages of what was read; whether the program is known to be attached."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        attached = False
        for line in lines:
            if not line.strip():
                continue
            try:
                message = json.loads(line.decode(errors="replace"), strict=False)
            except ValueError:
                message = None
            if not isinstance(message, dict) or "type" not in message:
                shown = line[:80].decode(errors="replace")
                raise _failed("what it says is not understood", f"it printed {shown!r}")
            if message["type"] == "printf" and message.get("data") == f"{_TICK}\n":
                attached = True
            else:
                self._messages.append(message)
        return attached

    def _judge(self, code: int, said: list[str]) -> None:
        if self.start_ns and self._ended and code == 0:
            return
        if not Path(f"/proc/{self._target.pid}").exists():
            raise TlstaxError(
                f"process {self._target.pid} ended", "the program has nothing to watch",
                "Start it again for the new process", ExitCode.TARGET,
            )  # fmt: skip
        errors = [line for line in said if "ERROR" in line] or said
        raise _failed(
            "it died" if self.start_ns else "it did not start",
            errors[0] if errors else f"it ended with status {code} and gave no reason",
        )


def _ask(path: str, option: str) -> str:
    try:
        said = subprocess.run(
            [path, option], capture_output=True, text=True, errors="replace", check=False,
            timeout=_START_PATIENCE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unfit(f"{path} cannot be run", str(error)) from None
    return said.stdout + said.stderr


def _unfit(what: str, why: str) -> TlstaxError:
    do = "Install the package bpftrace, or name one with --bpftrace PATH"
    return TlstaxError(what, why, do, ExitCode.HOST)


def _failed(what: str, why: str) -> TlstaxError:
    do = "Try by hand: `tlstax probes print NAME --pid PID` writes the program"
    return TlstaxError(f"bpftrace: {what}", why, do, ExitCode.FAILED)
