# SPDX-License-Identifier: GPL-2.0-only
"""A plan of what to attach, and how to get one without paying for it afterwards.

Planning needs a disassembler and an ELF reader (about 17 MB and 0.1 s). `plan_in_child` does it in
a forked child and hands back the result, so that a process that stays attached for hours stays
small. This module imports neither.
"""

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.target import MappedObject, Target
from tlstax.probes.definitions import Level


@dataclass(frozen=True)
class Site:
    """One probe to attach.

    `virtual_address` is the file's own (its symbol table's), `file_offset` what the kernel takes.
    """

    boundary: str
    action: str
    phase: str  # the phase that begins or ends here, "" when the action changes none
    event: str  # "enter" or "exit"
    function: str  # symbol, or [object+0x...] for the unnamed target of a tail call
    object: MappedObject
    file_offset: int
    virtual_address: int
    instruction: str
    kind: str  # "uprobe" or "uretprobe"
    stepped: bool
    argument: int  # index of the argument to read on entry, -1 for none
    only_in: str  # phase that must be open, "" for any
    reason: str  # why here, one clause


@dataclass(frozen=True)
class Missing:
    """A boundary or accessor that cannot be had, and what the report loses by it."""

    boundary: str
    functions: tuple[str, ...]
    consequence: str


@dataclass(frozen=True)
class Library:
    """A TLS library or server recognised in the target."""

    id: str
    kind: str  # "tls" or "server"
    name: str
    version: str  # "" when no version string was found
    linkage: str  # "shared", "static" (inside the program); "program" for a server
    objects: tuple[MappedObject, ...]


@dataclass(frozen=True)
class Plan:
    """What would be attached to a target."""

    pid: int
    level: Level
    libraries: tuple[Library, ...]
    sites: tuple[Site, ...]
    missing: tuple[Missing, ...]
    accessors: dict[str, int] = field(default_factory=dict)  # field offset in bytes, -1 unknown

    def library(self, kind: str) -> Library | None:
        """The first recognised library of a kind."""
        return next((entry for entry in self.libraries if entry.kind == kind), None)


def plan_in_child(
    pid: int, level: Level = Level.RECORD, extra: Path | None = None
) -> tuple[Target, Plan]:
    """Read the process and plan its probes, in a forked child that is gone on return.

    `extra` is a directory of further definitions. Raises what open_target, load_definitions and
    plan raise (TlstaxError); call it before starting threads.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, pid, level, extra)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not answer:
        raise TlstaxError(
            f"Process {pid} could not be examined",
            f"the child process that reads its binaries ended with status {status}",
            "Check that memory is left and that its binaries are not being replaced",
            ExitCode.TARGET,
        )
    result = pickle.loads(answer)  # written by our own child
    if isinstance(result, TlstaxFailure):
        raise TlstaxError(result.what, result.why, result.do, result.exit_code)
    target, planned = result
    return target, planned


@dataclass(frozen=True)
class TlstaxFailure:
    """A TlstaxError on its way out of the child."""

    what: str
    why: str
    do: str
    exit_code: ExitCode


def _answer(writing: int, pid: int, level: Level, extra: Path | None) -> None:
    """The child's whole life: it never returns to the caller's code."""
    status = 1
    try:
        from tlstax.collectors.placement import plan
        from tlstax.collectors.target import open_target
        from tlstax.probes.definitions import load_definitions

        result: object
        try:
            target = open_target(pid)
            result = (target, plan(target, load_definitions(extra), level))
        except TlstaxError as error:
            result = TlstaxFailure(error.what, error.why, error.do, error.exit_code)
        with open(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        status = 0
    finally:
        os._exit(status)
