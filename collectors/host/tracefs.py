# SPDX-License-Identifier: GPL-2.0-only
"""tracefs for the tools that read it, bpftrace above all, where the host has not mounted it.

Such a tool is started in a mount namespace of its own, in which tracefs is mounted. The host's
mounts stay as they are, and the namespace ends with the tool. It otherwise sees what tlstax sees:
the same /proc and the same files, under the same pid as without.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.host.tool_process import die_with_parent

MOUNTS: Final = Path("/proc/self/mounts")
PLACE: Final = Path("/sys/kernel/tracing")
PLACES: Final = (PLACE, Path("/sys/kernel/debug/tracing"))
"""Where tools look. The second is read in the list of mounts only: to open it can mount it."""
REMEDY: Final = (
    f"Run as root with CAP_SYS_ADMIN, or mount it (mount -t tracefs tracefs {PLACE}), "
    "or use the native engine"
)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x20000  # linux/sched.h
_MS_REC, _MS_SLAVE = 0x4000, 0x80000  # linux/mount.h


def mounted_at() -> Path | None:
    """Where this process finds tracefs mounted; None if nowhere that tools look."""
    for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
        _, place, kind = line.split(" ")[:3]
        if kind == "tracefs" and Path(place) in PLACES:
            return Path(place)
    return None


def separate_mounts() -> None:
    """Give this process a mount namespace of its own. Raises OSError if that is refused.

    What the host mounts and unmounts is still seen here, so that nothing is kept busy; what is
    mounted here is not seen by the host.
    """
    _call("unshare", _CLONE_NEWNS)
    _call("mount", None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)


def prepare_tool() -> None:
    """For `preexec_fn` of a tool that may read tracefs: it ends with us, and finds tracefs.

    Where tracefs cannot be mounted the tool is started without it: `require_tracepoints` says
    before whether a tool that cannot do without will find it.
    """
    die_with_parent()
    if mounted_at() is None:
        with suppress(OSError):
            _mount()


def require_tracepoints(names: Sequence[str]) -> None:
    """Raise TlstaxError (HOST) unless a tool started with `prepare_tool` finds all of them.

    A name is `group:name`. It is tried in a child process.
    """
    missing = run_in_child("Looking for tracepoints", lambda: _missing(names)) if names else []
    if missing:
        raise TlstaxError(
            f"the tracepoint {missing[0]} cannot be used",
            "this kernel does not have it",
            "Choose another program, or the native engine (`tlstax attach`)",
            ExitCode.HOST,
        )


def availability() -> str:
    """Where tools find tracefs, in words. Raises TlstaxError (HOST) if they do not find it."""
    run_in_child("Mounting tracefs", lambda: _missing([]))
    if place := mounted_at():
        return f"mounted on {place}"
    return "not mounted; tlstax mounts it for each tool in a mount namespace of its own"


def _missing(names: Sequence[str]) -> list[str]:
    """Those of the tracepoints that are not there. Run in a child, whose mounts it changes."""
    place = mounted_at()
    try:
        if place is None:
            place = _mount()
        events = place / "events"
        if not events.is_dir():
            raise OSError(errno.EACCES, "it shows no events, as under kernel lockdown")
    except OSError as error:
        lack = f"tracefs on {place} cannot be read" if place else "tracefs cannot be mounted"
        raise TlstaxError(
            "tracepoints cannot be used", f"{lack}: {error.strerror}", REMEDY, ExitCode.HOST
        ) from None
    return [name for name in names if not events.joinpath(*name.split(":")).is_dir()]


def _mount() -> Path:
    """Mount tracefs in a mount namespace that this process enters for it. Raises OSError."""
    if "\ttracefs\n" not in Path("/proc/filesystems").read_text():
        raise OSError(errno.ENODEV, "this kernel has none (CONFIG_FTRACE)")
    separate_mounts()
    _call("mount", b"tracefs", os.fsencode(PLACE), b"tracefs", ctypes.c_ulong(0), None)
    return PLACE


def _call(name: str, *arguments: object) -> None:
    """A function of libc that returns 0. Raises OSError."""
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
