# SPDX-License-Identifier: GPL-2.0-only
"""Write a program of probes/*.bt for one process: attach points, their reasons, and the filter.

The blocks of a program are written for the start of a function: `arg0` on entry, `retval` on exit,
and `reg("sp") + 8` on entry or `reg("sp")` on exit for the caller's stack pointer after the return,
which identifies the call. If a probe is elsewhere, they are replaced by the registers and stack
offsets that are valid there.
"""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.host.probe_costs.costs import this_host_costs
from tlstax.collectors.host.probe_costs.prices import tell_unmeasured
from tlstax.collectors.placement.detection import Detected
from tlstax.collectors.process.target import Target
from tlstax.collectors.sources.bpftrace.attach_points import Place, Places, Wanted
from tlstax.probes.definitions import load_definitions
from tlstax.probes.programs import Block, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

ARGUMENT: Final = re.compile(r"\barg(\d)\b")
ENTRY_STACK: Final = re.compile(r'reg\("sp"\) \+ 8\b')
STACK: Final = re.compile(r'reg\("sp"\)')


@dataclass(frozen=True)
class Rendered:
    """A program for one process."""

    name: str
    text: str
    places: tuple[Place, ...]
    missing: tuple[str, ...]  # what has no probe, one sentence each
    libraries: tuple[Detected, ...] = field(repr=False)

    @property
    def unsafe(self) -> bool:
        """Whether bpftrace needs --unsafe, because functions without names are given by address."""
        return any(place.unsafe for place in self.places)


def render(program: Program, target: Target, offsets: bool, extra: Path | None = None) -> Rendered:
    """Write the program for a process. `offsets`: whether bpftrace accepts offsets in functions.

    Raises TlstaxError (TARGET) if the process has no function that the program needs.
    """
    with ExitStack() as resources:
        definitions = load_definitions(extra)
        costs = this_host_costs(tell_unmeasured)
        finder = Places(target, definitions, costs, resources, offsets)
        blocks = [piece for piece in program.pieces if isinstance(piece, Block)]
        found = {pair: finder.find(_wanted(pair, blocks)) for pair in {b.selectors for b in blocks}}
        texts: list[str] = []
        kept: list[Place] = []
        missing: list[str] = []
        for piece in program.pieces:
            if isinstance(piece, str):
                texts.append(piece.replace("$1", str(target.pid)))
                continue
            places = [place for place in found[piece.selectors] if place.event == piece.event]
            if places:
                texts.append(_block(piece, places, target.pid))
                kept += places
                continue
            if piece.required:
                raise _nothing(program, target, piece)
            said = finder.consequences(_wanted(piece.selectors, blocks))
            missing += said or [f"{piece.subject}: no library or server of the process defines it"]
            texts.append(f"// missing: {piece.subject} {piece.event}\n")
        if blocks and not kept:
            raise _nothing(program, target, blocks[0])
        consequences = tuple(dict.fromkeys(missing))
        head = _head(program, target, kept, consequences)
        return Rendered(
            program.name, head + "".join(texts), tuple(kept), consequences, tuple(finder.detected)
        )


def _wanted(selectors: tuple[tuple[str, ...], ...], blocks: "Sequence[Block]") -> Wanted:
    mine = [block for block in blocks if block.selectors == selectors]
    events = tuple(event for event in ("enter", "exit") if event in {b.event for b in mine})
    read = [ARGUMENT.search(block.body) for block in mine if block.event == "enter"]
    argument = next((int(one[1]) for one in read if one), -1)
    return Wanted(selectors, events, argument, any("retval" in block.body for block in mine))


def _block(block: Block, places: Iterable[Place], pid: int) -> str:
    """The block, once for all places that read the same registers."""
    groups: dict[tuple[str, int], list[Place]] = {}
    for place in places:
        groups.setdefault((place.point.register, place.point.stack_bytes), []).append(place)
    texts = []
    for (register, stack_bytes), members in groups.items():
        lines = [
            f"// {place.boundary} {place.event}, {place.cost_ns / 1000:.2f} us a hit"
            f"{' (single-stepped)' if not place.point.emulated else ''}: "
            f"{visible(place.function)}: {visible(place.point.reason)}\n"
            for place in members
        ]
        lines.append(",\n".join(place.attach_point for place in members) + "\n")
        body = block.body.replace("$1", str(pid))
        if block.event == "enter":
            body = ENTRY_STACK.sub(f'reg("sp") + {stack_bytes + 8}', body)
            if register:
                body = ARGUMENT.sub(f'reg("{_short(register)}")', body)
        else:
            if stack_bytes:
                body = STACK.sub(f'(reg("sp") + {stack_bytes})', body)
            if register not in ("", "rax") or stack_bytes:
                body = re.sub(r"\bretval\b", f'reg("{_short(register or "rax")}")', body)
        texts.append("".join(lines) + body)
    return "\n".join(texts)


def _short(register: str) -> str:
    """The name of a register in bpftrace: `di` for `rdi`, `r12` for `r12`."""
    return register if register[1:].isdigit() else register.removeprefix("r")


def _head(
    program: Program, target: Target, places: "Sequence[Place]", missing: Iterable[str]
) -> str:
    safe = "--unsafe " if any(place.unsafe for place in places) else ""
    lines = [
        f"// {program.name} - {program.line}",
        f"// For {visible(target.name)}, pid {target.pid}, by `tlstax probes print`.",
        "// Only for this process and these builds.",
        f"// Run it: tlstax probes print {program.name} --pid {target.pid} | bpftrace {safe}-",
    ]
    if safe:
        lines.append("// --unsafe: addresses of functions without names; tlstax checked that each")
        lines.append("// is the start of an instruction.")
    lines += [f"// missing: {visible(text)}" for text in missing]
    return "\n".join(lines) + "\n"


def _nothing(program: Program, target: Target, block: Block) -> TlstaxError:
    return TlstaxError(
        f"{program.name} has nothing to attach to in process {target.pid} ({target.name})",
        f"no function for {block.subject} was found: another version, stripped, or inlined",
        f"See the functions that were found: `tlstax probes plan {target.pid}`",
        ExitCode.TARGET,
    )
