# SPDX-License-Identifier: GPL-2.0-only
"""Whether engines that watched the same load say the same, from the capture they share.

What each of them counts, and what is compared:

- Handshakes: every engine's count against the driver's. Native and bpftrace follow the connection
  from the library's first call to success; funclatency (bcc) times the server's own function, in
  buckets that double, so that only bounds of its mean are known. perf samples and times nothing.
- p99: between two order statistics of native's times (95 %, binomial); the bucket of each histogram
  in which its own p99 lies must meet that interval.
- Waits: all time off the CPU of the threads that served the load, waits for a CPU included, from
  the first switch-out to the last switch-in; what native calls `background`, before a thread has
  its connection, is the wait for its first CPU, which the others cannot see. These threads begin
  and end with a connection (no thread cache), so that no wait is older than the recording or open
  at its end. Native's ledger and offcputime tell threads; offcpu.bt does not, and is asked for what
  waited in a phase of a connection or below its function.
- Shares of categories: samples of the whole process. Intervals are Wilson's, with a level of 95 %
  for all comparisons of a server together (Bonferroni). An engine that has no evidence of what a
  function without a name does is compared by kernel and user code only; one that does not know
  system calls by the kernel as a whole. What an engine cannot file is shown, not judged, and
  neither is what belongs to the network in the kernel: native ends a result when its last send
  returns, stacks when the system call does. Samples in finish_task_switch are left out: there a
  clock of each thread (perf) and one of each CPU (the others) pile up differently.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

from tlstax.analysis.classify.composition import Stacks, count_samples
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.sources.bcc.rows import FIRST_ID

ENGINES = ("native", "bpftrace", "bcc", "perf")
MEAN_TOLERANCE = WAIT_TOLERANCE = 0.05
LEVEL = 0.95
P99 = 0.99
CONNECTION = ("handle_one_connection", "do_handle_one_connection")
KERNEL = ("kernel_network", "kernel_other")
UNJUDGED = ("unknown", *KERNEL)
Bucket = tuple[int, int, int]


@dataclass
class Seen:
    """What one engine saw of a load; None or empty: it does not see that."""

    handshake_count: int | None = None
    times_ns: Sequence[int] = ()
    buckets: Sequence[Bucket] = ()  # low, high (exclusive), count
    wait_ns: int | None = None
    categories: Mapping[str, int] = field(default_factory=dict)
    tells_nameless: bool = True
    tells_syscalls: bool = True
    losses: Mapping[str, int] = field(default_factory=dict)

    @property
    def sample_count(self) -> int:
        """All samples of the process."""
        return sum(self.categories.values())


@dataclass(frozen=True)
class Line:
    """One comparison: what each engine says, and which of them are wrong by it."""

    what: str
    said: Mapping[str, str]
    disagree: tuple[str, ...]


def read(path: Path) -> dict[str, Seen]:
    """What the engines of a capture saw; those without a window are left out."""
    with CaptureReader.open(path) as reader:
        windows: dict[str, set[int]] = defaultdict(set)
        for window in reader.rows(schema.Window):
            windows[window.engine].add(window.window_id)
        stacks = Stacks(reader.rows(schema.Frame), reader.rows(schema.Stack))
        begin_ns = int(reader.meta().get("monotonic_anchor_ns", "0"))
        connections = {
            row.tid: row.thread_id
            for row in reader.rows(schema.Thread)
            if row.role == "connection" and row.start_ns > begin_ns and row.end_ns
        }
        return {
            engine: _engine(engine, reader, windows[engine], stacks, connections)
            for engine in ENGINES
            if windows[engine]
        }


def _engine(
    engine: str, reader: CaptureReader, ids: set[int], stacks: Stacks, threads: Mapping[int, int]
) -> Seen:
    def rows(table: type[Any]) -> Iterable[Any]:
        return (row for row in reader.rows(table) if row.window_id in ids)

    seen = Seen()
    good = [row for row in rows(schema.Handshake) if row.outcome == "success"]
    if engine in ("native", "bpftrace"):
        seen.handshake_count = len(good)
        seen.times_ns = [row.end_ns - row.start_ns for row in good]
    elif engine == "bcc":
        seen.handshake_count = sum(
            row.ended_count for row in rows(schema.PhaseCount) if row.phase == "handshake"
        )
    if engine != "native":
        seen.buckets = sorted(
            (row.low_ns, row.high_ns, row.ended_count)
            for row in rows(schema.Latency)
            if row.phase == "handshake"
        )
    seen.wait_ns = _waits(engine, rows, stacks, threads)
    believed = (row for row in rows(schema.SampleStack) if not _piled_up(stacks, row))
    counted = count_samples(believed, stacks, builtin())
    categories: Counter[str] = Counter()
    for counts in counted.values():
        for (_, category), count in counts.items():
            categories[category] += count
    seen.categories = categories
    losses: Counter[str] = Counter()
    for loss in rows(schema.Loss):
        losses[loss.kind] += loss.lost_count
    seen.losses = losses
    return seen


def _piled_up(stacks: Stacks, row: schema.SampleStack) -> bool:
    """Whether the clock was held up until the scheduler let interrupts on again."""
    kernel = stacks.frames(row.kernel_stack_id)
    return bool(kernel) and kernel[0].symbol.startswith("finish_task_switch")


def _waits(
    engine: str,
    rows: Callable[[type[Any]], Iterable[Any]],
    stacks: Stacks,
    threads: Mapping[int, int],
) -> int | None:
    """Time off the CPU of connection threads."""
    mine = {FIRST_ID + tid for tid in threads} if engine == "bcc" else set(threads.values())
    times_ns: list[int] = []
    if engine in ("native", "bcc"):
        times_ns = [
            row.time_ns
            for row in rows(schema.Ledger)
            if row.thread_id in mine
            and row.state != "on_cpu"
            and (engine != "native" or row.phase != "background")
        ]
    elif engine == "bpftrace":
        times_ns = [
            row.time_ns
            for row in rows(schema.OffcpuStack)
            if row.phase != "unknown" or _serves(stacks, row.user_stack_id)
        ]
    return sum(times_ns) if times_ns else None


def _serves(stacks: Stacks, stack_id: int | None) -> bool:
    """Whether a connection's own function is in the stack."""
    return any(frame.symbol.split("(")[0] in CONNECTION for frame in stacks.frames(stack_id))


