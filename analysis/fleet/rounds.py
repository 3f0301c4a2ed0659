# SPDX-License-Identifier: GPL-2.0-only
"""A round of recordings over ssh: many hosts, some at a time, each by a `tlstax attach --ssh`.

A recording is a process of its own, so a host that is dead, slow or strange costs its line. No
process has a terminal: ssh asks for nothing, and a host that would ask is one that failed.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import WARNING, visible

PROGRAM: Final = (sys.executable, "-m", "tlstax")
PATIENCE_S: Final = 300.0
"""How long a host may take beyond the recording itself: login, files of a new build, planning."""
_END_S: Final = 30.0
"""After an interrupt: a recording ends in order, or a login is given up."""
_STEP_S: Final = 0.1
_SAID_BYTES: Final = 16_000
_NAME_MOST: Final = 50
"""Letters of a host in the name of its capture: a file's name has 255 bytes at most."""


class Host(NamedTuple):
    """A host of the round."""

    name: str
    """As ssh takes it: [USER@]HOST."""
    cluster: str

    @property
    def plain_name(self) -> str:
        """Its name in the data set."""
        return self.name.removeprefix("ssh://").rpartition("@")[2].rstrip("/")


class Outcome(NamedTuple):
    """What became of a host."""

    host: Host
    capture: Path
    why: str
    """Why it was not recorded, or in part only, if it has a capture; '': it was, to its end."""
    warnings: Sequence[str] = ()
    """What was said of it that is no reason."""


@dataclass(frozen=True)
class Round:
    """How a round is made."""

    hosts: Sequence[Host]
    options: Sequence[str]
    """Of `tlstax attach`, without the host and the output."""
    for_s: float
    parallel: int
    per_cluster: int
    jitter_s: float


@dataclass
class _Running:
    host: Host
    capture: Path
    process: "subprocess.Popen[bytes]"
    said: IO[bytes]
    end_s: float
    is_interrupted: bool = False
    is_late: bool = False


def hosts_in(path: Path) -> list[Host]:
    """The hosts of a file: [USER@]HOST, then maybe a cluster, on each line; # begins a comment.

    Raises TlstaxError (USAGE) naming the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _refuse(path, str(getattr(error, "strerror", "") or error)) from error
    found: dict[str, Host] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2 or words[0].startswith("-"):
            raise _refuse(path, f"line {number} is not [USER@]HOST [CLUSTER]")
        host = Host(words[0], words[1] if len(words) > 1 else "")
        name = host.plain_name
        if name in found:
            raise _refuse(path, f"line {number} names {visible(name)} again")
        found[name] = host
    if not found:
        raise _refuse(path, "it names no host")
    return list(found.values())


def record(
    wanted: Round, folder: Path, should_stop: Callable[[], bool]
) -> Generator[Outcome, None, None]:
    """The outcome of each host as it ends; captures are in `folder`. Close it: that ends the rest.

    When it is to stop, recordings end in order, and hosts that were not begun are left out.
    """
    waiting = [(random.random() * wanted.jitter_s, host) for host in wanted.hosts]
    waiting.sort(key=lambda one: one[0])
    begun_s, running = time.monotonic(), list[_Running]()
    try:
        while waiting or running:
            if should_stop():
                waiting = []
                for one in running:
                    _interrupt(one)
            clusters = Counter(one.host.cluster for one in running)
            for due_s, host in waiting[:]:
                is_free = not host.cluster or clusters[host.cluster] < wanted.per_cluster
                is_due = time.monotonic() - begun_s >= due_s
                if len(running) < wanted.parallel and is_free and is_due:
                    waiting.remove((due_s, host))
                    clusters[host.cluster] += 1
                    running.append(_start(host, wanted, folder))
            for one in [one for one in running if _is_over(one)]:
                running.remove(one)
                yield _outcome(one)
            time.sleep(_STEP_S)
    finally:
        for one in running:
            _interrupt(one)
        for one in running:
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.0, one.end_s - time.monotonic()))
            _kill(one)
            one.said.close()


def _start(host: Host, wanted: Round, folder: Path) -> _Running:
    # No name of an earlier round, whatever was removed of it, and none of this one.
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = wanted.hosts.index(host)
    name = host.plain_name.replace("/", "_")[:_NAME_MOST]
    capture = folder / f"{stamp}-{number}-{name}.tlstax"
    said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its host
    arguments = ["attach", "--ssh", host.name, "--quiet", *wanted.options]
    try:
        process = subprocess.Popen(
            [*PROGRAM, *arguments, "--output", str(capture)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},  # no window for each host
        )
    except BaseException:
        said.close()
        raise
    return _Running(host, capture, process, said, time.monotonic() + wanted.for_s + PATIENCE_S)


def _interrupt(one: _Running) -> None:
    """As Ctrl-C, once: what it has begun is ended in order, and it removes its files."""
    if not one.is_interrupted:
        one.is_interrupted = True
        one.end_s = min(one.end_s, time.monotonic()) + _END_S
        one.process.send_signal(signal.SIGINT)


def _kill(one: _Running) -> None:
    """With its ssh, if it still runs."""
    if one.process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def _is_over(one: _Running) -> bool:
    if one.process.poll() is None and time.monotonic() > one.end_s:
        if one.is_interrupted:
            _kill(one)
        else:
            one.is_late = True
            _interrupt(one)
    return one.process.poll() is not None


def _outcome(one: _Running) -> Outcome:
    with one.said as said:
        size = said.seek(0, 2)
        if one.is_late:
            size += said.write(b"\nit took too long\n")
        said.seek(max(0, size - _SAID_BYTES))
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    warnings = [visible(line) for line in lines if line.startswith(WARNING)]
    lines = [line for line in lines if not line.startswith(WARNING)]
    why = ""
    if one.process.returncode or not one.capture.exists():
        last = visible(lines[-1].removeprefix("tlstax: ")) if lines else ""
        # What it says of the capture's place is for those who keep it.
        last = last.partition(f". {visible(str(one.capture))} is complete")[0]
        why = last or f"it ended with status {one.process.returncode}"
    return Outcome(one.host, one.capture, why, warnings)


def _refuse(path: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot read hosts from {path}",
        why,
        "Give a file with a [USER@]HOST, and maybe its cluster, on each line",
        ExitCode.USAGE,
    )
