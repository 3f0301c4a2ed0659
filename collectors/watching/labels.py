# SPDX-License-Identifier: GPL-2.0-only
"""Which server of a watch has which label. A label is a host of the data set.

So it never passes from one server to another that ran beside it. Two that have a right to the same
short label get long ones; two that were started in the same way cannot be told apart, and the
second one stays refused as long as its process runs.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.watching.server_labels import (
    Marks,
    long_label,
    may_be_its_parent,
    server_marks,
    short_label,
    started_at,
)

_Process = tuple[int, str]
"""Its pid, and when it was started."""


class _Holder(NamedTuple):
    """Who got a label last."""

    marks: Marks
    process: _Process


class NotYetError(Exception):
    """It is decided later: this process, or the one that has the label, has ended or soon will."""


class Labels:
    """As long as a watch runs, or until a label is forgotten."""

    def __init__(self) -> None:
        self._of: dict[Marks, str] = {}
        self._holders: dict[str, _Holder] = {}
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

    def of(self, pid: int, recorded: Collection[str]) -> str:
        """The label of a process; `recorded`: labels of recordings that have not ended.

        Raises NotYetError, and TlstaxError (TARGET) once: from then on it `is_refused`.
        """
        process = pid, started_at(pid)
        if not process[1]:
            raise NotYetError
        marks = server_marks(pid)
        label = self._of.get(marks, short_label(marks))
        if (other := self._other(label, process)) and other.marks != marks:
            self._divided.add(label)
            self._of.pop(marks, None)
        if marks not in self._of:
            label = self._new_label(process, marks)
        if other := self._other(label, process):
            if may_be_its_parent(pid) or may_be_its_parent(other.process[0]):
                raise NotYetError
            why = f"process {other.process[0]} was started in the same way"
            raise self._refusal(process, marks, why, label)
        if self._may_be_a_refused_one(process, marks, label):
            why = "two servers were started in the same way, and both have ended"
            raise self._refusal(process, marks, why, label)
        if label in recorded:
            raise NotYetError
        self._of[marks] = label
        self._holders[label] = _Holder(marks, process)
        return label

    def _other(self, label: str, process: _Process) -> _Holder | None:
        """Another process that has a label and runs."""
        holder = self._holders.get(label)
        if holder is None or holder.process == process or not _runs(holder.process):
            return None
        return holder

    def _may_be_a_refused_one(self, process: _Process, marks: Marks, label: str) -> bool:
        """Whether it is a restart, but maybe not of the server that has the label."""
        holder = self._holders.get(label)
        is_restart = marks in self._of and holder is not None and holder.process != process
        return is_restart and not all(map(_runs, self._refused[marks]))

    def _new_label(self, process: _Process, marks: Marks) -> str:
        short, long = short_label(marks), long_label(marks)
        if short not in self._divided:
            return short  # also if its last server was started in another way
        if long not in self._holders or self._holders[long].marks == marks:
            return long
        raise self._refusal(process, marks, "nothing else tells both from each other", long)

    def _refusal(self, process: _Process, marks: Marks, why: str, label: str) -> TlstaxError:
        found = self._refused[marks]
        ended = [one for one in found if not _runs(one)]
        found -= set(ended[1:])  # one is enough to know that there was one
        found.add(process)
        return TlstaxError(
            f"process {process[0]} cannot be told from another server and is not recorded",
            f"{why}: {label or 'without an option of its own'}",
            "Start each with a --port, --defaults-file or --datadir of its own, or watch it "
            "alone with --pid and --host",
            ExitCode.TARGET,
        )

    def forget(self, label: str) -> None:
        """Its server has been gone for long: whoever comes is the first one again.

        But not while its process runs, which only cannot be recorded.
        """
        if (holder := self._holders.get(label)) and _runs(holder.process):
            return
        self._holders.pop(label, None)
        self._of = {marks: of for marks, of in self._of.items() if of != label}
        self._divided &= {short_label(marks) for marks in self._of}
        running = {marks: set(filter(_runs, found)) for marks, found in self._refused.items()}
        self._refused = defaultdict(set, {marks: left for marks, left in running.items() if left})


def _runs(process: _Process) -> bool:
    return started_at(process[0]) == process[1]
