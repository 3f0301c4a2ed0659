# SPDX-License-Identifier: GPL-2.0-only
"""Flame graphs as trees of blocks: one profile, several kinds of time in one, or two compared.

A sandwich is two trees from one function: its callers and its callees.

A difference draws every stack as wide as the larger of its two times, so that stacks of either side
are visible. Both sides are per operation when both have operations of one kind,
else each is scaled to the other's total. A change that samples of this number may show by chance
(each count taken as Poisson) is marked as noise, so that few of the others are.
"""

import difflib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.stacks import Folded, FoldedFrame, Path, cut
from tlstax.analysis.statistics import verdicts

_NAMES_MOST: Final = 6


@dataclass(frozen=True)
class Profile:
    """Folded stacks with their counts."""

    label: str
    folded: Folded
    count: int
    """Samples, or waits, behind them."""
    operation_count: int = 0
    operation: str = ""
    """What one operation is; '' where nothing counted them."""
    repaired: Folded = field(default_factory=dict)
    """The part of the stacks that has its callers from perf's."""
    remarks: tuple[str, ...] = ()
    """Sentences about the completeness of the stacks."""
    whole_ns: float = 0.0
    """Time of the stacks that these were chosen from; 0 if they are all."""

    @property
    def total_ns(self) -> float:
        """Time of all stacks."""
        return math.fsum(self.folded.values())


