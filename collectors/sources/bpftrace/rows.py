# SPDX-License-Identifier: GPL-2.0-only
"""The output of a bpftrace program as rows of a capture: one window of the engine `bpftrace`.

The name of a map says what it holds: `@took_ns` counts and `@took_hist_ns` durations by phase,
`@samples` and `@waited_ns` stacks, `@unmatched` losses. Other numbers become rows of `metric`.
There is no ledger, and buckets of durations are powers of two.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import PHASES, STATES
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.host.recording_facts import recording_facts
from tlstax.collectors.recording.target_rows import describe
from tlstax.collectors.sources.bpftrace.output import Messages, lost_events, maps, unmatched
from tlstax.collectors.sources.stacks.stack_syscalls import syscall_of

if TYPE_CHECKING:
    from tlstax.collectors.process.target import Target
    from tlstax.collectors.sources.bpftrace.process import Run
    from tlstax.collectors.sources.bpftrace.program_text import Rendered

WINDOW_ID: Final = 1
HANDSHAKE: Final = re.compile(r"(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) (success|failure)")
USER: Final = re.compile(r"([0-9a-f]+) (.+?)\+(\d+) \((.*)\)")
UNNAMED: Final = re.compile(r"([0-9a-f]+) 0x[0-9a-f]+ \((.*)\)")
KERNEL: Final = re.compile(r"(?:[0-9a-f]{8,} )?(\w[\w.]*)\+(\d+)")
ESCAPED: Final = re.compile(r"\\(.)")
UNESCAPED: Final = {"n": "\n", "t": "\t"}
SAMPLED: Final = re.compile(r"^profile:hz:(\d+)", re.MULTILINE)
LEVELS: Final = {"handshake": "handshake", "record": "record", "command": "command"}
LOSSES: Final = {
    "entry without exit": "bpftrace_entry_unmatched",
    "exit without entry": "bpftrace_exit_unmatched",
}


def store(
    path: Path, target: "Target", rendered: "Rendered", messages: Messages, run: "Run"
) -> None:
    """Write a separate capture, or none. Raises TlstaxError (USAGE if the file exists)."""
    end = schema.Meta("end_monotonic_ns", str(run.end_ns))
    write_whole(path, [*facts(target, rendered, run), *rows(messages, rendered, run), end])


def facts(target: "Target", rendered: "Rendered", run: "Run") -> Iterator[schema.Row]:
    """What was recorded, of which process, and with which probes."""
    yield from recording_facts(
        "bpftrace",
        LEVELS.get(rendered.name, "sample"),
        probe_kind="perf_event",
        # bpftrace does not count the hits of its probes, so they have no rows of their own.
        bpftrace_program=rendered.text,
        **({"bpftrace_sample_hz": hz[1]} if (hz := SAMPLED.search(rendered.text)) else {}),
    )
    found = {entry.library.kind: entry.library for entry in reversed(rendered.libraries)}
    yield describe(target, found.get("tls"), found.get("server"))
    yield from (
        schema.Gap(1, text.split(":")[0], text.partition(": ")[2]) for text in rendered.missing
    )
    yield schema.Collector(
        1, "bpftrace", run.tool.text, "finished", run.start_ns, run.end_ns, 0, rendered.name
    )
    level = LEVELS.get(rendered.name, "sample")
    yield schema.Window(WINDOW_ID, None, run.start_ns, run.end_ns, 1, level, "bpftrace")


def rows(
    messages: Messages, rendered: "Rendered", run: "Run", stacks: "Stacks | None" = None
) -> Iterator[schema.Row]:
    """The facts of the window; `stacks` continues the ids of an earlier program."""
    stacks = stacks or Stacks()
    yield from _handshakes(messages, stacks.window_id)
    made: list[schema.Row] = []
    for name, (kind, values) in maps(messages).items():
        for key, value in values.items():
            made += _fact(name, kind, key, value, stacks, rendered, run)
    yield from stacks.rows()
    yield from made
    window_id = stacks.window_id
    for key, count in unmatched(messages).items():
        yield schema.Loss(window_id, LOSSES.get(key, LOSSES["exit without entry"]), count)
    if lost := lost_events(messages):
        yield schema.Loss(window_id, "bpftrace_events_lost", lost)


def _handshakes(messages: Messages, window_id: int) -> Iterator[schema.Row]:
    lines = (str(m["data"]) for m in messages if m["type"] == "printf")
    found = (HANDSHAKE.match(line) for line in lines)
    for number, row in enumerate((row for row in found if row), start=1):
        tid, start_ns, took_us, calls, waits, network_us, other_us = map(int, row.groups()[:7])
        yield schema.Handshake(
            window_id - WINDOW_ID + number, window_id, tid, start_ns, start_ns + took_us * 1000,
            -1, -1, network_us * 1000, other_us * 1000, 0, 0, 0, 0, 0, calls, waits, row[8],
            "unknown", "unknown", "unknown", None,
        )  # fmt: skip


def _fact(
    name: str, kind: str, key: str, value: Any, stacks: "Stacks", rendered: "Rendered", run: "Run"
) -> Iterator[schema.Row]:
    """The rows of one value of one map."""
    try:
        if name == "@took_ns" and key in PHASES:
            yield schema.PhaseCount(stacks.window_id, key, int(value["count"]))
        if name == "@took_hist_ns" and key in PHASES:
            for bucket in value:
                low, high = max(0, int(bucket.get("min", 0))), int(bucket["max"]) + 1
                if bucket["count"]:
                    yield schema.Latency(stacks.window_id, key, low, high, int(bucket["count"]))
        elif name == "@samples":
            (phase,), user, host_costs = _split(key, 1)
            frames, kernel_part = user_frames(user), kernel_frames(host_costs)
            names = [one.symbol for one in kernel_part]
            call = syscall_of(names, frames[0].symbol if frames else "")
            pair = stacks.number(frames), stacks.number(kernel_part)
            yield schema.SampleStack(stacks.window_id, PHASES[phase], call, *pair, int(value))
        elif name == "@waited_ns" and rendered.name == "offcpu":
            (phase, state), user, _ = _split(key, 2)
            yield schema.OffcpuStack(
                stacks.window_id, PHASES[phase], STATES[state], -1,
                stacks.number(user_frames(user)), None, int(value["count"]), int(value["total"]),
            )  # fmt: skip
        elif kind in ("map", "stats") and name not in ("@unmatched", "@waited_ns"):
            yield from _metrics(f"{rendered.name} {name[1:]}", key, value, run)
    except (KeyError, IndexError, TypeError, ValueError):
        raise TlstaxError(
            "bpftrace: cannot parse its output",
            f"the map {name} holds {str(value)[:60]!r} under {key[:60]!r}",
            "Report this with the version of bpftrace",
            ExitCode.FAILED,
        ) from None


def _metrics(name: str, key: str, value: Any, run: "Run") -> Iterator[schema.Row]:
    facts = {"count": value["count"], "total": value["total"]} if isinstance(value, dict) else {}
    for suffix, number in (facts or {"count": value}).items():
        yield schema.Metric(
            run.end_ns, run.end_ns - run.start_ns, "bpftrace", key or "all", f"{name} {suffix}",
            float(number),
        )  # fmt: skip


def _split(key: str, numbers: int) -> tuple[list[int], str, str]:
    """A key of numbers and one or two stacks."""
    if "\n" not in key:  # bpftrace 0.23 escapes keys twice
        key = ESCAPED.sub(lambda found: UNESCAPED.get(found[1], found[1]), key)
    parts = key.split(",", numbers)
    user, _, host_costs = parts[numbers].partition("\n,")
    return [int(part) for part in parts[:numbers]], user, host_costs


class BpftraceFrame(NamedTuple):
    """One frame, as bpftrace prints it."""

    object: str
    symbol: str
    symbol_offset_bytes: int
    source: str


def user_frames(text: str) -> list[BpftraceFrame]:
    """The frames of `address symbol+offset (object)` lines, leaf first."""
    frames = []
    for line in _lines(text):
        if found := USER.fullmatch(line):
            frames.append(
                BpftraceFrame(_plain(found[4]), _plain(found[2]), int(found[3]), "dynsym")
            )
        elif found := UNNAMED.fullmatch(line):
            where = _plain(found[2])
            frames.append(BpftraceFrame(where, f"[{where.rpartition('/')[2]}]", 0, "none"))
    return frames


def kernel_frames(text: str) -> list[BpftraceFrame]:
    """The frames of `symbol+offset` lines, leaf first."""
    found = (KERNEL.fullmatch(line) for line in _lines(text))
    return [BpftraceFrame("kernel", one[1], int(one[2]), "kallsyms") for one in found if one]


class Stacks:
    """Gives ids to frames and stacks of one window."""

    def __init__(self, first_id: int = 0) -> None:
        """Ids of frames, stacks and the window begin after `first_id`."""
        self._first_id = first_id
        self.window_id = first_id + WINDOW_ID
        self._frames: dict[BpftraceFrame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def number(self, frames: Iterable[BpftraceFrame]) -> int | None:
        """The id of the stack of these frames; None without frames."""
        next_id = self._first_id + 1
        numbers = tuple(
            self._frames.setdefault(frame, next_id + len(self._frames)) for frame in frames
        )
        return self._stacks.setdefault(numbers, next_id + len(self._stacks)) if numbers else None

    def rows(self) -> Iterator[schema.Row]:
        """Every frame and stack so far."""
        for (where, symbol, offset, source), number in self._frames.items():
            yield schema.Frame(number, where, "", 0, symbol, offset, source, "")
        for frames, number in self._stacks.items():
            yield schema.Stack(number, " ".join(map(str, frames)))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip(" ,\t")]


def _plain(text: str) -> str:
    return text.removeprefix("[unknown]") or "unknown"
