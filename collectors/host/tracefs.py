# SPDX-License-Identifier: GPL-2.0-only
"""tracefs for the tools that read it, mainly bpftrace, on a host that has not mounted it.

Such a tool is started in its own mount namespace, in which tracefs is mounted. The host's mounts do
not change, and the namespace ends with the tool. Otherwise the tool sees what tlstax sees: the same
/proc, files and pids.
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
"""Where tools look. The second is only looked up in the list of mounts: opening it may mount it."""
REMEDY: Final = (
    f"Run as root with CAP_SYS_ADMIN, or mount it (mount -t tracefs tracefs {PLACE}), "
    "or use the native engine"
)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x20000  # linux/sched.h
_MS_REC, _MS_SLAVE = 0x4000, 0x80000  # linux/mount.h


def mounted_at() -> Path | None:
    """The path at which tracefs is mounted; None if at none that tools search."""
    for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
        _, place, kind = line.split(" ")[:3]
        if kind == "tracefs" and Path(place) in PLACES:
            return Path(place)
    return None


def separate_mounts() -> None:
    """Give this process its own mount namespace. Raises OSError if that is refused.

    Mounts and unmounts of the host propagate to it, so that no mount is kept busy; mounts
    made in it do not propagate to the host.
    """
    _call("unshare", _CLONE_NEWNS)
    _call("mount", None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)


def prepare_tool() -> None:
    """For `preexec_fn` of a tool that may read tracefs: it ends with tlstax, and finds tracefs.

    If tracefs cannot be mounted the tool starts without it; call `require_tracepoints` first
    for a tool that needs it.
    """
    die_with_parent()
    if mounted_at() is None:
        with suppress(OSError):
            _mount()


def require_tracepoints(names: Sequence[str]) -> None:
    """Raise TlstaxError (HOST) unless a tool started with `prepare_tool` finds all of them.

    A name is `group:name`. The test runs in a child process.
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
    """A sentence part on where tools find tracefs. Raises TlstaxError (HOST) if nowhere."""
    run_in_child("Mounting tracefs", lambda: _missing([]))
    if place := mounted_at():
        return f"mounted on {place}"
    return "not mounted; tlstax mounts it for each tool in a private mount namespace"


def _missing(names: Sequence[str]) -> list[str]:
    """The tracepoints that do not exist. Run in a child: it changes the mounts."""
    place = mounted_at()
    try:
        if place is None:
            place = _mount()
        events = place / "events"
        if not events.is_dir():
            raise OSError(errno.EACCES, "it has no events directory, as under kernel lockdown")
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
