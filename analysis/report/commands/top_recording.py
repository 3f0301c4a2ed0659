# SPDX-License-Identifier: GPL-2.0-only
"""The `tlstax attach` behind a live display: started, listened to, ended with the display."""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

_SCRATCH: Final = "tlstax-top-"  # then the pid of the display
_ATTACHED: Final = re.compile(r"tlstax: attached to (\d+)\b")
_STOP_S: Final = 20.0


class Words:
    """What a program says, line by line, as it comes."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._queue = SimpleQueue[str | None]()
        self._thread = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._thread.start()

    def _read(self, lines: Iterable[str]) -> None:
        with contextlib.suppress(ValueError):  # it was closed
            for line in lines:
                self._queue.put(line)
        self._queue.put(None)

    def await_attached(self) -> int | None:
        """The first process that it is attached to; None: it ended. Prints what comes before."""
        while (line := self._queue.get()) is not None:
            if found := _ATTACHED.match(line):
                return int(found[1])
            print(line, end="", file=sys.stderr)
        return None

    def take(self) -> list[str]:
        """The lines that have come since."""
        found: list[str] = []
        with contextlib.suppress(Empty):
            while (line := self._queue.get_nowait()) is not None:
                found.append(line.rstrip("\n"))
        return found

    def rest(self) -> list[str]:
        """The lines up to its end."""
        self._thread.join()
        return self.take()


class Attached:
    """A recorder that is attached, in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", words: Words, pid: int) -> None:
        self._process = process
        self._words = words
        self.pid = pid
        """The process that it is attached to, the first of several."""
        self.said: list[str] = []
        """What it said since."""

    @property
    def pids(self) -> set[int]:
        """The processes that it said it is attached to."""
        found = (_ATTACHED.match(line) for line in self.said)
        return {self.pid, *(int(one[1]) for one in found if one)}

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        self.said += self._words.take()
        return self._process.poll() is not None


def found_by(options: argparse.Namespace) -> list[str]:
    """The options of `tlstax attach` that find a process."""
    given = {kind: getattr(options, kind) for kind in ("name", "unit", "container", "pod")}
    return [word for kind, value in given.items() if value for word in (f"--{kind}", value)]


def record(
    options: argparse.Namespace,
    who: list[str],
    scratch_name: str,
    show: Callable[[Path, Attached], object],
) -> int:
    """Attach to `who`, show what is written until `show` returns, end it; its exit code."""
    _remove_stale()
    said: list[str] = []
    with (
        _ctrl_z_ignored(),
        tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-") as scratch,
    ):
        output = options.output or Path(scratch) / scratch_name
        command = [sys.executable, "-m", "tlstax", "attach", *who, "-o", str(output), "--quiet"]
        command += ["--force"] if options.force else []
        command += _as_of_attach(options)
        # Ctrl-C is ours, and we end it. But ssh asks on the terminal, if it has to.
        process: subprocess.Popen[str] = options.start_with_us(
            command, own_session=not options.ssh, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        words = Words(process.stderr)
        attached = None
        try:
            pid = words.await_attached()
            if pid is None:
                return int(process.wait())
            attached = Attached(process, words, pid)
            show(output, attached)
        except KeyboardInterrupt:
            pass  # as good a way to quit as q
        finally:
            _stop(process)
            said = [*(attached.said if attached else []), *words.rest()]
    for line in said:
        if options.output is not None or not line.startswith("tlstax: detached"):
            print(line, file=sys.stderr)
    return max(process.returncode, 0)


@contextlib.contextmanager
def _ctrl_z_ignored() -> Iterator[None]:
    """Here and in what is started: probes would stay attached while nobody watches."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


def _as_of_attach(options: argparse.Namespace) -> list[str]:
    """The options that `tlstax attach` is given as they are."""
    words = ["--sudo"] if options.sudo else []
    words += ["--all"] if options.all else []
    for name in ("level", "budget", "definitions", "ssh", "remote-dir", "remote-recorder"):
        value = getattr(options, name.replace("-", "_"))
        words += [f"--{name}", value] if value else []
    return words + [word for hazard in options.accept for word in ("--accept", hazard)]


def _remove_stale() -> None:
    """Remove what displays of this user left that were killed by SIGKILL."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        pid = path.name.removeprefix(_SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):  # gone meanwhile
            is_ours = path.lstat().st_uid == os.geteuid()
            if is_ours and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)


def _stop(process: "subprocess.Popen[str]") -> None:
    """End the recorder as Ctrl-C would, so that it finishes its capture."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
