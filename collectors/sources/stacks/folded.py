# SPDX-License-Identifier: GPL-2.0-only
"""Folded stacks as rows of a capture: `frame;frame;frame COUNT`, root first, one stack a line.

The form of FlameGraph's stackcollapse scripts, inferno and profile-bpfcc -f. Frames that carry the
marks of the kernel ("_[k]" or "_k" at the end) are kernel frames. Names are all there is: phases
come from the boundary functions, as for perf, and a count is a number of samples, unless the file
was written by tlstax, whose numbers are nanoseconds and whose first frame is a workload.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.sources.perf.rows import PerfRows
from tlstax.collectors.sources.perf.script import KERNEL_START, PerfFrame, PerfSample

LINE: Final = re.compile(r"(?P<stack>\S.*?) (?P<count>\d{1,18})(?:\.\d+)?")
_KERNEL: Final = re.compile(r"_(?:\[k\]|k)$")
MOST_SAMPLES: Final = 1 << 32
"""A larger number in one line is no count of samples."""


def read(lines: Iterable[str], rows: PerfRows) -> None:
    """Add every stack. Raises TlstaxError (FAILED) at the first line that is no folded stack."""
    addresses: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found = LINE.fullmatch(line.rstrip("\r\n"))
        if found is None:
            raise TlstaxError(
                "cannot read the folded stacks",
                f"line {number} is not `frame;frame COUNT`: {line.strip()[:80]!r}",
                "Write the file with stackcollapse-perf.pl, inferno-collapse-perf or profile -f",
                ExitCode.FAILED,
            )
        count = int(found["count"])
        if count >= MOST_SAMPLES:
            raise TlstaxError(
                "cannot read the folded stacks",
                f"line {number} has {count:,} samples: the numbers are durations",
                "Import a file whose numbers are samples; files that tlstax wrote need no import",
                ExitCode.FAILED,
            )
        frames = tuple(_frames(found["stack"].split(";"), addresses))
        rows.add(PerfSample(0, 0, "cpu-clock", frames), count)


def _frames(names: list[str], addresses: dict[str, int]) -> Iterator[PerfFrame]:
    """The frames, kernel before user, each leaf first.

    A name is a place here, as nothing is known of addresses.
    """
    leaf_first = [name for name in reversed(names) if name]
    for is_kernel in (True, False):
        for name in leaf_first:
            if bool(_KERNEL.search(name)) == is_kernel:
                address = addresses.setdefault(name, len(addresses) + 1)
                address += KERNEL_START if is_kernel else 0
                yield PerfFrame(address, _KERNEL.sub("", name), 0, "kernel" if is_kernel else "?")
