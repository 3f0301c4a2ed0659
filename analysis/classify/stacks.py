# SPDX-License-Identifier: GPL-2.0-only
"""Folded stacks and flame graphs, on-CPU and off-CPU, scaled to the exact ledger.

The first frame is the phase; for waits the second is the state. Below it come the user frames,
root first, then the system call, then the kernel frames. Where the ledger has time and no stack
stands for it, the time is kept under a frame that says so: every tree sums to the ledger.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tlstax.analysis.classify.composition import EXACT, Stacks
from tlstax.analysis.classify.taxonomy import Taxonomy
from tlstax.analysis.model.tables import FlameGraph, FlameNode
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.samples import columns_of
from tlstax.analysis.rows.tables import Group
from tlstax.collectors.capture.schema import Frame, OffcpuStack, SampleStack
from tlstax.collectors.capture.syscalls import syscall_name

NO_STACK: Final = "(no stack)"
NO_SAMPLES: Final = "(no samples)"
SMALL: Final = "(small)"
LEFT_OUT: Final = "(frames left out)"
MAX_DEPTH: Final = 200
"""Frames of a stack that a flame graph shows."""
PRUNE_SHARE: Final = 0.0005
"""Frames below this share of the graph are merged into SMALL."""

_STATE_CATEGORIES: Final = {
    "runnable": "kernel_other",
    "blocked_network": "kernel_network",
    "blocked_lock": "lock_spin",
    "blocked_futex": "lock_spin",
}


class FoldedFrame(NamedTuple):
    """A frame of a folded stack with its colour."""

    name: str
    category: str
    inlined: bool = False
    """Inlined by the compiler into the frame before it."""

    @property
    def text(self) -> str:
        """The name, marked if it is inlined."""
        return f"{self.name} (inlined)" if self.inlined else self.name


Path = tuple[FoldedFrame, ...]
Folded = dict[Path, float]
"""Time in ns by path, root first."""


@dataclass(frozen=True)
class FoldedStacks:
    """The folded stacks of a group, and what is to be known of them."""

    folded: Folded
    count: int
    """Samples, or waits, behind them."""
    repaired: Folded = field(default_factory=dict)
    """The part of them that has its callers from perf's stacks."""
    repair: str = ""
    """How many samples that are, in one sentence; '' without perf."""


@dataclass
class Mended:
    """Stacks whose callers are perf's, and the time that folding found in them."""

    stack_ids: frozenset[int] = frozenset()
    folded: Folded = field(default_factory=dict)


def fold_on_cpu(
    rows: Iterable[SampleStack],
    window_ids: Collection[int],
    totals: Mapping[tuple[str, str], int],
    stacks: Stacks,
    taxonomy: Taxonomy,
    repaired: Mended | None = None,
) -> tuple[Folded, int]:
    """CPU time by path, and the samples behind it. Sums to the ledger's on-CPU time.

    `repaired` takes the part of it whose stacks were repaired.
    """
    samples = columns_of(rows).by_place(window_ids)
    per_phase: dict[str, int] = defaultdict(int)
    for (phase, *_), count in samples.items():
        per_phase[phase] += count
    on_cpu = ledger.on_cpu(totals)
    paths = _Paths(stacks, taxonomy)
    folded: Folded = defaultdict(float)
    for place, count in samples.items():
        row = SampleStack(0, *place, 0)
        time_ns = on_cpu.get(row.phase, 0) * count / per_phase[row.phase]
        path = paths.on_cpu(row)
        folded[path] += time_ns
        if repaired is not None and row.user_stack_id in repaired.stack_ids:
            repaired.folded[path] = repaired.folded.get(path, 0.0) + time_ns
    for phase, time_ns in on_cpu.items():
        if time_ns and not per_phase.get(phase):
            category = EXACT.get(phase, "unknown")
            folded[FoldedFrame(phase, category), FoldedFrame(NO_SAMPLES, category)] += time_ns
    return {path: ns for path, ns in folded.items() if ns > 0}, sum(per_phase.values())


