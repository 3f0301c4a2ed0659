# SPDX-License-Identifier: GPL-2.0-only
"""The output of `perf script` as samples, read line by line: a recording may have millions.

Asked for with FIELDS, a sample is one line with thread, seconds, period and event, one indented
line for each frame, leaf first, and an empty line. What perf prints by itself, with the command
before the thread, the CPU after it and microseconds, is read, too. Events that were counted
together (a group, of which the first one samples) give one such block each, with the same time; the
period is what was counted since. perf-script(1) documents the fields; their form was read from
perf 6.1 and 6.12.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError

FIELDS: Final = (
    *("-F", "tid,time,period,event,ip,sym,symoff,dso"),
    *("--ns", "--no-inline", "--no-demangle"),
)
KERNEL_START: Final = 1 << 63
"""Kernel addresses begin here on every 64-bit machine."""
UNNAMED: Final = "[unknown]"

_HEAD: Final = re.compile(
    r"\s*(?:\S.*?\s)??(?:\d+/)?(?P<tid>\d{1,10})\s+(?:\[\d+\]\s+)?(?P<s>\d{1,10})\.(?P<ns>\d{6}(?:\d{3})?):"
    r"\s+(?:(?P<period>\d{1,18})\s+)?(?P<event>\S+?):\s*$"
)
_FRAME: Final = re.compile(
    r"\s+(?P<ip>[0-9a-f]{1,16}) (?P<symbol>.*?)(?:\+(?P<offset>0x[0-9a-f]{1,15}))?"
    r" \((?P<object>.*)\)\s*$"
)


MOST_KNOWN: Final = 1 << 18
"""Frames that are cached by line: code that is generated at run time has ever new lines."""


class PerfFrame(NamedTuple):
    """One frame; user addresses are those of the file."""

    address: int
    symbol: str
    """The name of the linker's symbol, or UNNAMED."""
    symbol_offset_bytes: int
    object: str
    """Path, or a name in brackets if there is no file."""

    @property
    def is_kernel(self) -> bool:
        """Whether it is a frame of the kernel."""
        return self.address >= KERNEL_START


class PerfSample(NamedTuple):
    """One sample; frames are leaf first, kernel before user."""

    tid: int
    time_ns: int
    event: str
    frames: tuple[PerfFrame, ...]
    period: int = 0
    """Events since the last sample; of clocks: ns."""

    @property
    def counter(self) -> str:
        """The event without its modifiers: cycles for cycles:ppp."""
        return self.event.partition(":")[0]


def parse(lines: Iterable[str]) -> Iterator[PerfSample]:
    """The samples. Raises TlstaxError (FAILED) at a line of unknown form."""
    head: re.Match[str] | None = None
    frames: list[PerfFrame] = []
    known: dict[str, PerfFrame] = {}  # the same lines occur again and again
    for line in lines:
        frame = known.get(line)
        if frame is not None and head is not None:
            frames.append(frame)
        elif not line.strip():
            if head is not None:
                yield _sample(head, frames)
            head, frames = None, []
        elif head is not None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[line] = _frame(line)
            frames.append(known[line])
        else:
            head = _HEAD.match(line)
            if head is None:
                raise _strange(line)
    if head is not None:
        yield _sample(head, frames)


def begins_sample(line: str) -> bool:
    """Whether a line is the first of a sample."""
    return _HEAD.match(line) is not None


def _sample(head: re.Match[str], frames: list[PerfFrame]) -> PerfSample:
    time_ns = int(head["s"]) * 1_000_000_000 + int(head["ns"].ljust(9, "0"))
    period = int(head["period"] or 0)
    return PerfSample(int(head["tid"]), time_ns, head["event"], tuple(frames), period)


def _frame(line: str) -> PerfFrame:
    found = _FRAME.match(line)
    if found is None:
        raise _strange(line)
    return PerfFrame(
        int(found["ip"], 16), found["symbol"], int(found["offset"] or "0", 16), found["object"]
    )


def _strange(line: str) -> TlstaxError:
    return TlstaxError(
        "cannot parse the output of perf script",
        f"unknown form of line: {line.strip()[:80]!r}",
        "Report it with `perf --version`; the rest of the capture is complete",
        ExitCode.FAILED,
    )
