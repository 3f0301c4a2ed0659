# SPDX-License-Identifier: GPL-2.0-only
"""What /proc shows of a process that matters to probes. Nothing is traced, stopped or mapped.

smaps is not read: the kernel walks the whole memory of the process for it.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.preflight import cgroups
from tlstax.collectors.preflight.present_probes import count_in
from tlstax.collectors.preflight.trial_child import Outcome, State
from tlstax.collectors.process.mappings import DELETED, MAPS_LINE

PROC: Final = Path("/proc")
TARGET_HEADROOM_BYTES: Final = 16 << 20
"""At most 256 probes, each of which copies a page, with the kernel's own pages for them."""
HUGE_PAGE_BYTES: Final = 2 << 20
THREADS_READ_MAX: Final = 2048
"""Threads that are looked at for a tracer: some 30 us each, and doctor answers within a second."""


@dataclass(frozen=True)
class TargetFacts:
    """A process, as read once."""

    pid: int
    name: str
    state: str  # a letter, as ps shows it
    tracer: int  # pid, 0 for none; of any of its threads
    seccomp: int  # mode: 0 none, 1 strict, 2 filter
    shadow_stack: bool
    frozen: bool | None
    memory_left_bytes: int | None  # None: no limit
    label: str  # of AppArmor or SELinux, "" when there is none
    exe: str
    deleted: tuple[str, ...]  # mapped files with code that are no longer at their path
    anonymous_text_bytes: int  # of mappings with code and no file, at least a huge page long
    file_systems: frozenset[str]  # of the files with code
    other_probe_count: int  # BPF links and events of other tools in its files
    was_probed: bool  # the kernel keeps pages for probes in it: it has been probed before
    proc: Path = PROC  # as in `process.mappings`


def read_target(pid: int, probed_paths: list[str], proc: Path = PROC) -> TargetFacts:
    """Read a process. Raises TlstaxError (TARGET) if there is none or it may not be read.

    `proc` as in `process.mappings`.
    """
    place = proc / str(pid)
    try:
        status = dict(
            line.split(":", 1)
            for line in (place / "status").read_text(errors="surrogateescape").splitlines()
            if ":" in line
        )
        maps = (place / "maps").read_text(errors="surrogateescape")
        exe = os.readlink(place / "exe")
    except PermissionError:
        raise _unreadable(pid, "it belongs to another user, or has more privileges") from None
    except (FileNotFoundError, ProcessLookupError):
        raise _unreadable(pid, "there is no such process, or it has no program") from None
    if status.get("Tgid", "").strip() != str(pid):
        raise _unreadable(pid, "it is a thread of another process")
    text = [match for line in maps.split("\n") if (match := MAPS_LINE.fullmatch(line))]
    coded = [match for match in text if "x" in match[3]]
    files = [match for match in coded if match[6] != "0"]
    anonymous = [match for match in coded if match[6] == "0" and not match[7].startswith("[")]
    sizes = [int(match[2], 16) - int(match[1], 16) for match in anonymous]
    return TargetFacts(
        pid=pid,
        name=status.get("Name", "").strip(),
        state=(status.get("State", "").split() or [""])[0],
        tracer=(whole_number(status.get("TracerPid", "").strip()) or 0) or _tracer(place),
        seccomp=whole_number(status.get("Seccomp", "").strip()) or 0,
        shadow_stack="shstk" in status.get("x86_Thread_features", "").split(),
        frozen=cgroups.is_frozen(pid, proc),
        memory_left_bytes=cgroups.memory_left_bytes(pid, proc),
        label=security_label(place),
        exe=exe,
        deleted=tuple(sorted({m[7] for m in files if m[7].endswith(DELETED)})),
        anonymous_text_bytes=sum(size for size in sizes if size >= HUGE_PAGE_BYTES),
        file_systems=_file_systems(place, {match[5] for match in files}),
        other_probe_count=count_in(probed_paths, _identities(place, files)),
        was_probed=any(match[7] == "[uprobes]" for match in text),
        proc=proc,
    )


def _tracer(place: Path) -> int:
    """Who traces one of the threads: strace may follow a single one. 0: none, or none is shown."""
    with suppress(OSError):
        for tid in os.listdir(place / "task")[:THREADS_READ_MAX]:
            with suppress(OSError):
                text = (place / "task" / tid / "status").read_text(errors="replace")
                found = re.search(r"^TracerPid:\t([1-9]\d*)$", text, re.MULTILINE)
                if found:
                    return int(found[1])
    return 0


def security_label(place: Path) -> str:
    """The label of a process (its directory in /proc), "" without AppArmor and SELinux."""
    with suppress(OSError):
        return (place / "attr/current").read_text(errors="replace").strip("\0\n ")
    return ""


