# SPDX-License-Identifier: GPL-2.0-only
"""Files of other hosts, fetched without their debugging sections, by build-id.

An image has the bytes of the file at their places, and holes where nothing was fetched. Planning
reads it like the file, and `tlstax import` finds names in it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError, cache_directory

FOLDER: Final = "images"
IMAGES_MOST: Final = 512
_HEX: Final = frozenset("0123456789abcdef")


def kept_image(build_id: str) -> Path | None:
    """The image of a build that was fetched before."""
    if not build_id or not set(build_id) <= _HEX:
        return None
    path = cache_directory() / FOLDER / build_id
    with suppress(OSError):
        os.utime(path)  # the images that were used last are kept
        return path
    return None


def keep_image(build_id: str, write: Callable[[int], None]) -> Path:
    """Make an image: `write` is given its descriptor. Raises TlstaxError (IO)."""
    folder = cache_directory() / FOLDER
    path, scratch = folder / build_id, folder / f".{build_id}.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write(descriptor)
            scratch.replace(path)
        finally:
            os.close(descriptor)
            scratch.unlink(missing_ok=True)
        by_age = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-IMAGES_MOST]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise TlstaxError(
            f"cannot write {path}",
            error.strerror or str(error),
            "Free some space there, or name another cache directory by XDG_CACHE_HOME",
            ExitCode.IO,
        ) from error
    return path
