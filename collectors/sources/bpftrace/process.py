# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace as a child process: its version and features, one run of a program with JSON output."""

import contextlib
import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.tool_process import how_it_ended, reap
from tlstax.collectors.host.tracefs import prepare_tool, require_tracepoints
from tlstax.collectors.sources.bpftrace.program_text import Rendered

OLDEST: Final = (0, 17)
MAP_KEYS: Final = "65536"
_ANSWER_PATIENCE_S: Final = 30.0
_PATIENCE_S: Final = 30.0
"""Limit for a bpftrace that is idle; one that compiles or looks up names may take longer."""
_QUIET_END_S: Final = 5.0
_LOOK_S: Final = 0.2
_CACHES_BY_ITSELF: Final = (0, 18)
_TICK: Final = "tlstax is attached"
_HARMLESS: Final = re.compile(r"RLIMIT_MEMLOCK|instruction boundary|^\s*$|Running as root")


@dataclass(frozen=True)
class Tool:
    """An installed bpftrace."""

    path: str
    version: tuple[int, int]
    text: str  # as it prints it
    offsets: bool  # it accepts offsets into functions


def find_bpftrace(path: Path | None = None) -> Tool:
    """The one at `path`, or on the PATH. Raises TlstaxError (HOST) if it is missing or too old."""
    found = shutil.which(str(path) if path is not None else "bpftrace")
    if found is None:
        raise _unfit("bpftrace not found", f"no program {path or 'bpftrace'} on the PATH")
    said = _ask(found, "--version")
    version = re.match(r"bpftrace v(\d+)\.(\d+)", said)
    if version is None:
        shown = (said.splitlines() or ["nothing"])[0][:80]
        raise _unfit(f"{found} is no known version of bpftrace", f"its --version prints {shown!r}")
    number = int(version[1]), int(version[2])
    if number < OLDEST:
        raise _unfit(f"{found} is too old", f"{said.strip()}, and 0.17 is the oldest that works")
    # A build without bfd cannot check that an offset is the start of an instruction.
    offsets = re.search(r"\bbfd: yes", _ask(found, "--info")) is not None
    return Tool(found, number, said.strip(), offsets)


def require_tracepoints_of(rendered: Iterable[Rendered]) -> None:
    """Raise TlstaxError (HOST) if the programs need tracepoints that bpftrace cannot attach to."""
    texts = "\n".join(one.text for one in rendered)
    found = re.findall(r"^tracepoint:(\w+:\w+)", texts, re.MULTILINE)
    require_tracepoints(list(dict.fromkeys(found)))


