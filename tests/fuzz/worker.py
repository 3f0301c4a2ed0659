# SPDX-License-Identifier: GPL-2.0-only
"""Run tlstax on mutants in one process with limits; started by `driver`.

    python tests/fuzz/worker.py KIND FOLDER FIRST COUNT SHORT

KIND is captures, definitions, imports or streams. For every command one line to standard output,
`begin` before and `end` after it, so that the driver knows which one ended the process: by an
exception that is no TlstaxError (the traceback is on standard error), by SIGPROF (CPU time), by
SIGALRM (it sleeps, or its host is very busy), or by the kernel's limit of memory.
"""

import contextlib
import io
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Final

from tlstax import ExitCode
from tlstax.collectors.capture.printable import harmless
from tlstax.tests.fuzz.kinds import KINDS, Kind
from tlstax.tests.fuzz.planted import Planted

MEMORY_BYTES: Final = 1 << 30
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*m")
_ERROR: Final = re.compile(r"tlstax: \S[^\n]*: [^\n]*\S\. [^\n]*\S\.\n")


def say(*words: object) -> None:
    """A line for the driver, whatever sys.stdout is."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Output(io.StringIO):
    """What a command printed; text that a file of UTF-8 could not hold is a fault as well."""

    buffer: io.BytesIO

    def __init__(self) -> None:
        super().__init__()
        self.buffer = io.BytesIO()


def fault(command: list[str], status: int, out: str, err: str) -> str:
    """What is wrong with how a command ended; "" if nothing is."""
    plain = _COLOURS.sub("", out) if "FORCE_COLOR" in os.environ else out
    if "Traceback" in err:
        return "a traceback"
    for name, text in (("output", plain), ("errors", err)):
        if harmless(text) != text:
            return f"control characters in its {name}"
    if status not in {int(code) for code in ExitCode}:
        return f"exit status {status}"
    errors = [line for line in err.splitlines(keepends=True) if line.startswith("tlstax: ")]
    if status not in (ExitCode.OK, ExitCode.FAILED) and not (
        len(errors) == 1 and _ERROR.fullmatch(errors[0])
    ):
        return f"status {status} with {len(errors)} errors: {err[:300]!r}"
    files = [Path(path) for path in command if path.startswith("/") and "made" in path]
    for path in files:
        if path.suffix in (".md", ".html", ".svg", ".json", ".folded") and path.exists():
            text = path.read_text(encoding="utf-8")
            if harmless(text) != text:
                return f"control characters in {path.name}"
    return ""


def run(chosen: Kind, number: int, index: int, command: list[str]) -> None:
    """One command within the limits."""
    say("begin", number, index)
    out, err = Output(), io.StringIO()
    colours = index % 2 == 1
    os.environ.pop("FORCE_COLOR", None)
    if colours:
        os.environ["FORCE_COLOR"] = "1"
    signal.setitimer(signal.ITIMER_PROF, chosen.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, chosen.wall_s)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = chosen.run(command)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    wrong = fault(command, status, out.getvalue(), err.getvalue())
    say("fault" if wrong else "end", number, index, status, wrong)


def work(kind: str, folder: Path, first: int, count: int, is_short: bool) -> None:
    """All commands of all mutants of the numbers; of `is_short` a few for each."""
    chosen = Planted(folder) if kind == "planted" else KINDS[kind](folder)
    for number in range(first, first + count):
        what = chosen.make(number)
        say("mutant", number, what.encode("ascii", "backslashreplace").decode().replace("\n", " "))
        for index, command in enumerate(chosen.commands(number, is_short)):
            run(chosen, number, index, command)
        chosen.clear()


def start() -> None:
    """Set the limits and work."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kind, folder, first, count, is_short = sys.argv[1:6]
    work(kind, Path(folder), int(first), int(count), is_short == "1")


if __name__ == "__main__":
    start()
