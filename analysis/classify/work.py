# SPDX-License-Identifier: GPL-2.0-only
"""Work that samples show beside their category: hashing passwords, creating threads.

A category says what the leaf of a stack computes. What it computes that for may be further out. The
kinds are data: `[[work]]` tables of work.toml beside this file.
"""

import re
import tomllib
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from tlstax.analysis.classify.composition import Counts, Stacks
from tlstax.analysis.rows.samples import columns_of
from tlstax.collectors.capture.schema import Frame, SampleStack
from tlstax.collectors.capture.syscalls import syscall_name

_PATTERNS: Final = ("functions", "under", "leaf", "code")


@dataclass(frozen=True)
class Work:
    """A kind of work."""

    id: str
    syscalls: frozenset[str]
    phases: frozenset[str]
    functions: re.Pattern[str] | None = None
    under: re.Pattern[str] | None = None
    leaf: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None

    def fits(self, phase: str, syscall: str, frames: Sequence[Frame]) -> bool:
        """Whether samples in this phase, system call and stack are of this kind."""
        if self.phases and phase not in self.phases:
            return False
        if self.syscalls and syscall not in self.syscalls:
            return False
        if self.leaf is not None and not (frames and self.leaf.search(frames[0].symbol)):
            return False
        if self.code is not None and not (frames and self.code.search(frames[0].code)):
            return False
        return all(
            pattern is None or any(pattern.search(frame.symbol) for frame in frames)
            for pattern in (self.functions, self.under)
        )


@cache
def kinds() -> tuple[Work, ...]:
    """The kinds that tlstax ships."""
    text = files("tlstax.analysis.classify").joinpath("work.toml").read_text(encoding="utf-8")
    return tuple(
        Work(
            row["id"],
            syscalls=frozenset(row.get("syscalls", ())),
            phases=frozenset(row.get("phases", ())),
            **{key: re.compile(row[key]) for key in _PATTERNS if key in row},
        )
        for row in tomllib.loads(text)["work"]
    )


def count_work(
    rows: Iterable[SampleStack], stacks: Stacks, known: Iterable[Frame], cpu_flags: str
) -> dict[int, Counts]:
    """Samples by window, phase and kind; those of no kind are left out.

    `known`: all frames. A file whose code nobody has read shows nothing: its functions without a
    name are of no kind. `cpu_flags`: of the host. Of arm64 code only names of source files are
    read, and no instructions.
    """
    samples = columns_of(rows)
    is_arm64 = "asimd" in cpu_flags.split()
    read = set() if is_arm64 else {frame.object for frame in known if frame.code}
    numbers: dict[tuple[str, str], int] = {}
    labels = {}
    for place in samples.places:
        phase, syscall, user_id, _ = place
        kind = _kind_of(phase, syscall_name(syscall), stacks.frames(user_id), read)
        labels[place] = numbers.setdefault((phase, kind), len(numbers))
    keys = list(numbers)
    return {
        window_id: {keys[number]: count for number, count in mine.items() if keys[number][1]}
        for window_id, mine in samples.by_window(labels).items()
    }


def _kind_of(phase: str, syscall: str, frames: Sequence[Frame], read: Container[str]) -> str:
    is_read = bool(frames) and frames[0].object in read
    return next(
        (
            one.id
            for one in kinds()
            if one.fits(phase, syscall, frames) and (one.code is None or is_read)
        ),
        "",
    )
