# SPDX-License-Identifier: GPL-2.0-only
"""Folded stacks and flame graphs, on-CPU and off-CPU, scaled to the exact ledger.

The first frame is the phase; for waits the second is the state. Below it come the user frames,
root first, then the system call, then the kernel frames. Where the ledger has time and no stack
stands for it, the time is kept under a frame that says so: every tree sums to the ledger.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tlstax.analysis import ledger
from tlstax.analysis.composition import EXACT, Stacks
from tlstax.analysis.document_tables import FlameGraph, FlameNode
from tlstax.analysis.syscalls import syscall_name
from tlstax.analysis.tables import Group
from tlstax.analysis.taxonomy import Sample, Taxonomy
from tlstax.collectors.capture.schema import Frame, OffcpuStack, SampleStack

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


Path = tuple[FoldedFrame, ...]
Folded = dict[Path, float]
"""Time in ns by path, root first."""


def fold_on_cpu(
    rows: Iterable[SampleStack],
    window_ids: Collection[int],
    totals: Mapping[tuple[str, str], int],
    stacks: Stacks,
    taxonomy: Taxonomy,
) -> tuple[Folded, int]:
    """CPU time by path, and the samples behind it. Sums to the ledger's on-CPU time."""
    samples: dict[Path, int] = defaultdict(int)
    per_phase: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.window_id in window_ids and row.sample_count > 0:
            samples[_on_cpu_path(stacks.sample(row), taxonomy)] += row.sample_count
            per_phase[row.phase] += row.sample_count
    on_cpu = ledger.on_cpu(totals)
    folded: Folded = {}
    for path, count in samples.items():
        phase = path[0].name
        folded[path] = on_cpu.get(phase, 0) * count / per_phase[phase]
    for phase, time_ns in on_cpu.items():
        if time_ns and not per_phase.get(phase):
            category = EXACT.get(phase, "unknown")
            folded[FoldedFrame(phase, category), FoldedFrame(NO_SAMPLES, category)] = float(time_ns)
    return {path: ns for path, ns in folded.items() if ns > 0}, sum(per_phase.values())


def fold_off_cpu(
    rows: Iterable[OffcpuStack],
    window_ids: Collection[int],
    totals: Mapping[tuple[str, str], int],
    stacks: Stacks,
    taxonomy: Taxonomy,
) -> tuple[Folded, int]:
    """Waiting time by path, and the waits behind it. Sums to the ledger's waits while serving."""
    wanted = {key: ns for key, ns in ledger.served(totals).items() if key[1] != "on_cpu" and ns}
    estimates: dict[Path, float] = defaultdict(float)
    per_key: dict[tuple[str, str], float] = defaultdict(float)
    waits = 0
    for row in rows:
        key = (row.phase, row.state)
        if row.window_id in window_ids and key in wanted and row.time_ns > 0:
            estimates[_off_cpu_path(row, stacks, taxonomy)] += row.time_ns
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


def flame_graph(
    group: Group, kind: str, label: str, folded: Mapping[Path, float], sample_count: int
) -> FlameGraph:
    """The tree of folded stacks, without frames that are too small to see."""
    root, dropped_ns = _grow(folded)
    return FlameGraph(
        f"{group.name}/{kind}",
        f"{group.label}: {label}",
        kind,
        root["value"],
        sample_count,
        dropped_ns,
        root,
    )


def folded_lines(folded: Mapping[Path, float]) -> list[str]:
    """Folded stacks in the interchange form of FlameGraph: `a;b;c value`, value in ns."""
    sums: dict[str, float] = defaultdict(float)
    for path, time_ns in folded.items():
        # The form gives a meaning to these characters.
        names = (frame.name.replace(";", ":").replace("\n", " ") for frame in path)
        sums[";".join(names)] += time_ns
    return [f"{stack} {round(time_ns)}" for stack, time_ns in sorted(sums.items())]