def compare_times(seen: Mapping[str, Seen], *, waits: bool) -> list[Line]:
    """Handshakes, and waits, native being what the others are held against."""
    return [_mean(seen), _p99(seen), *([_wait(seen)] if waits else [])]


def compare_counts(seen: Mapping[str, Seen], driver_count: int, server_count: int) -> Line:
    """Handshakes: all that count them against the driver."""
    said = {name: one.handshake_count for name, one in seen.items()}
    told = {"driver": driver_count, "server": server_count, **said}
    wrong = tuple(
        name for name, count in told.items() if count is not None and count != driver_count
    )
    shown = {name: str(count) for name, count in told.items() if count is not None}
    return Line("handshakes", shown, wrong)


def _mean(seen: Mapping[str, Seen]) -> Line:
    mean_ns = fmean(seen["native"].times_ns)
    said, wrong = {}, []
    for name, one in seen.items():
        if one.times_ns:
            ratio = fmean(one.times_ns) / mean_ns
            said[name] = f"{fmean(one.times_ns) / 1e6:.3f} ms ({ratio - 1:+.1%})"
            agrees = abs(ratio - 1) <= MEAN_TOLERANCE
        elif one.buckets:
            low, high = bounds_of_mean(one.buckets)
            said[name] = f"{low / 1e6:.2f}..{high / 1e6:.2f} ms"
            agrees = low <= mean_ns <= high
        else:
            continue
        if not agrees:
            wrong.append(name)
    return Line("mean handshake", said, tuple(wrong))