def fold_off_cpu(
    rows: Iterable[OffcpuStack],
    window_ids: Collection[int],
    totals: Mapping[tuple[str, str], int],
    stacks: Stacks,
    taxonomy: Taxonomy,
) -> tuple[Folded, int]:
    """Waiting time by path, and the waits behind it. Sums to the ledger's waits while serving."""
    served = ledger.served(totals)
    wanted = {key: ns for key, ns in served.items() if key[1] != "on_cpu" and ns > 0}
    paths = _Paths(stacks, taxonomy)
    estimates: dict[Path, float] = defaultdict(float)
    per_key: dict[tuple[str, str], float] = defaultdict(float)
    waits = 0
    for row in rows:
        key = (row.phase, row.state)
        if row.window_id in window_ids and key in wanted and row.time_ns > 0:
            estimates[paths.off_cpu(row)] += row.time_ns
            per_key[key] += row.time_ns
            waits += row.wait_count
    folded: Folded = {}
    for path, estimate in estimates.items():
        key = (path[0].name, path[1].name)
        folded[path] = wanted[key] * estimate / per_key[key]
    for key, time_ns in wanted.items():
        if not per_key.get(key):
            folded[_wait_root(*key)] = float(time_ns)
    return folded, waits


def own_times(
    samples: Iterable[SampleStack],
    waits: Iterable[OffcpuStack],
    window_ids: Collection[int],
    sample_hz: float,
) -> ledger.Totals:
    """Time by phase and state where no ledger was kept: of the waits, and of so many samples."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for row in samples:
        if row.window_id in window_ids and sample_hz > 0:
            sums[row.phase, "on_cpu"] += row.sample_count * 1e9 / sample_hz
    for wait in waits:
        if wait.window_id in window_ids:
            sums[wait.phase, wait.state] += wait.time_ns
    return {key: round(time_ns) for key, time_ns in sums.items()}


def flame_graph(group: Group, kind: str, label: str, made: FoldedStacks) -> FlameGraph:
    """The tree of folded stacks, without frames that are too small to see."""
    root, dropped_ns = _grow(made.folded, made.repaired)
    return FlameGraph(
        f"{group.name}/{kind}",
        f"{group.label}: {label}",
        kind,
        root["value"],
        made.count,
        dropped_ns,
        root,
    )


def folded_lines(folded: Mapping[Path, float]) -> list[str]:
    """Folded stacks in the interchange form of FlameGraph: `a;b;c value`, value in ns.

    Inlined functions end in `_[i]`, as there.
    """
    sums: dict[str, float] = defaultdict(float)
    for path, time_ns in folded.items():
        # The form gives a meaning to these characters.
        names = (
            frame.name.replace(";", ":").replace("\n", " ") + "_[i]" * frame.inlined
            for frame in path
        )
        sums[";".join(names)] += time_ns
    return [f"{stack} {round(time_ns)}" for stack, time_ns in sorted(sums.items())]


class _Paths:
    """Paths of samples and waits, root first; equal frames are one object."""

    def __init__(self, stacks: Stacks, taxonomy: Taxonomy) -> None:
        self._stacks = stacks
        self._taxonomy = taxonomy
        self._frames: dict[FoldedFrame, FoldedFrame] = {}
        self._users: dict[tuple[str, int | None], Path] = {}

    def on_cpu(self, row: SampleStack) -> Path:
        """Phase, user frames, system call, kernel frames."""
        sample = self._stacks.sample(row)
        exact = EXACT.get(row.phase)
        place = row.phase, row.syscall, row.user_stack_id, row.kernel_stack_id
        category = exact or self._stacks.category(place, self._taxonomy)
        path = [self._frame(row.phase, exact or "unknown"), *self._user(row)]
        if sample.side == "kernel":
            path += self._kernel(row.syscall, sample.kernel, category)
        if len(path) == 1:
            path.append(self._frame(NO_STACK, category))
        return tuple(path)

    def off_cpu(self, row: OffcpuStack) -> Path:
        """Phase, state, user frames, system call, kernel frames."""
        phase, state = _wait_root(row.phase, row.state)
        path = [phase, state, *self._user(row)]
        kernel = self._stacks.frames(row.kernel_stack_id)
        if row.syscall >= 0 or kernel:
            path += self._kernel(row.syscall, kernel, state.category)
        return tuple(path)

    def _user(self, row: SampleStack | OffcpuStack) -> Path:
        """User frames, each coloured as if it were the leaf."""
        key = row.phase, row.user_stack_id
        if key not in self._users:
            frames = self._stacks.frames(row.user_stack_id)
            exact = EXACT.get(row.phase)
            categories = (
                [exact] * len(frames)
                if exact
                else self._stacks.frame_categories(row.phase, row.user_stack_id, self._taxonomy)
            )
            self._users[key] = tuple(
                self._frame(*place)
                for frame, category in zip(reversed(frames), reversed(categories), strict=True)
                for place in (
                    (frame.symbol, category, False),
                    *((name, category, True) for name in self._stacks.inlined(frame)),
                )
            )
        return self._users[key]

    def _kernel(self, syscall: int, frames: tuple[Frame, ...], category: str) -> list[FoldedFrame]:
        names = [f"[{syscall_name(syscall)}]"] if syscall >= 0 else ["[interrupt]"]
        names += [frame.symbol for frame in reversed(frames)]
        return [self._frame(name, category) for name in names]

    def _frame(self, name: str, category: str, inlined: bool = False) -> FoldedFrame:
        frame = FoldedFrame(name, category, inlined)
        return self._frames.setdefault(frame, frame)


def _wait_root(phase: str, state: str) -> tuple[FoldedFrame, FoldedFrame]:
    category = _STATE_CATEGORIES.get(state, "kernel_other")
    return FoldedFrame(phase, EXACT.get(phase, "unknown")), FoldedFrame(state, category)


def _node(name: str, category: str, value: float) -> FlameNode:
    return {"name": name, "value": value, "category": category, "children": []}


class _Branch:
    """A node while the tree grows: children are found by frame."""

    def __init__(self, frame: FoldedFrame) -> None:
        self.frame = frame
        self.time_ns = 0.0
        self.repaired_ns = 0.0
        self.children: dict[FoldedFrame, _Branch] = {}

    def add(self, path: Path, time_ns: float, repaired_ns: float) -> None:
        """Add a stack below this branch."""
        branch = self
        branch.time_ns += time_ns
        branch.repaired_ns += repaired_ns
        for frame in path:
            branch = branch.children.setdefault(frame, _Branch(frame))
            branch.time_ns += time_ns
            branch.repaired_ns += repaired_ns

    def node(self) -> FlameNode:
        """The branch as a node without children."""
        node = _node(self.frame.name, self.frame.category, self.time_ns)
        if self.repaired_ns:
            node["repaired"] = self.repaired_ns
        if self.frame.inlined:
            node["inlined"] = True
        return node


def cut(path: Path) -> Path:
    """The path, without the middle if it is deeper than pages and JSON readers can take."""
    if len(path) <= MAX_DEPTH:
        return path
    half = MAX_DEPTH // 2
    return (*path[:half], FoldedFrame(LEFT_OUT, "unknown"), *path[len(path) - half + 1 :])


def _grow(folded: Mapping[Path, float], repaired: Mapping[Path, float]) -> tuple[FlameNode, float]:
    """The tree with the largest frames first, and the time in frames too small to keep."""
    trunk = _Branch(FoldedFrame("all", "unknown"))
    for path, time_ns in folded.items():
        trunk.add(cut(path), time_ns, repaired.get(path, 0.0))
    least_ns = trunk.time_ns * PRUNE_SHARE
    root = trunk.node()
    dropped_ns = 0.0
    pending = [(trunk, root)]
    while pending:
        branch, node = pending.pop()
        small = [child for child in branch.children.values() if child.time_ns < least_ns]
        merge = len(small) > 1 or any(child.children for child in small)
        for child in sorted(branch.children.values(), key=lambda child: -child.time_ns):
            if child.time_ns >= least_ns or not merge:
                node["children"].append(child.node())
                pending.append((child, node["children"][-1]))
        if merge:
            small_ns = sum(child.time_ns for child in small)
            node["children"].append(_node(SMALL, "unknown", small_ns))
            dropped_ns += small_ns
    return root, dropped_ns
