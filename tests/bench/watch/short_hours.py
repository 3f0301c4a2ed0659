# SPDX-License-Identifier: GPL-2.0-only
"""A `tlstax watch` whose hours are short, and which writes down where its memory is.

`python -c "from tlstax.tests.bench.watch import short_hours; short_hours.watch(SETTINGS)"` is a
watch for which an hour is HOUR_S seconds, a day 24 of these, and a minute a 60th part; windows,
samples and walks of stacks come as much more often, so that an hour has as many of them. The
constants are changed before the modules are imported that have copies of them. Nothing else is:
recorder, captures, rollups, and the processes that name functions and explain hours are real.
"""

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

HOUR_S: Final = 120
"""Short minutes have 2 s: rollups are written as often."""
_REAL_HOUR_S: Final = 3600
_TIMES: Final = _REAL_HOUR_S // HOUR_S
_RAW_HOUR: Final = "tlstax.analysis.fleet.continuous.raw_hour"
_LOOK_S: Final = 2.0


def shorten() -> None:
    """Let an hour be HOUR_S seconds for what is imported from here on."""
    assert _RAW_HOUR not in sys.modules, "it has copies of the constants"
    from tlstax.analysis.fleet import columns

    second_ns = columns.SECOND_NS
    columns.HOUR_NS = HOUR_S * second_ns  # type: ignore[misc]
    columns.DAY_NS = 24 * columns.HOUR_NS  # type: ignore[misc]
    columns.TIERS.update({"1m": HOUR_S // 60, "1h": HOUR_S})
    columns.TIERS.update({"10s": 1})  # the shortest that there is; rollups do not have it
    from tlstax.analysis.fleet.continuous import triggers

    triggers.MINUTE_NS = columns.HOUR_NS // 60  # type: ignore[misc]


def watch(account: str, trace: bool, arguments: list[str]) -> int:
    """Run it with these arguments; the account of its memory goes to a file of that name."""
    shorten()
    from tlstax.analysis.fleet.continuous import raw_hour
    from tlstax.collectors.commands import watch as command
    from tlstax.collectors.watching import outlet

    raw_hour.MODULE = __name__  # type: ignore[misc]
    command.WINDOW_S /= _TIMES  # type: ignore[misc]
    command._EVERY_S["60s"] = HOUR_S // 60
    outlet.SAMPLE_HZ *= _TIMES  # type: ignore[misc]
    outlet.WALKS_MOST *= _TIMES  # type: ignore[misc]
    threading.Thread(target=_look, args=[Path(account), trace], daemon=True).start()
    from tlstax.__main__ import main

    return main(["watch", *arguments])


# ---- where its memory is ----


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc: bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _account(mallinfo: Any) -> dict[str, float]:
    """Bytes and counts of this process, now."""
    smaps: dict[str, int] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, size, _ = line.split()
        smaps[name] = int(size) * 1024
    found = mallinfo()
    arrow: Any = sys.modules.get("pyarrow")
    return {
        "wall_s": time.time(),
        "resident_bytes": smaps["Rss:"],
        "anonymous_bytes": smaps["Anonymous:"],
        "file_bytes": smaps["Rss:"] - smaps["Anonymous:"],
        "malloc_used_bytes": found.uordblks + found.hblkhd,
        "malloc_free_bytes": found.fordblks,
        "python_blocks_count": sys.getallocatedblocks(),
        "arrow_bytes": arrow.total_allocated_bytes() if arrow else 0,
        "files_count": len(os.listdir("/proc/self/fd")),
        "mappings_count": Path("/proc/self/maps").read_bytes().count(b"\n"),
        "threads_count": threading.active_count(),
        "recorder_bytes": _recorder_bytes(),
    }


def _recorder_bytes() -> int:
    """Anonymous memory and files of the recorders: children of this process."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            for child in task.joinpath("children").read_text().split():
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if b"recorder" in words[0]:
                    pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
                    total += pages * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):  # it has ended meanwhile
            continue
    return total


def _look(account: Path, trace: bool) -> None:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    if trace:
        import tracemalloc

        tracemalloc.start(12)
    with account.open("a") as file:
        while True:
            print(json.dumps(_account(mallinfo)), file=file, flush=True)
            if trace and account.with_suffix(".ask").exists():
                account.with_suffix(".ask").rename(account.with_suffix(".taken"))
                import gc
                import tracemalloc

                gc.collect()
                tracemalloc.take_snapshot().dump(f"{account}.{time.time():.0f}.trace")
            time.sleep(_LOOK_S)


if __name__ == "__main__":  # the process that explains an hour
    shorten()
    from tlstax.analysis.fleet.continuous import raw_hour

    sys.exit(raw_hour._main())
