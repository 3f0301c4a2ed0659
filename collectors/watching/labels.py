# SPDX-License-Identifier: GPL-2.0-only
"""Which server of a watch has which label. A label is a host of the data set.

So it never passes from one server to another that ran beside it. Two that have a right to the same
short label get long ones; two that were started in the same way cannot be told apart, and the
second one stays refused as long as its process runs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.watching.server_labels import (
    Marks,
    long_label,
    server_marks,
    short_label,
    started_at,
)

_Process = tuple[int, str]


class NotYetError(Exception):
    """A process has ended: this one, or the one that had the label and is still being read."""


class Labels:
    """As long as a watch runs, or until a label is forgotten."""

    def __init__(self) -> None:
        self._of: dict[Marks, str] = {}
        self._holders: dict[str, Marks] = {}  # who got a label last
        self._divided: set[str] = set()  # short labels that several servers have a right to
        self._refused: defaultdict[Marks, set[_Process]] = defaultdict(set)

    def is_refused(self, pid: int) -> bool:
        """Whether a process has no label, which was told, and gets none as long as it runs."""
        return any((pid, started_at(pid)) in found for found in self._refused.values())

    def seen_together(self, pids: Sequence[int]) -> None:
        """These run at the same time, so they are as many servers."""
        all_marks = {server_marks(pid) for pid in pids}
        shorts = [short_label(marks) for marks in all_marks]
        self._divided |= {short for short in shorts if shorts.count(short) > 1}

    def of(self, pid: int, recorded: Mapping[str, int]) -> str:
        """The label of a process; `recorded`: the pids of those that are recorded, by label.

        Raises NotYetError, and TlstaxError (TARGET) once: from then on it `is_refused`.
        """
        marks = server_marks(pid)
        if not started_at(pid):
            raise NotYetError
        label = self._of.get(marks, short_label(marks))
        if label in recorded:
            if not started_at(recorded[label]):
                raise NotYetError
            if self._holders.get(label) == marks:
                other = f"process {recorded[label]}"
                raise self._refusal(pid, marks, f"{other} was started in the same way: {label}")
            self._divided.add(label)
            self._of.pop(marks, None)
        if marks not in self._of:
            label = self._new_label(pid, marks)
        elif any(started_at(one) != start for one, start in self._refused[marks]):
            why = "two servers were started in the same way, and both have ended"
            raise self._refusal(pid, marks, f"{why}: {label}")
        self._of[marks] = label
        self._holders[label] = marks
        return label

    def _new_label(self, pid: int, marks: Marks) -> str:
        short, long = short_label(marks), long_label(marks)
        if short not in self._divided:
            return short  # also if its last server was started in another way
        if self._holders.get(long, marks) == marks:
            return long
        raise self._refusal(pid, marks, f"nothing else tells both from each other: {long}")

    def _refusal(self, pid: int, marks: Marks, why: str) -> TlstaxError:
        self._refused[marks].add((pid, started_at(pid)))
        return TlstaxError(
            f"process {pid} cannot be told from another server and is not recorded",
            why.removesuffix(": ") if marks else "neither has an option of its own",
            "Start each with a --port, --defaults-file or --datadir of its own, or watch it "
            "alone with --pid and --host",
            ExitCode.TARGET,
        )

    def forget(self, label: str) -> None:
        """Its server has been gone for long: whoever comes is the first one again."""
        self._holders.pop(label, None)
        self._divided.discard(label)
        self._of = {marks: of for marks, of in self._of.items() if of != label}
        running = {
            marks: {one for one in found if started_at(one[0]) == one[1]}
            for marks, found in self._refused.items()
        }
        self._refused = defaultdict(set, {marks: left for marks, left in running.items() if left})
