# SPDX-License-Identifier: GPL-2.0-only
"""Findings and stacks of an hour, from its raw windows, in a process of its own.

What is looked up and judged needs memory that a watch should not keep. `python -m
tlstax.analysis.fleet.continuous.raw_hour` reads a pickled RawHour from standard input and writes
pickled rows to standard output.
"""

import os
import pickle
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import Row
from tlstax.analysis.fleet.rollup.capture import explained
from tlstax.analysis.fleet.rollup.recording import Recording
from tlstax.analysis.rows import tables as capture_tables
from tlstax.collectors.capture.reader import CaptureReader

MODULE: Final = "tlstax.analysis.fleet.continuous.raw_hour"
MEMORY_MOST: Final = 1536 << 20
"""Address space of the process, so that the server keeps its memory."""
_LAST_OF_ALL: Final = 19  # nice
_UNREADABLE: Final = (
    *(pickle.UnpicklingError, AttributeError, EOFError, ImportError),
    *(LookupError, TypeError, ValueError),
)
"""What pickle raises for an answer that another version of tlstax wrote, or that was cut."""

Rows = dict[type[Row], list[Row]]


class RawHour(NamedTuple):
    """A capture with the windows of a source."""

    capture: Path
    of: Recording


class Explaining:
    """The process that explains one hour."""

    def __init__(self, hour: RawHour) -> None:
        """Begin. Raises OSError where no process or file can be made."""
        self.hour = hour
        self._answer: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by rows()
        try:
            with tempfile.TemporaryFile() as asked:
                pickle.dump(hour, asked)
                asked.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", MODULE],
                    stdin=asked,
                    stdout=self._answer,
                    process_group=0,
                )
        except OSError:
            self._answer.close()
            raise

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait(self, seconds: float) -> None:
        """Until it has ended; it is killed after this time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def rows(self) -> Rows | None:
        """The rows by table; None: it failed, and said why on standard error, or is not readable.

        Not readable is what another version answers, if tlstax was upgraded while the watch runs.
        """
        with self._answer as answer:
            if self._process.wait():
                return None
            answer.seek(0)
            try:
                made: Rows = pickle.load(answer)  # written by our own child
            except _UNREADABLE:
                return None
            return made


def explain(hour: RawHour) -> Rows:
    """The rows of an hour. Raises TlstaxError (CAPTURE)."""
    with CaptureReader.open(hour.capture) as reader:
        return explained(capture_tables.load(reader), hour.of)


def _main() -> int:
    os.nice(_LAST_OF_ALL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))
    hour: RawHour = pickle.load(sys.stdin.buffer)  # written by our own parent
    try:
        made = explain(hour)
    except TlstaxError as error:
        print(f"tlstax: {error}", file=sys.stderr)
        return int(error.exit_code)
    except MemoryError:
        limit = f"{MEMORY_MOST >> 20} MB are not enough for the raw windows"
        print(f"tlstax: {hour.capture} cannot be explained: {limit}", file=sys.stderr)
        return int(ExitCode.HOST)
    pickle.dump(made, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    # Under its own name, or what was pickled would be of another class.
    from tlstax.analysis.fleet.continuous import raw_hour as itself

    sys.exit(itself._main())