def _p99(seen: Mapping[str, Seen]) -> Line:
    low_ns, high_ns = quantile_interval(seen["native"].times_ns, P99)
    said = {"native": f"{low_ns / 1e6:.2f}..{high_ns / 1e6:.2f} ms"}
    wrong = []
    for name, one in seen.items():
        if name != "native" and one.buckets:
            low, high = bucket_of(one.buckets, P99)
            said[name] = f"{low / 1e6:.2f}..{high / 1e6:.2f} ms"
            if high < low_ns or low > high_ns:
                wrong.append(name)
    return Line("p99 handshake", said, tuple(wrong))


def _wait(seen: Mapping[str, Seen]) -> Line:
    reference = seen["native"].wait_ns or 0
    said, wrong = {}, []
    for name, one in seen.items():
        if one.wait_ns is not None:
            ratio = one.wait_ns / reference if reference else math.inf
            said[name] = f"{one.wait_ns / 1e9:.3f} s ({ratio - 1:+.1%})"
            if abs(ratio - 1) > WAIT_TOLERANCE:
                wrong.append(name)
    return Line("off-CPU, connections", said, tuple(wrong))


def compare_shares(seen: Mapping[str, Seen]) -> list[Line]:
    """One line for each category, and for the kernel as a whole."""
    samplers = {name: one for name, one in seen.items() if one.sample_count}
    names = sorted(
        {category for one in samplers.values() for category in one.categories},
        key=lambda name: -samplers["native"].categories.get(name, 0),
    )
    comparisons = max(1, (len(names) + 1) * (len(samplers) - 1))
    level = 1 - (1 - LEVEL) / comparisons
    groups = [("kernel, all of it", KERNEL), *((name, (name,)) for name in names)]
    lines = []
    for title, members in groups:
        intervals = {}
        for name, one in samplers.items():
            told = one.tells_nameless or title.startswith("kernel")
            if told and (one.tells_syscalls or title not in KERNEL):
                hits = sum(one.categories.get(member, 0) for member in members)
                intervals[name] = (
                    hits / one.sample_count,
                    *wilson(hits, one.sample_count, level),
                )
        said = {
            name: f"{share:.1%} ({low:.1%}..{high:.1%})"
            for name, (share, low, high) in intervals.items()
        }
        first = intervals["native"]
        wrong = tuple(
            name
            for name, (_, low, high) in intervals.items()
            if title not in UNJUDGED and (high < first[1] or low > first[2])
        )
        lines.append(Line(f"on CPU: {title}", said, wrong))
    return lines


def wilson(hits: int, total: int, level: float) -> tuple[float, float]:
    """Wilson's score interval of a share."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, spread = hits / total, 1 + z * z / total
    centre = (share + z * z / (2 * total)) / spread
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / spread
    return max(0.0, centre - half), min(1.0, centre + half)


def bounds_of_mean(buckets: Sequence[Bucket]) -> tuple[float, float]:
    """The least and the greatest mean that a histogram allows."""
    total = sum(count for _, _, count in buckets)
    return (
        sum(low * count for low, _, count in buckets) / total,
        sum(high * count for _, high, count in buckets) / total,
    )


def bucket_of(buckets: Sequence[Bucket], quantile: float) -> tuple[int, int]:
    """The bucket in which a quantile lies."""
    rank = math.ceil(quantile * sum(count for _, _, count in buckets))
    for low, high, count in buckets:
        rank -= count
        if rank <= 0:
            return low, high
    raise ValueError("an empty histogram has no quantile")


def quantile_interval(values: Sequence[int], quantile: float) -> tuple[int, int]:
    """The 95 % interval of a quantile: two of the values (order statistics, normal approximation).

    At the end of the values its upper bound is the greatest.
    """
    ordered = sorted(values)
    count = len(ordered)
    half = NormalDist().inv_cdf(0.5 + LEVEL / 2) * math.sqrt(count * quantile * (1 - quantile))
    low = max(0, math.floor(count * quantile - half) - 1)
    high = min(count - 1, math.ceil(count * quantile + half))
    return ordered[low], ordered[high]
