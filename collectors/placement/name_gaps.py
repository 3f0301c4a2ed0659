# SPDX-License-Identifier: GPL-2.0-only
"""What the report lacks because the target's files lack symbol names.

How complete the names are is counted, not guessed: the unwind tables list every function of a file,
so the share of them that have a symbol is known. A file with its own full table, or with a separate
debug file that belongs to it, has no gap. The planner reports missing functions that would be timed
by name; this module covers all others.
"""

from collections.abc import Sequence

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.nameless import CRYPTOGRAPHY
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.binary.unwind_table import UnwindTable
from tlstax.collectors.placement.detection import Detected, OpenObject
from tlstax.collectors.placement.model import Missing
from tlstax.collectors.process.symbols import stem
from tlstax.collectors.process.target import Target, may_read_memory

FULL = frozenset({"symtab", "buildid", "debuglink", "debugdata"})

BY_INSTRUCTIONS = (
    "unnamed cipher, digest and big-number code is classified by its instructions and source "
    "directories; code with neither counts as unknown"
)
NOT_TOLD_APART = (
    "unnamed cipher, digest, signature and key exchange code cannot be distinguished; it counts as "
    "server code or as unknown"
)
SERVER_CODE = "unnamed functions are classified by phase only and appear as addresses in stacks"
NO_SERVER = (
    "no supported server was recognised in {program}: connecting, commands and idle time "
    "have no phases; only the TLS library is timed."
)
PROCESS_ONLY = (
    "no supported TLS library was recognised in {program}: CPU time, waits and samples are "
    "recorded, handshakes are not."
)
NO_ROLES = (
    "the kernel denies reading the process's memory (ptrace access): threads that cannot be "
    "recognised by name count as background."
)
NO_FACTS = (
    "tlstax does not know where {name} stores the TLS version, cipher, group and resumption of a "
    "connection: they are unknown in every handshake record."
)
NO_TLS = (
    "{reason}: handshakes are timed by the server's own functions, or not at all; "
    "TLS version, cipher, signature, key exchange and certificate checks are unknown, and cipher "
    "and digest cannot be distinguished."
)


def name_gaps(target: Target, detected: Sequence[Detected], role: str = "server") -> list[Missing]:
    """The gaps of a target in which these libraries were recognised."""
    kinds = {entry.library.kind for entry in detected}
    gaps = []
    if role in ("tunnel", "proxy") and not kinds:
        return [Missing("TLS library", (), PROCESS_ONLY.format(program=target.exe))]
    if role == "server" and "server" not in kinds:
        gaps.append(Missing("server", (), NO_SERVER.format(program=target.exe)))
    if kinds <= {"server"}:
        text = NO_TLS.format(reason=_why_no_library(target)[0])
        gaps.append(Missing("TLS library", (), text))
    gaps += [
        Missing("handshake facts", (), NO_FACTS.format(name=entry.library.name))
        for entry in detected
        if entry.library.kind == "tls" and role == "server" and not entry.definition.accessors
    ]
    if any(entry.definition.roles for entry in detected) and not may_read_memory(target):
        gaps.append(Missing("roles of threads", (), NO_ROLES))
    seen: set[OpenObject] = set()
    for found in sorted(detected, key=lambda entry: entry.library.kind != "tls"):
        for entry in found.objects:
            if entry not in seen:
                seen.add(entry)
                gaps += _gap(entry, found.library.kind)
    for mapped in target.objects:
        if mapped.unreachable:
            text = f"{mapped.unreachable}. Its functions are neither timed nor named."
            gaps.append(Missing(f"names in {mapped.name}", (), text))
    return gaps


def nothing_known(target: Target) -> TlstaxError:
    """The error for a process in which no library and no server was recognised."""
    why, do = _why_no_library(target)
    return TlstaxError(
        f"Process {target.pid} ({target.name}) cannot be measured", why, do, ExitCode.TARGET
    )


def _why_no_library(target: Target) -> tuple[str, str]:
    """Why no TLS library was recognised, and what to do about it."""
    if target.tls_objects:
        names = ", ".join(entry.path for entry in target.tls_objects)
        return (
            f"its TLS library ({names}) is not supported",
            "Pass a directory with a definition of that library, see probes/libraries",
        )
    program = target.program
    with Elf(program.open_path) as elf:
        names_of = ObjectSymbols(elf, target.proc / str(target.pid) / "root", program.path)
        is_nameless = not names_of.starts()
        names_of.close()
    if is_nameless:
        wanted = f" of build-id {program.build_id}" if program.build_id else ""
        why = (
            f"its program {program.path} is stripped of all names, so a TLS library inside of it "
            "cannot be recognised, and phases, handshakes, ciphers and digests are unknown"
        )
        return (
            why,
            f"Install the program's debug file{wanted}, or run a build that is not stripped",
        )
    return (
        "it has no TLS library mapped, and its program contains no supported one",
        "Pass the pid of the server itself, and check that it was built with TLS",
    )


def _gap(entry: OpenObject, kind: str) -> list[Missing]:
    """The gap of one file, if there is one."""
    if entry.names is None or FULL & set(entry.names.sources()):
        return []
    starts = UnwindTable(entry.elf).starts()
    named = len(starts & entry.names.starts())
    if not starts or named >= 0.99 * len(starts):
        return []
    if CRYPTOGRAPHY.fullmatch(stem(entry.mapped.path)):
        consequence = BY_INSTRUCTIONS
    else:
        consequence = SERVER_CODE if kind == "server" else NOT_TOLD_APART
    file = (
        f"no debug file with build-id {entry.mapped.build_id}"
        if entry.mapped.build_id
        else "no debug file"
    )
    text = f"{named:,} of {len(starts):,} functions have names, and there is {file}: {consequence}."
    return [Missing(f"names in {entry.mapped.name}", (), text)]
