# SPDX-License-Identifier: GPL-2.0-only
"""Reads kernel files whose file systems the host has not mounted, in a mount namespace of its own.

The namespace belongs to a child process and ends with it; the host's mounts do not change.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.host.tracefs import separate_mounts

__all__ = ["KernelTexts", "kernel_texts", "mount", "separate_mounts"]

LOCKDOWN: Final = Path("/sys/kernel/security/lockdown")
PREEMPT: Final = Path("/sys/kernel/debug/sched/preempt")
UPROBE_EVENTS: Final = Path("/sys/kernel/tracing/uprobe_events")
_PLACES: Final = (
    (LOCKDOWN, "securityfs", Path("/sys/kernel/security")),
    (PREEMPT, "debugfs", Path("/sys/kernel/debug")),
    (UPROBE_EVENTS, "tracefs", Path("/sys/kernel/tracing")),
)


class KernelTexts(NamedTuple):
    """Contents of files; None where one cannot be read."""

    lockdown: str | None
    preempt: str | None
    uprobe_events: str | None


def kernel_texts() -> KernelTexts:
    """Read the files, in a forked child. Without the right to mount, those that are mounted."""
    try:
        return run_in_child("Reading kernel settings", _read)
    except TlstaxError:
        return KernelTexts(None, None, None)


def mount(source: str, place: Path, kind: str, options: str = "") -> None:
    """Mount a file system; only after `separate_mounts`. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (source.encode(), os.fsencode(place), kind.encode(), ctypes.c_ulong(0))
    if libc.mount(*arguments, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind}: {os.strerror(number)}")


def _read() -> KernelTexts:
    is_separate = False
    texts: list[str | None] = []
    for path, kind, place in _PLACES:
        if kind == "debugfs" and texts[0] is not None and "[none]" not in texts[0]:
            texts.append(None)  # locked down: it would be refused, with a line in the kernel's log
            continue
        if not _is_there(path):
            with suppress(OSError):
                if not is_separate:
                    separate_mounts()
                    is_separate = True
                mount(kind, place, kind)
        texts.append(_text(path))
    return KernelTexts(*texts)


def _is_there(path: Path) -> bool:
    with suppress(OSError):
        return path.exists()
    return False


def _text(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return None
