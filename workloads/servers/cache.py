# SPDX-License-Identifier: GPL-2.0-only
"""Where fetched servers are kept, and how two runs of tlstax stay out of each other's way there.

CACHE/servers/NAME-VERSION/ is an unpacked server, complete or not there at all; CACHE is
tlstax.cache_directory().
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tlstax import cache_directory

BUILDING = ".fetching-"  # how a directory begins in which one is being made


def server_cache() -> Path:
    """Where servers are kept."""
    return cache_directory() / "servers"


@contextmanager
def only_builder(place: Path) -> Iterator[str]:
    """Hold the right to make `place`; the prefix of a directory next to it to make it in.

    Waits while another process makes it. What one that was killed left behind is removed.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    prefix = f"{BUILDING}{place.name}-"
    with (place.parent / f".lock-{place.name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in place.parent.glob(f"{prefix}*"):
            shutil.rmtree(left)
        yield prefix


def size_bytes(place: Path) -> int:
    """What a directory takes on disk."""
    total = 0
    for directory, _, names in os.walk(place):
        total += sum(os.lstat(os.path.join(directory, name)).st_blocks * 512 for name in names)
    return total


def users_of(place: Path) -> list[int]:
    """The processes whose program lies below `place`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                program = os.readlink(entry / "exe")
            except OSError:  # gone, a kernel thread, or not ours
                continue
            if Path(program).is_relative_to(place):
                found.append(int(entry.name))
    return found