def _on_cpu_path(sample: Sample, taxonomy: Taxonomy) -> Path:
    """Root first: phase, user frames, system call, kernel frames."""
    leaf_category = EXACT.get(sample.phase) or taxonomy.category(sample)
    path = [FoldedFrame(sample.phase, EXACT.get(sample.phase, "unknown"))]
    path += _user_frames(sample.phase, sample.user, taxonomy)
    if sample.side == "kernel":
        path.append(FoldedFrame(f"[{syscall_name(sample.syscall)}]", leaf_category))
        path += [FoldedFrame(frame.symbol, leaf_category) for frame in reversed(sample.kernel)]
    if len(path) == 1:
        path.append(FoldedFrame(NO_STACK, leaf_category))
    return tuple(path)


def _off_cpu_path(row: OffcpuStack, stacks: Stacks, taxonomy: Taxonomy) -> Path:
    user = stacks.frames(row.user_stack_id)
    kernel = stacks.frames(row.kernel_stack_id)
    phase, state = _wait_root(row.phase, row.state)
    path = [phase, state, *_user_frames(row.phase, user, taxonomy)]
    if row.syscall >= 0:
        path.append(FoldedFrame(f"[{syscall_name(row.syscall)}]", state.category))
    path += [FoldedFrame(frame.symbol, state.category) for frame in reversed(kernel)]
    return tuple(path)


def _wait_root(phase: str, state: str) -> tuple[FoldedFrame, FoldedFrame]:
    category = _STATE_CATEGORIES.get(state, "kernel_other")
    return FoldedFrame(phase, EXACT.get(phase, "unknown")), FoldedFrame(state, category)


def _user_frames(phase: str, frames: tuple[Frame, ...], taxonomy: Taxonomy) -> list[FoldedFrame]:
    """User frames, root first, each coloured as if it were the leaf."""
    exact = EXACT.get(phase)
    return [
        FoldedFrame(
            frames[index].symbol,
            exact or taxonomy.category(Sample(phase, -1, frames[index:], ())),
        )
        for index in reversed(range(len(frames)))
    ]


def _node(name: str, category: str, value: float) -> FlameNode:
    return {"name": name, "value": value, "category": category, "children": []}


class _Branch:
    """A node while the tree grows: children are found by frame."""

    def __init__(self, frame: FoldedFrame) -> None:
        self.frame = frame
        self.time_ns = 0.0
        self.children: dict[FoldedFrame, _Branch] = {}

    def add(self, path: Path, time_ns: float) -> None:
        """Add a stack below this branch."""
        branch = self
        branch.time_ns += time_ns
        for frame in path:
            branch = branch.children.setdefault(frame, _Branch(frame))
            branch.time_ns += time_ns


def _cut(path: Path) -> Path:
    """The path, without the middle if it is deeper than pages and JSON readers can take."""
    if len(path) <= MAX_DEPTH:
        return path
    half = MAX_DEPTH // 2
    return (*path[:half], FoldedFrame(LEFT_OUT, "unknown"), *path[len(path) - half + 1 :])


def _grow(folded: Mapping[Path, float]) -> tuple[FlameNode, float]:
    """The tree with the largest frames first, and the time in frames too small to keep."""
    trunk = _Branch(FoldedFrame("all", "unknown"))
    for path, time_ns in folded.items():
        trunk.add(_cut(path), time_ns)
    least_ns = trunk.time_ns * PRUNE_SHARE
    root = _node(*trunk.frame, trunk.time_ns)
    dropped_ns = 0.0
    pending = [(trunk, root)]
    while pending:
        branch, node = pending.pop()
        small = [child for child in branch.children.values() if child.time_ns < least_ns]
        merge = len(small) > 1 or any(child.children for child in small)
        for child in sorted(branch.children.values(), key=lambda child: -child.time_ns):
            if child.time_ns >= least_ns or not merge:
                node["children"].append(_node(*child.frame, child.time_ns))
                pending.append((child, node["children"][-1]))
        if merge:
            small_ns = sum(child.time_ns for child in small)
            node["children"].append(_node(SMALL, "unknown", small_ns))
            dropped_ns += small_ns
    return root, dropped_ns
