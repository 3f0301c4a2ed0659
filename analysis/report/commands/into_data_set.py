# SPDX-License-Identifier: GPL-2.0-only
"""Puts the captures of a round into the data set, and keeps those that it does not take."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import location
from tlstax.analysis.fleet.location import Location
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.fleet.rounds import Host, Outcome
from tlstax.collectors.capture.printable import output_error, visible

GIVE_UP: Final = 10
"""Hosts in a row that were recorded for a data set that cannot be written: no other is begun."""


class IntoDataSet:
    """Of one round."""

    def __init__(self, data: Location) -> None:
        self._data = data
        self.left: list[Outcome] = []
        """Recordings that are not in the data set, but in their captures."""
        self._in_a_row = 0

    @property
    def is_given_up(self) -> bool:
        """Whether no further host is to be begun."""
        return self._in_a_row >= GIVE_UP

    def add(self, outcome: Outcome) -> str:
        """Put a recording there; '' or why not."""
        try:
            self._add(outcome)
        except _NotWrittenError as error:
            self.left.append(outcome)
            self._in_a_row += 1
            return f"recorded, but {error}; it is in {visible(str(outcome.capture))}"
        except TlstaxError as error:
            return str(error)  # it is no capture, or a damaged one
        self._in_a_row = 0
        return ""

    def holds(self, path: Path) -> bool:
        """Whether a capture is the only place of a recording."""
        return any(one.capture == path for one in self.left)

    def add_again(self) -> Iterator[Host]:
        """Try once more what was left: the hosts that are in the data set now."""
        for outcome in self.left[:]:
            try:
                self._add(outcome)
            except TlstaxError:
                continue
            self.left.remove(outcome)
            yield outcome.host

    def error(self) -> TlstaxError:
        """The error (IO) for what is left."""
        first = self.left[0]
        name = ["--host", first.host.plain_name]
        name += ["--cluster", first.host.cluster] if first.host.cluster else []
        words = ["tlstax", "fleet", "add", str(first.capture), "--data", str(self._data), *name]
        are = "recording is" if len(self.left) == 1 else "recordings are"
        return TlstaxError(
            f"{len(self.left):,} {are} not in the data set {self._data}",
            "it could not be written, as the lines of these hosts say"
            + ("; further hosts were not begun" if self.is_given_up else ""),
            f"{first.capture.parent} has the captures; make room there, then: "
            f"{visible(shlex.join(words))}",
            ExitCode.IO,
        )

    def _add(self, outcome: Outcome) -> None:
        rolled = capture.read(outcome.capture, outcome.host.plain_name, outcome.host.cluster)
        try:
            location.add(rolled, self._data)
        except TlstaxError as error:
            raise _NotWrittenError(error) from error
        except OSError as error:
            raise _NotWrittenError(output_error(f"to {self._data}", error)) from error


class _NotWrittenError(TlstaxError):
    """The data set did not take a recording."""

    def __init__(self, error: TlstaxError) -> None:
        super().__init__(error.what, error.why, error.do, error.exit_code)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"
