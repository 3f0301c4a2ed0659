# SPDX-License-Identifier: GPL-2.0-only
"""Boundary functions that appear in stacks under another name, or without one.

A function that ends in a jump to another function (a tail call) is not on the stack while that one
runs: Debian's `sslaccept` is `jmp ssl_do`, and libssl does its handshakes in functions without
symbols that jump to a common one. Such jump targets are aliases of the boundary, so that the phase
of a stack can be inferred without probes. They are read from the code of the sampled files.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.import_stubs import imported_name
from tlstax.collectors.binary.machine import FlowKind
from tlstax.collectors.binary.unwind_table import UnwindTable
from tlstax.collectors.placement.method_table import hidden_in
from tlstax.collectors.sources.stacks.stack_phases import HELD
from tlstax.probes.model import Boundary, Definition, compile_names

LIMIT_BYTES: Final = 4096
"""The part of a function that is read; a wrapper is much shorter."""


@dataclass
class Aliases:
    """Starts of functions (addresses of the file) and the boundary function of each."""

    nameless: dict[int, str] = field(default_factory=dict)
    """Functions with this purpose only: from a method table, or called by a pure wrapper."""
    tails: dict[int, str] = field(default_factory=dict)
    """Functions that also serve others: valid only if the boundary function was seen open."""

    def of(self, start: int, *, nameless: bool, cut: bool) -> str:
        """The boundary function behind a function; "" if there is none."""
        name = self.nameless.get(start, "") if nameless else ""
        return name or (self.tails.get(start, "") if cut else "")


def read_aliases(elf: Elf, definitions: Iterable[Definition]) -> Aliases:
    """The aliases in one file."""
    made = Aliases()
    unwind = UnwindTable(elf)
    for boundary in (one for entry in definitions for one in entry.boundaries):
        if boundary.action not in HELD or not boundary.phase:
            continue
        for symbol, name in _functions(elf, boundary):
            if not symbol.name:
                made.nameless.setdefault(symbol.address, name)
            for target, is_wrapper in _tails(elf, unwind, symbol):
                chosen = made.nameless if is_wrapper else made.tails
                chosen.setdefault(target, name)
    return made


def _functions(elf: Elf, boundary: Boundary) -> Iterable[tuple[Symbol, str]]:
    """The functions of a boundary in the file, with functions without a name from method tables."""
    named = elf.find(compile_names([one.pattern for one in boundary.functions]))
    yield from ((symbol, symbol.name) for symbol in named)
    table = boundary.method_table
    if table is not None and named:
        wanted = elf.find(compile_names([*table.getters, *table.setters]))
        yield from ((symbol, named[0].name) for symbol in hidden_in(table, elf, wanted))


def _tails(elf: Elf, unwind: UnwindTable, symbol: Symbol) -> Iterable[tuple[int, bool]]:
    """The target of a jump at the end of a function, and whether it does nothing else."""
    bounds = unwind.covering(symbol.address)
    end = bounds.end if bounds else symbol.address + symbol.size
    code = elf.code_at(symbol.address, min(end - symbol.address, LIMIT_BYTES))
    is_wrapper = True
    for instruction in machine_of(elf.machine).decode(code, symbol.address):
        flow = instruction.flow_control
        if flow in (FlowKind.UNCONDITIONAL_BRANCH, FlowKind.CONDITIONAL_BRANCH):
            target = _behind_stub(elf, instruction.near_branch_target)
            found = unwind.covering(target)
            if not symbol.address <= target < end and found and found.start == target:
                yield target, is_wrapper and flow == FlowKind.UNCONDITIONAL_BRANCH
        if flow != FlowKind.NEXT:
            is_wrapper = False


def _behind_stub(elf: Elf, address: int) -> int:
    """The function of the same file that a stub calls; any other address unchanged."""
    stub = imported_name(elf, address)
    found = elf.find(re.compile(re.escape(stub[0]))) if stub else []
    return found[0].address if found else address
