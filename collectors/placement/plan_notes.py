# SPDX-License-Identifier: GPL-2.0-only
"""Facts about the libraries in a plan: field offsets, marks of roles, and unusual things."""

from collections.abc import Sequence

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.field_chains import returned_fields
from tlstax.collectors.placement.detection import Detected
from tlstax.collectors.placement.model import RoleMark
from tlstax.collectors.process.target import Target
from tlstax.probes.model import Accessor, Function

FUNCTION_LIMIT_BYTES = 64 * 1024


def read_accessor(accessor: Accessor, library: Detected) -> int:
    """The offset in bytes of the field that an accessor reads, -1 if it cannot be determined."""
    offsets = set()
    for _, elf, symbol in library.functions(Function(accessor.function)):
        code = elf.code_at(symbol.address, min(symbol.size, FUNCTION_LIMIT_BYTES))
        chains = returned_fields(machine_of(elf.machine), code, symbol.address)
        offsets |= {chain[-1] for chain in chains if len(chain) == accessor.loads}
    return offsets.pop() if len(offsets) == 1 else -1


def notes_on(detected: Sequence[Detected], accessors: dict[str, int]) -> list[str]:
    """What is unusual about the libraries, for the plan's reader."""
    notes = []
    for entry in detected:
        if entry.library.kind != "tls":
            continue
        name = entry.library.version or entry.library.name
        copies: dict[str, list[str]] = {}
        for opened in entry.objects:
            copies.setdefault(opened.elf.name.partition(".so")[0], []).append(opened.mapped.path)
        for paths in copies.values():
            if len(paths) > 1:
                notes.append(
                    f"{len(paths)} copies of one library ({', '.join(paths)}): each is probed"
                )
        wanted = [accessor.id for accessor in entry.definition.accessors]
        unknown = [name for name in wanted if accessors.get(name, -1) < 0]
        if unknown:
            notes.append(
                f"{name} is recognised, but the location of {', '.join(unknown)}"
                " is unknown in this version"
            )
    return notes


def other_machine(target: Target, elf: Elf) -> TlstaxError:
    """The error for a file of another architecture than x86-64 and arm64."""
    return TlstaxError(
        f"Process {target.pid} ({target.name}) cannot be measured",
        f"{elf.path} is not for x86-64 or arm64 but for {elf.machine.removeprefix('EM_')}",
        "Use tlstax for programs of these; placing probes on other machines is not supported",
        ExitCode.TARGET,
    )


def role_marks(library: Detected) -> list[RoleMark]:
    """The marks of threads' roles, with the process addresses of their functions."""
    marks = []
    for rule in library.definition.roles:
        spans = [
            (start, start + max(symbol.size, 1))
            for pattern in rule.functions
            for mapped, elf, symbol in library.functions(Function(pattern))
            if (start := mapped.address_of(elf.to_offset(symbol.address))) is not None
        ]
        marks.append(RoleMark(rule.role, rule.names, tuple(sorted(set(spans))), rule.main))
    return marks
