# SPDX-License-Identifier: GPL-2.0-only
"""The parent of a private server, which outlives a killed tlstax and cleans up after it.

tlstax starts this file as a program of its own (standard library only, no tlstax import), so
that there is always somebody to end the server and to remove its directory:
- tlstax is told to stop, fails, or is killed, even by SIGKILL: its process handle (pidfd) or its
  end of the pipe tells, and the server is stopped and the directory removed;
- this process is killed: the kernel kills the server with it (PR_SET_PDEATHSIG); what is left
  is a directory, which `tlstax lab clean` removes.

    supervisor.py OWNER_PID SPECIFICATION.json

The specification holds `directory` (removed at the end), `uid`, `gid` (null: stay who we are),
`root` (null: ours; else steps are run in it, by chroot), `namespace` (null: ours; else the name of
the network namespace that steps are run in), `working_directory`, `log` and `steps`: commands, of
which all but the last must succeed before the next begins. Each line on standard output is one
event: `started STEP PID`, `finished STEP STATUS`. A line or the end of standard input asks to
stop.

tlstax's other children, who need no supervisor, take `die_with_parent` and `stop` from here, as
this file takes nothing from elsewhere.
"""

import ctypes
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
STOP_PATIENCE_S = 20.0
LIBC = ctypes.CDLL(None, use_errno=True)


def become_server(
    namespace: str | None, root: str | None, uid: int | None, gid: int | None
) -> None:
    """Runs in the child between fork and exec.

    Namespace and root first, for which the old user is needed, and last what a change of user would
    clear again: the kernel kills the child when this process ends.
    """
    if namespace is not None:
        # os.setns came with Python 3.12.
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
        if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    if root is not None:
        os.chroot(root)  # the working directory is below it already
    if uid is not None and gid is not None:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    die_with_parent()


def die_with_parent(by: int = signal.SIGKILL) -> None:
    """Between fork and exec: the kernel sends this process a signal when its parent ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, by)


def start(specification: dict[str, Any], command: list[str]) -> "subprocess.Popen[bytes]":
    """Start one step as the server's user, in a session of its own, writing to the log."""
    identity = tuple(specification[name] for name in ("namespace", "root", "uid", "gid"))
    become = functools.partial(become_server, *identity)
    with Path(specification["log"]).open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=specification["working_directory"],
            start_new_session=True,
            preexec_fn=become,  # safe: this process has one thread
        )


def stop(child: "subprocess.Popen[bytes]", patience_s: float = STOP_PATIENCE_S) -> None:
    """End the child's whole session: ask, wait, then kill."""
    for name, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, name)
        try:
            child.wait(timeout=wait_s)
            return
        except subprocess.TimeoutExpired:
            continue


def tell(event: str) -> None:
    """Report to the owner, who may be gone."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), f"{event}\n".encode())


def watch(child: "subprocess.Popen[bytes]", owner_fd: int) -> bool:
    """Wait for the child, the owner's end or a request to stop; True if the child ended itself."""
    child_fd = os.pidfd_open(child.pid)
    try:
        ready, _, _ = select.select([child_fd, owner_fd, sys.stdin.fileno()], [], [])
    finally:
        os.close(child_fd)
    return ready == [child_fd]


def supervise(specification: dict[str, Any], owner_fd: int) -> None:
    """Run the steps one after the other until one fails, the last ends, or a stop is due."""
    for number, command in enumerate(specification["steps"]):
        child = start(specification, command)
        tell(f"started {number} {child.pid}")
        if not watch(child, owner_fd):
            stop(child)
            tell(f"finished {number} {child.returncode}")
            return
        tell(f"finished {number} {child.wait()}")
        if child.returncode != 0:
            break
    # The owner still wants to read the log: wait until it says so or goes away.
    select.select([owner_fd, sys.stdin.fileno()], [], [])


def main() -> int:
    """Supervise, then remove the directory."""
    owner_pid, specification_path = int(sys.argv[1]), Path(sys.argv[2])
    specification = json.loads(specification_path.read_text())
    for name in (signal.SIGINT, signal.SIGHUP):  # these are for the owner, who then tells us
        signal.signal(name, signal.SIG_IGN)
    try:
        owner_fd = os.pidfd_open(owner_pid)
        if os.getppid() == owner_pid:
            supervise(specification, owner_fd)
    except ProcessLookupError:
        pass  # the owner died before we looked
    finally:
        shutil.rmtree(specification["directory"], ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