class Run:
    """One run of a program. Times are CLOCK_MONOTONIC ns, 0 until known."""

    def __init__(self, tool: Tool, rendered: Rendered, pid: int) -> None:
        self.tool = tool
        self.rendered = rendered
        self.start_ns = self.end_ns = 0
        self._pid = pid
        self._messages: list[dict[str, Any]] = []
        self._rest = b""
        self._stuck = False
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        self._patience: Patience

    def record(self, duration_s: float) -> list[dict[str, Any]]:
        """Run it for that long once it has attached, or until SIGINT; return its messages.

        Raises TlstaxError if bpftrace refuses, dies or prints something other than JSON, and if
        the process ends (TARGET).
        """
        try:
            self.spawn()
            self.wait_attached()
            with _interrupts() as interrupts:
                print(f"attached to {self._pid}", file=sys.stderr, flush=True)
                deadline = time.monotonic() + duration_s
                while not interrupts and Path(f"/proc/{self._pid}").exists():
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or not self.pump(min(_LOOK_S, left_s)):
                        break
            return self.finish()
        finally:
            self.close()

    def spawn(self) -> None:
        """Start it without waiting until it has attached."""
        program = f'{self.rendered.text}\ninterval:ms:500 {{ printf("{_TICK}\\n"); }}\n'
        settings = {"BPFTRACE_MAP_KEYS_MAX": MAP_KEYS, "BPFTRACE_MAX_MAP_KEYS": MAP_KEYS}
        if self.tool.version < _CACHES_BY_ITSELF:
            # Without it bpftrace reads the symbols of the process again for every frame: minutes at
            # the end. They can be cached, as all stacks are of one process.
            settings["BPFTRACE_CACHE_USER_SYMBOLS"] = "1"
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        unsafe = ["--unsafe"] if self.rendered.unsafe else []
        with tempfile.TemporaryFile() as source:
            source.write(program.encode())
            source.seek(0)
            self._process = subprocess.Popen(
                [self.tool.path, *unsafe, "--no-warnings", "-f", "json", "-"], stdin=source,
                stdout=subprocess.PIPE, stderr=self._complaints, start_new_session=True,
                preexec_fn=prepare_tool, env=os.environ | settings,
            )  # fmt: skip
        self._patience = Patience(self._process.pid, _PATIENCE_S)

    def wait_attached(self) -> None:
        """Wait until it has attached. Raises TlstaxError if it refuses or dies."""
        while not self.start_ns:
            if not self.pump(_LOOK_S) or self._gives_up():
                self.finish()

    def pump(self, wait_s: float) -> bool:
        """Wait for output and keep it; False once it has closed its output."""
        process = self._process
        if process is None or process.stdout is None:
            return False
        while select.select([process.stdout], [], [], wait_s)[0]:
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return False
            self._patience.renew()
            if self._take(data) and not self.start_ns:
                self.start_ns = monotonic_ns()
                return True
            wait_s = 0.0
        return True

    def interrupt(self) -> None:
        """Ask it to print its results and to end; `finish` waits for that."""
        process, is_on = self._process, self.start_ns and not self.end_ns
        if process is not None and is_on and process.poll() is None:
            self.end_ns = monotonic_ns()
            process.send_signal(signal.SIGINT)

    def finish(self) -> list[dict[str, Any]]:
        """All of its messages. Raises TlstaxError as `record` does."""
        process = self._process
        if process is None:
            return self._messages
        self.interrupt()
        self._patience.renew()
        told_at = time.monotonic() + _QUIET_END_S
        while self.pump(_LOOK_S) and not self._gives_up():
            if time.monotonic() >= told_at:
                told_at = math.inf
                said = "bpftrace is looking up function names; press Ctrl-C to stop it"
                print(said, file=sys.stderr, flush=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)  # it removes its probes after its last output
        reap(process)
        self._judge(process)
        return self._messages

    def close(self) -> None:
        """Kill it if it is still running, and close its files."""
        process, self._process = self._process, None
        if process is not None:
            reap(process)
            if process.stdout is not None:
                process.stdout.close()
        if self._complaints is not None:
            self._complaints.close()
            self._complaints = None

    def _gives_up(self) -> bool:
        """Whether it is stuck; then it is killed."""
        if self._process is not None and self._patience.is_over():
            self._stuck = True
            self._process.kill()
        return self._stuck

    def _take(self, data: bytes) -> bool:
        """Keep the messages in the data; True if they show that the program has attached."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        attached = False
        for line in lines:
            if not line.strip():
                continue
            try:
                message = json.loads(
                    line.decode(errors="replace"), strict=False, object_pairs_hook=add_up
                )
            except ValueError:
                message = None
            if not isinstance(message, dict) or "type" not in message:
                shown = line[:80].decode(errors="replace")
                raise _failed("cannot parse its output", f"it printed {shown!r}")
            if message["type"] == "printf" and message.get("data") == f"{_TICK}\n":
                attached = True
            else:
                self._messages.append(message)
        return attached

    def _judge(self, process: "subprocess.Popen[bytes]") -> None:
        if self.end_ns and process.returncode == 0:
            return
        if self._stuck:
            raise _failed(
                "it did not end" if self.end_ns else "it did not start",
                f"for {_PATIENCE_S:.0f} s it wrote nothing and used no CPU time",
            )
        if not Path(f"/proc/{self._pid}").exists():
            raise TlstaxError(
                f"process {self._pid} ended", "the program has no process to record",
                "Start it again for the new process", ExitCode.TARGET,
            )  # fmt: skip
        said: list[str] = []
        if self._complaints is not None:
            self._complaints.seek(0)
            said = self._complaints.read(8000).decode(errors="replace").splitlines()
        said = [line for line in said if not _HARMLESS.search(line)]
        errors = [line for line in said if "ERROR" in line] or said
        raise _failed(
            "it died" if self.start_ns else "it did not start",
            errors[0] if errors else f"it ended {how_it_ended(process)} without a message",
        )


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The first SIGINT in the block is only noted, so that no data is lost; later ones act."""
    found: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _frame: FrameType | None) -> None:
        found.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


class Patience:
    """Is over when a process has written nothing and used no CPU time for that long."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._limit_s = limit_s
        self._cpu: list[str] = []
        self.renew()

    def renew(self) -> None:
        """Restart the limit: the process wrote something."""
        self._since_s = time.monotonic()

    def is_over(self) -> bool:
        """Also check its CPU time (proc(5) stat, fields 14 and 15)."""
        with contextlib.suppress(OSError):
            cpu = self._stat.read_text().rpartition(")")[2].split()[11:13]
            if cpu != self._cpu:
                self._cpu = cpu
                self.renew()
        return time.monotonic() - self._since_s > self._limit_s


def add_up(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which a key can occur several times: its values are added up.

    bpftrace 0.17 stores equal stacks of several threads under separate keys, but prints equal keys.
    """
    sums: dict[str, Any] = {}
    for key, value in pairs:
        before = sums.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and before.keys() == value.keys():
            value = {name: before[name] + value[name] for name in value}
            if {"count", "total", "average"} <= value.keys():
                value["average"] = value["total"] // max(1, value["count"])
        elif isinstance(before, int) and isinstance(value, int):
            value += before
        sums[key] = value
    return sums


def _ask(path: str, option: str) -> str:
    try:
        said = subprocess.run(
            [path, option], capture_output=True, text=True, errors="replace", check=False,
            timeout=_ANSWER_PATIENCE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unfit(f"{path} cannot be run", str(error)) from None
    return said.stdout + said.stderr


def _unfit(what: str, why: str) -> TlstaxError:
    do = "Install the package bpftrace (with `probes run`, or give --bpftrace PATH)"
    return TlstaxError(what, why, do, ExitCode.HOST)


def _failed(what: str, why: str) -> TlstaxError:
    do = "Run it by hand: `tlstax probes print NAME --pid PID` prints the program"
    return TlstaxError(f"bpftrace: {what}", why, do, ExitCode.FAILED)
