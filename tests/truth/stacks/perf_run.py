# SPDX-License-Identifier: GPL-2.0-only
"""`perf record --call-graph dwarf,16384` of a process, read as paths of functions."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax.tests.truth.stacks.paths import (
    NOT_DESCRIBED,
    Functions,
    Route,
    file_name,
    outermost_first,
)

COPY_BYTES: Final = 16384
"""Of each stack, from the stack pointer on."""
KERNEL: Final = 1 << 63
_PAGE: Final = 4096
_BUFFER: Final = "16M"
_FRAME: Final = re.compile(r"^\s+([0-9a-f]+) \((.*)\)$")
_LOST: Final = re.compile(r"PERF_RECORD_LOST(?:_SAMPLES)? lost (\d+)")
_PATIENCE_S: Final = 120


@dataclass
class PerfSeen:
    """What perf found in the user stacks of one load."""

    samples: int = 0
    whole: int = 0
    lost: int = 0  # by its own count
    routes: Counter[Route] = field(default_factory=Counter)
    """Whole stacks of code with call frame information: other code may be walked by luck only."""
    broken: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Others, by the number of frames and the outermost function."""


class PerfRun:
    """perf, recording a process until `end`."""

    def __init__(self, pid: int, hz: int, path: Path) -> None:
        """Returns when it records.

        It samples all CPUs, and the process is chosen afterwards. The clock of a thread (`-p`) that
        runs out while the thread leaves its CPU ticks 10 us after its return (Linux,
        perf_swevent_start_hrtimer): what it does when it is woken has too many samples.
        OSError if perf ends before that.
        """
        self._path, self._pid = path, pid
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        command = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", str(hz), "-m", _BUFFER]
        command += ["--delay", "-1", "--control", f"fd:{orders},{answers}", "-a"]
        self._process = subprocess.Popen(
            [*command, "--call-graph", f"dwarf,{COPY_BYTES}", "-o", str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(orders, answers),
        )
        os.close(orders)
        os.close(answers)
        self._tell("enable")

    def _tell(self, order: str) -> None:
        """Give an order, and wait until it is followed."""
        os.write(self._orders, f"{order}\n".encode())
        if not os.read(self._answers, 16).startswith(b"ack"):
            raise OSError("perf record ended before it recorded")

    def end(self) -> None:
        """Stop recording."""
        self._tell("disable")
        self._process.send_signal(2)
        self._process.wait(_PATIENCE_S)
        os.close(self._orders)
        os.close(self._answers)

    def read(self, seen: PerfSeen, starts: Collection[int], functions: Functions) -> None:
        """Add what was recorded. `starts`: addresses that stacks of whole walks end in."""
        command = ["perf", "script", "--no-inline", "--show-lost-events", "-F", "ip,dso"]
        command += ["--pid", str(self._pid), "-i", str(self._path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seen.lost += sum(int(count) for count in _LOST.findall(text))
        ends = {address % _PAGE for address in starts}
        add_text(seen, text, ends, functions)


def add_text(seen: PerfSeen, text: str, ends: Collection[int], functions: Functions) -> None:
    """Add the stacks of `perf script -F ip,dso`. `ends`: places in their pages."""
    for block in text.split("\n\n"):
        frames = [
            (int(found[1], 16), found[2])
            for line in block.splitlines()
            if (found := _FRAME.match(line)) and not int(found[1], 16) & KERNEL
        ]
        if not frames:
            continue
        seen.samples += 1
        # perf prints offsets in the file, those of callers less 1.
        places = [functions.at_offset(file_name(path), offset) for offset, path in frames]
        if not {frames[-1][0] % _PAGE, (frames[-1][0] + 1) % _PAGE} & set(ends):
            seen.broken[len(frames), functions.name(places[-1])] += 1
            continue
        seen.whole += 1
        if places[0].start != NOT_DESCRIBED:
            seen.routes[outermost_first(places)] += 1
