# SPDX-License-Identifier: GPL-2.0-only
"""Files that are kept for the next run: private, whole or not there."""

import os
from pathlib import Path


def keep_file(path: Path, content: bytes, folder_mode: int = 0o700) -> None:
    """Put a file there that only its owner can read; an earlier one is replaced at once.

    `folder_mode`: of its folder, if that is made. Raises OSError; then nothing is left of the new
    one.
    """
    path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)  # of a process that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(scratch, flags, 0o600), "wb") as file:
            file.write(content)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