@dataclass
class Block:
    """A frame with its callees. Widths add up: a block is at least as wide as its children."""

    name: str
    category: str
    width: float = 0.0
    """What is drawn: ns, or ns per operation."""
    before: float = 0.0
    after: float = 0.0
    """The two sides of a difference; in a single profile both are the width."""
    repaired: float = 0.0
    """Part of a single profile's width whose callers come from perf's stacks."""
    is_noise: bool = False
    """The change is within sampling noise."""
    is_inlined: bool = False
    """The compiler inlined it into its caller."""
    children: "dict[FoldedFrame, Block]" = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The name, marked if it is inlined."""
        return f"{self.name} (inlined)" if self.is_inlined else self.name

    @property
    def change(self) -> float:
        """After less before."""
        return self.after - self.before

    def walk(self) -> "Iterator[tuple[Block, int, float]]":
        """Every block with its depth and where it starts, callers first, widest first."""
        waiting: list[tuple[Block, int, float]] = [(self, 0, 0.0)]
        while waiting:
            block, depth, start = waiting.pop()
            yield block, depth, start
            for child in sorted(block.children.values(), key=lambda one: (-one.width, one.name)):
                waiting.append((child, depth + 1, start))
                start += child.width


def choose(folded: Folded, phases: Collection[str]) -> Folded:
    """The stacks of these phases, or all where none is named. Raises TlstaxError (USAGE)."""
    if not phases:
        return folded
    chosen = {path: ns for path, ns in folded.items() if path[0].name in phases}
    if not chosen:
        found = ", ".join(sorted({path[0].name for path in folded})) or "nothing"
        raise TlstaxError(
            f"no time in {' or '.join(phases)}",
            f"the recording has {found} here",
            "Choose one of these phases, or another group or kind",
            ExitCode.USAGE,
        )
    return chosen


def mix(parts: Mapping[str, Folded]) -> Folded:
    """Several kinds of time in one profile, each under a frame with its name."""
    return {
        (FoldedFrame(name, "unknown"), *path): ns
        for name, folded in parts.items()
        for path, ns in folded.items()
    }


def single(profile: Profile) -> Block:
    """The tree of one profile, in ns."""
    root = Block("all", "unknown")
    for folded, is_repaired in ((profile.folded, False), (profile.repaired, True)):
        for path, ns in folded.items():
            for block in _along(root, path):
                _widen(block, ns, is_repaired)
    return root


def unit(before: Profile, after: Profile) -> str:
    """What a difference is counted by: the operation of both sides, or '' for equal totals."""
    comparable = before.operation_count and after.operation_count
    return before.operation if comparable and before.operation == after.operation else ""


def difference(before: Profile, after: Profile) -> Block:
    """The tree of two profiles: per operation in ns, or scaled to the total of `before`."""
    if unit(before, after):
        scales = 1 / before.operation_count, 1 / after.operation_count
    else:
        scales = 1.0, (before.total_ns / after.total_ns if after.total_ns else 1.0)
    sides: dict[Path, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for index, profile in enumerate((before, after)):
        for path, ns in profile.folded.items():
            sides[path][index] += ns * scales[index]
    root = Block("all", "unknown")
    for path, (old, new) in sides.items():
        for block in _along(root, path):
            block.width += max(old, new)
            block.before += old
            block.after += new
    totals = root.before, root.after
    tails = []
    for block, _, _ in root.walk():
        old_error = _standard_error(block.before, totals[0], before.count)
        new_error = _standard_error(block.after, totals[1], after.count)
        tails.append((block, verdicts.normal_tail(block.change, math.hypot(old_error, new_error))))
    bound = verdicts.largest_marked([p for _, p in tails])
    for block, p in tails:
        block.is_noise = bound is None or p > bound
    return root


def through(profile: Profile, function: str) -> Profile:
    """The stacks that contain a function. Raises TlstaxError (USAGE) if there is none."""
    folded = {path: ns for path, ns in profile.folded.items() if _place(path, function) >= 0}
    if not folded:
        raise TlstaxError(
            f"no stack contains {function}",
            _likely(profile.folded, function),
            "Name a function as the flame graph does, with or without its arguments",
            ExitCode.USAGE,
        )
    repaired = {path: ns for path, ns in profile.repaired.items() if path in folded}
    return replace(profile, folded=folded, repaired=repaired, whole_ns=profile.total_ns)


def sandwich(profile: Profile, function: str) -> tuple[Block, Block]:
    """The callers of a function and its callees, as trees from it; each stack counts once.

    Where a function calls itself, the outermost call counts. Raises what `through` raises.
    """
    chosen = through(profile, function)
    trees = Block(function, "unknown"), Block(function, "unknown")
    for folded, is_repaired in ((chosen.folded, False), (chosen.repaired, True)):
        for path, ns in folded.items():
            at = _place(path, function)
            for root, part in zip(trees, (path[:at][::-1], path[at + 1 :]), strict=True):
                root.category = path[at].category
                for block in _along(root, part):
                    _widen(block, ns, is_repaired)
    return trees


def _widen(block: Block, time_ns: float, is_repaired: bool) -> None:
    if is_repaired:
        block.repaired += time_ns
    else:
        block.width += time_ns
        block.before = block.after = block.width


def _place(path: Path, function: str) -> int:
    """Where a function is first in a stack; -1: nowhere."""
    for index, frame in enumerate(path):
        if function in (frame.name, frame.name.partition("(")[0]):
            return index
    return -1


def _likely(folded: Folded, function: str) -> str:
    """Names that may be meant."""
    names = sorted({frame.name.partition("(")[0] for path in folded for frame in path} - {""})
    near = [name for name in names if function.lower() in name.lower()]
    near = near or difflib.get_close_matches(function, names)
    found = ", ".join(near[:_NAMES_MOST]) + (", ..." if len(near) > _NAMES_MOST else "")
    return f"similar names are {found}" if near else "nor does any name resemble it"


def _along(root: Block, path: Path) -> Iterator[Block]:
    """The blocks of a stack, cut if it is deep; they grow where there are none yet."""
    block = root
    yield block
    for frame in cut(path):
        if frame not in block.children:
            block.children[frame] = Block(frame.name, frame.category, is_inlined=frame.inlined)
        block = block.children[frame]
        yield block


def _standard_error(value: float, total: float, count: int) -> float:
    """Of a part of an exact total that `count` samples split; at least one sample's worth."""
    if not count or total <= 0:
        return 0.0
    share = min(value / total, 1.0)
    return total * math.sqrt(max(share * (1 - share), 1 / count) / count)
