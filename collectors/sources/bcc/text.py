# SPDX-License-Identifier: GPL-2.0-only
"""The output of bcc's and libbpf-tools' tools, parsed to stacks, histograms and losses.

- Stacks in lines (libbpf-tools): frames leaf first, kernel before user; `- comm (tid)`;
  the value; an empty line. With -v offcputime gives each frame its address.
- Folded stacks (bcc, -f): `comm;root;...;leaf;-;kernel root;...;kernel leaf value`.
- Histograms of both: `low -> high : count |***|`, after a line with their unit, and of block
  devices after `disk = name`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import whole_number

UNNAMED: Final = "[unknown]"
KERNEL_START: Final = 1 << 63
"""Kernel addresses begin here on every 64-bit machine."""

_FRAME: Final = re.compile(
    r"    (?:#\d+\s+)?(?:0x(?P<address>[0-9a-f]+)(?: |$))?(?P<name>\S.*?)?(?:\+0x[0-9a-f]+)?$"
)
_OBJECT: Final = re.compile(r" ?\([^()]*\+0x[0-9a-f]+\)$")
_THREAD: Final = re.compile(r"    -\s+(?P<comm>.*) \((?P<tid>\d+)\)$")
_VALUE: Final = re.compile(r" {8}(?P<value>\d+)$")
_DELIMITERS: Final = ("--", "-")
_BANNER: Final = re.compile(r"(?:Tracing|Sampling) .*|\^C|")
_MISSED: Final = re.compile(r"\[Missed (?:User|Kernel) Stack\]")
_WARNED: Final = re.compile(r"WARNING: (\d+) stack traces (?:lost|could not)")
# Where a kernel stack begins: the entry of a system call, an exception, an interrupt or a thread.
_KERNEL_ROOT: Final = re.compile(
    r"entry_SYSCALL\w*|entry_INT80\w*|asm_\w+|ret_from_fork\w*|el0t?_\w+|common_interrupt_return"
)
_BUCKET: Final = re.compile(r"\s*(\d+) -> (\d+)\s+: (\d+)\s+\|")
_UNIT: Final = re.compile(r"\s*(nsec|usec|msec)s?\s+: count\s+distribution")
_DISK: Final = re.compile(r"disk = (?:b?'([^']*)'|(\S+))")
_UNIT_NS: Final = {"nsec": 1, "usec": 1_000, "msec": 1_000_000}


class BccFrame(NamedTuple):
    """One frame: its address if the tool prints one, else the printed name of the function."""

    address: int
    name: str


class BccStack(NamedTuple):
    """A stack with its value (time or samples); frames are leaf first."""

    comm: str
    tid: int
    """The thread (offcputime) or the process (profile); 0 if it is not printed."""
    user: tuple[BccFrame, ...]
    kernel: tuple[BccFrame, ...]
    value: int


class Bucket(NamedTuple):
    """A bucket of a histogram; `high_ns` is exclusive."""

    disk: str
    low_ns: int
    high_ns: int
    times: int


def parse_stacks(text: str) -> Iterator[BccStack]:
    """Stacks in lines or folded. Raises TlstaxError (FAILED) at a line of another form."""
    lines = text.splitlines()
    if any(_THREAD.match(line) for line in lines):
        return _in_lines(lines)
    return _folded(lines)


def _in_lines(lines: Iterable[str]) -> Iterator[BccStack]:
    frames: list[BccFrame] = []
    thread: re.Match[str] | None = None
    for line in lines:
        if thread is None and (found := _THREAD.match(line)):
            thread = found
        elif thread is not None and (found := _VALUE.match(line)):
            user, kernel = _split(frames)
            yield BccStack(thread["comm"].strip(), int(thread["tid"]), user, kernel, int(found[1]))
            frames, thread = [], None
        elif thread is None and line.startswith("    ") and (frame := _frame(line)):
            frames.append(frame)
        elif thread is not None or not _BANNER.fullmatch(line):
            raise _strange(line)


def _frame(line: str) -> BccFrame | None:
    found = _FRAME.fullmatch(_OBJECT.sub("", line))
    if found is None or (found["address"] is None and found["name"] is None):
        return None
    return BccFrame(int(found["address"] or "0", 16), found["name"] or UNNAMED)


def _split(frames: list[BccFrame]) -> tuple[tuple[BccFrame, ...], tuple[BccFrame, ...]]:
    """User and kernel frames, separated by delimiter, address or known kernel entry points."""
    for at, frame in enumerate(frames):
        if frame.name in _DELIMITERS:
            return _kept(frames[at + 1 :]), _kept(frames[:at])
    if any(frame.address for frame in frames):
        kernel = [frame for frame in frames if frame.address >= KERNEL_START]
        return _kept(frames[len(kernel) :]), _kept(kernel)
    roots = [at for at, frame in enumerate(frames) if _KERNEL_ROOT.fullmatch(frame.name)]
    at = roots[-1] + 1 if roots else 0
    return _kept(frames[at:]), _kept(frames[:at])


def _kept(frames: list[BccFrame]) -> tuple[BccFrame, ...]:
    return tuple(frame for frame in frames if not _MISSED.fullmatch(frame.name))


def _folded(lines: Iterable[str]) -> Iterator[BccStack]:
    for line in lines:
        if _BANNER.fullmatch(line):
            continue
        stack, _, value = line.rpartition(" ")
        comm, *names = stack.split(";")
        number = whole_number(value)
        if number is None or not comm:
            raise _strange(line)
        frames = [BccFrame(0, name.removesuffix("_[k]")) for name in reversed(names)]
        user, kernel = _split(frames)
        yield BccStack(comm, 0, user, kernel, number)


def parse_histogram(text: str) -> list[Bucket]:
    """The buckets that are not empty. Raises TlstaxError (FAILED) if it is no histogram."""
    buckets: list[Bucket] = []
    disk, unit_ns = "", 0
    for line in text.splitlines():
        if found := _BUCKET.match(line):
            if not unit_ns:
                raise _strange(line)
            low, high, count = map(int, found.groups())
            if count:
                buckets.append(Bucket(disk, low * unit_ns, (high + 1) * unit_ns, count))
        elif found := _UNIT.match(line):
            unit_ns = _UNIT_NS[found[1]]
        elif found := _DISK.match(line.strip()):
            disk = found[1] or found[2]
        elif "->" in line:
            raise _strange(line)
    return buckets


def missed_stacks(output: str, complaints: str) -> int:
    """The number of stacks that the tool reports as lost."""
    warned = sum(int(count) for count in _WARNED.findall(complaints))
    return warned or len(_MISSED.findall(output)) + len(_MISSED.findall(complaints))


def _strange(line: str) -> TlstaxError:
    return TlstaxError(
        "cannot parse the output of the tool",
        f"unknown form of line: {line.strip()[:80]!r}",
        "Report it with the version of the tool; the rest of the capture is complete",
        ExitCode.FAILED,
    )
