# SPDX-License-Identifier: GPL-2.0-only
"""Files of other hosts, fetched without their debugging sections, by build-id.

An image has the bytes of the file at their places, and holes where nothing was fetched. Planning
reads it like the file, and `tlstax import` finds names in it.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError, cache_directory
from tlstax.collectors.binary.rooted_files import open_regular
from tlstax.collectors.host.kept_file import turn
from tlstax.collectors.process.build_id import build_id_of

FOLDER: Final = "images"
TURNS_FOLDER: Final = "image-turns"
IMAGES_MOST: Final = 512
IMAGES_BYTES_MOST: Final = 8 << 30
"""On the disk, holes left out. The 21 files of Debian's MariaDB 10.11 take 40 MB of it."""
FILE_BYTES_MOST: Final = 4 << 30
"""Of a file with code; a server with its debugging sections has 2 GB."""
_HEX: Final = frozenset("0123456789abcdef")
_TURNS_HEX: Final = 2
"""Digits of a build-id that name its lock: 256 files that stay, as removing one is a race."""


def kept_image(build_id: str) -> Path | None:
    """The image of a build that was fetched before."""
    if not build_id or not set(build_id) <= _HEX:
        return None
    path = cache_directory() / FOLDER / build_id
    with suppress(OSError):
        # The images that were used last are kept. Another recording may read this one: for it the
        # time of modification stays.
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
        return path
    return None


def file_of_build(build_id: str, paths: Iterable[str]) -> tuple[str, tuple[int, int]]:
    """A file of that build on this host, with its device and inode; "" if there is none.

    It is at one of these paths, or its image.
    """
    fetched = kept_image(build_id)
    for candidate in dict.fromkeys((*paths, *([str(fetched)] if fetched else []))):
        if not build_id or not candidate.startswith("/"):
            continue
        with suppress(OSError):
            descriptor = open_regular(candidate)  # another host says what to open here
            try:
                found = os.fstat(descriptor)
                if found.st_size <= FILE_BYTES_MOST and build_id_of(descriptor) == build_id:
                    return candidate, (found.st_dev, found.st_ino)
            finally:
                os.close(descriptor)
    return "", (0, 0)


def keep_image(build_id: str, write: Callable[[int], None]) -> Path:
    """Make an image: `write` is given its descriptor. Raises TlstaxError (IO).

    Of recordings that fetch a build at the same time the first one's image stays: the others may
    have examined it already.
    """
    folder = cache_directory() / FOLDER
    path, scratch = folder / build_id, folder / f".{build_id}.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write(descriptor)
            with suppress(FileExistsError):
                os.link(scratch, path)
        finally:
            os.close(descriptor)
            scratch.unlink(missing_ok=True)
        _let_go(folder)
    except OSError as error:
        raise TlstaxError(
            f"cannot write {path}",
            error.strerror or str(error),
            "Free some space there, or name another cache directory by XDG_CACHE_HOME",
            ExitCode.IO,
        ) from error
    return path


def _let_go(folder: Path) -> None:
    """Remove the images that were used least lately, beyond a number and a size."""
    left_bytes = IMAGES_BYTES_MOST
    for number, image in enumerate(sorted(folder.iterdir(), key=_used_ns, reverse=True)):
        with suppress(OSError):  # it is gone meanwhile
            left_bytes -= image.stat().st_blocks * 512
        is_begun = image.name.startswith(".")
        if number >= IMAGES_MOST or (number and left_bytes < 0 and not is_begun):
            image.unlink(missing_ok=True)


def fetching_turn(build_id: str, wait_s: float) -> AbstractContextManager[bool]:
    """Wait until no other process fetches that build: afterwards its image may be kept.

    Whoever gets no turn in time fetches the file, too. Two builds whose ids begin alike share a
    lock, and rarely wait for each other.
    """
    return turn(cache_directory() / TURNS_FOLDER / build_id[:_TURNS_HEX], wait_s)


def _used_ns(path: Path) -> int:
    """When an image was last used; one that is gone or begun meanwhile counts as just used."""
    with suppress(OSError):
        return path.stat().st_atime_ns
    return time.time_ns()