def _identities(place: Path, files: list[re.Match[str]]) -> set[tuple[int, int]]:
    found = set()
    for match in files:
        with suppress(OSError):
            start, end = (int(match[part], 16) for part in (1, 2))
            seen = os.stat(place / f"map_files/{start:x}-{end:x}")
            found.add((seen.st_dev, seen.st_ino))
    return found


def _file_systems(place: Path, devices: set[str]) -> frozenset[str]:
    """The kinds of the file systems that have these devices (major:minor in hex)."""
    wanted = {":".join(str(int(part, 16)) for part in device.split(":")) for device in devices}
    kinds = set()
    with suppress(OSError):
        text = (place / "mountinfo").read_text(errors="surrogateescape")
        for line in text.splitlines():
            fields = line.split(" ")
            if fields[2] in wanted:
                kinds.add(fields[fields.index("-") + 1])
    return frozenset(kinds)


def _unreadable(pid: int, why: str) -> TlstaxError:
    return TlstaxError(
        f"Process {pid} cannot be examined", why, "Run as root, with the pid of a server",
        ExitCode.TARGET,
    )  # fmt: skip


def stopped(facts: TargetFacts) -> Outcome:
    """Whether SIGSTOP holds it."""
    if facts.state == "T":
        return Outcome(State.HARMFUL, "it is stopped (state T)")
    return Outcome(State.SAFE, f"its state is {facts.state}")


def tracer(facts: TargetFacts) -> Outcome:
    """Whether a debugger or strace is attached."""
    if facts.tracer:
        return Outcome(State.HARMFUL, f"process {facts.tracer}{_name_of(facts)} traces it")
    return Outcome(State.SAFE, "nothing traces it")


def frozen(facts: TargetFacts) -> Outcome:
    """Whether its cgroup is frozen."""
    if facts.frozen is None:
        return Outcome(State.UNKNOWN, "the state of its cgroup cannot be read")
    if facts.frozen:
        return Outcome(State.HARMFUL, "its cgroup is frozen")
    return Outcome(State.SAFE, "its cgroup is not frozen")


def target_memory(facts: TargetFacts) -> Outcome:
    """Whether copies of probed pages fit below its cgroup's limit."""
    return memory_outcome(facts.memory_left_bytes, TARGET_HEADROOM_BYTES)


def replaced(facts: TargetFacts) -> Outcome:
    """Whether the mapped files are still those on disk."""
    if facts.deleted:
        first = facts.deleted[0].removesuffix(DELETED)
        more = f" and {len(facts.deleted) - 1} more" if len(facts.deleted) > 1 else ""
        return Outcome(State.HARMFUL, f"{first}{more} was replaced or deleted since it started")
    return Outcome(State.SAFE, "its program and libraries are those on disk")


def hugetlb_text(facts: TargetFacts) -> Outcome:
    """Whether the kernel can set probes in its files."""
    if "hugetlbfs" in facts.file_systems:
        return Outcome(State.HARMFUL, "a file with code is on hugetlbfs")
    return Outcome(State.SAFE, "no code in hugetlbfs")


def anonymous_text(facts: TargetFacts) -> Outcome:
    """Whether all of its code is in files."""
    if facts.anonymous_text_bytes:
        size_mib = facts.anonymous_text_bytes >> 20
        return Outcome(State.HARMFUL, f"{size_mib} MiB of its code are in anonymous memory")
    return Outcome(State.SAFE, "its code is in files")


def other_probes(facts: TargetFacts) -> Outcome:
    """Whether other tools probe its files."""
    if facts.other_probe_count:
        return Outcome(State.HARMFUL, f"{facts.other_probe_count} probes or links are in its files")
    if facts.was_probed:
        return Outcome(State.SAFE, "none now; it was probed before")
    return Outcome(State.SAFE, "none")


def memory_outcome(left_bytes: int | None, headroom_bytes: int) -> Outcome:
    """Whether a cgroup leaves the memory that is needed."""
    if left_bytes is None:
        return Outcome(State.SAFE, "no memory limit")
    found = f"{left_bytes >> 20} MiB below the memory limit"
    if left_bytes < headroom_bytes:
        return Outcome(State.HARMFUL, f"{found}; {headroom_bytes >> 20} MiB are needed")
    return Outcome(State.SAFE, found)


def _name_of(facts: TargetFacts) -> str:
    with suppress(OSError):
        place = facts.proc / str(facts.tracer) / "comm"
        return f" ({place.read_text(errors='replace').strip()})"
    return ""


CHECKS: Final[Mapping[str, Callable[[TargetFacts], Outcome]]] = {
    check.__name__: check
    for check in (
        stopped,
        tracer,
        frozen,
        target_memory,
        replaced,
        hugetlb_text,
        anonymous_text,
        other_probes,
    )
}
"""The readings of hazards of the kind `target`."""
