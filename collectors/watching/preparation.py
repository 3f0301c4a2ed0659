# SPDX-License-Identifier: GPL-2.0-only
"""Examines a server and plans its probes, in a process of its own.

Preflight and planning fork, which a process with threads must not do, and need memory that a
process which stays for weeks should not keep. So each start of the server is prepared by
`python -m tlstax.collectors.watching.preparation PID LEVEL 0|1 HAZARD...`, which answers with a
pickle.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.child import Failure
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety, at_level
from tlstax.collectors.process.target import Target, require_host_pids
from tlstax.collectors.process.thread_room import thread_room
from tlstax.collectors.recording.safe_request import preflight
from tlstax.collectors.recording.stream.tables_file import process_tables, tables_bytes
from tlstax.probes.model import Level

_UNREADABLE: Final = (
    *(pickle.UnpicklingError, AttributeError, EOFError, ImportError),
    *(LookupError, TypeError, ValueError),
)
"""What pickle raises for an answer that another version of tlstax wrote, or that was cut."""
SHORTAGE: Final = (
    "Check its limits of processes and open files (TasksMax and LimitNOFILE of a unit), and memory"
)
"""What to do where the host gives no process, file or memory."""


class Prepared(NamedTuple):
    """What is needed to record a server."""

    target: Target
    plan: Plan
    safety: Safety
    level: Level
    thread_room: int
    may_be_traced: bool
    tables: bytes | None
    """Unwind tables of what is mapped now; None: stacks are walked by frame pointers."""


def prepare(
    pid: int, level: Level, accepted: Sequence[str] = (), *, networks: bool = False
) -> Prepared:
    """Examine process `pid` and plan its probes, if asked also those that tell clients' networks.

    Raises TlstaxError as `tlstax attach` does, HOST where no process can be started for it.
    """
    module = "tlstax.collectors.watching.preparation"
    what = f"process {pid} could not be examined"
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, str(pid), level.name, str(int(networks)), *accepted],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
            process_group=0,  # Ctrl-C ends the watch, in order
        )
    except OSError as error:
        why = f"no child process can be started for it: {error.strerror or error}"
        raise TlstaxError(what, why, SHORTAGE, ExitCode.HOST) from error
    if done.returncode or not done.stdout:
        raise TlstaxError(
            what,
            f"the child process that does it ended with status {done.returncode}",
            "Check that memory is available, and report this",
        )
    answer: Prepared | Failure
    try:
        answer = pickle.loads(done.stdout)  # written by our own child
    except _UNREADABLE as error:
        raise TlstaxError(
            what,
            "the answer of the child process that does it cannot be read "
            f"({type(error).__name__}: {error})",
            "If tlstax was upgraded meanwhile, start this command again; else report this",
        ) from error
    if isinstance(answer, Failure):
        raise TlstaxError(answer.what, answer.why, answer.do, answer.exit_code)
    return answer


def _prepared(pid: int, level: Level, networks: bool, accepted: Sequence[str]) -> Prepared:
    require_host_pids()
    safety, level = at_level(preflight(pid, accepted), level)
    target, plan = plan_in_child(pid, level, limits=safety.limits, networks=networks)
    made = process_tables(pid, known=target.objects) if safety.user_stacks else None
    tables = tables_bytes(made.layout, made.words) if made else None
    return Prepared(target, plan, safety, level, thread_room(pid), "tracer" in accepted, tables)


def _main(pid: str, level: str, networks: str, *accepted: str) -> None:
    """Answer on standard output."""
    answer: Prepared | Failure
    os.nice(10)  # the server comes first
    try:
        answer = _prepared(int(pid), Level[level], networks == "1", accepted)
    except TlstaxError as error:
        answer = Failure(error.what, error.why, error.do, ExitCode(error.exit_code))
    pickle.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    # Under its own name, or the answer would be of a class of __main__.
    from tlstax.collectors.watching import preparation

    preparation._main(*sys.argv[1:])
