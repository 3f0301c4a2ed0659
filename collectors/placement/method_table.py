# SPDX-License-Identifier: GPL-2.0-only
"""Unnamed functions that a library keeps in a table of pointers, found by reading its code.

libssl runs a handshake in a function that it calls through a pointer: from SSL_accept, and from
SSL_read and SSL_write on a connection whose handshake is not done yet. SSL_set_accept_state and
SSL_set_connect_state copy the pointer from the connection's method table. Both functions that it
can point to are hidden, but the steps that lead to them are visible:

- a *getter* (TLS_method) returns the address of a table: `lea table(%rip),%rax; ret`;
- a *setter* loads the table from its argument, loads one slot of it, and stores that in its
  argument. The slot's offset is in the second load;
- the slot's value is in the file: as the addend of its relocation, or, in a program that is not
  relocated or whose relocations are packed (RELR), in the slot itself.

Nothing is executed or traced. A pattern that is not recognised gives no answer, never a
guess: the caller falls back to functions that have a name.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.field_chains import copied_fields
from tlstax.collectors.binary.machine import FlowKind
from tlstax.collectors.placement.detection import OpenObject
from tlstax.probes.model import MethodTable

RELOCATION = struct.Struct("<QQq")  # Elf64_Rela: address, type and symbol, addend
POINTER = struct.Struct("<Q")
GETTER_LIMIT_BYTES = 32
SETTER_LIMIT_BYTES = 512


class Slot(NamedTuple):
    """The offsets, in bytes, that lead from a connection to a slot."""

    table: int  # of the pointer to the table, in the connection
    slot: int  # of the slot, in the table
    copy: int  # of the place in the connection that the slot is copied to


def functions_in(table: MethodTable, entry: OpenObject) -> list[Symbol]:
    """The unnamed function that each setter installs; empty unless all are found."""
    return hidden_in(table, entry.elf, entry.symbols)


def hidden_in(table: MethodTable, elf: Elf, named: Iterable[Symbol]) -> list[Symbol]:
    """As functions_in, from a file and those of its symbols that the table mentions."""
    symbols = {symbol.name: symbol for symbol in named}
    getters = [name for name in table.getters if name in symbols]
    if not getters or not set(table.setters) <= symbols.keys():
        return []
    slots = [copied_slot(elf, symbols[name]) for name in table.setters]
    known = [slot for slot in slots if slot is not None]
    # Setters of one kind differ in nothing but the slot.
    alike = len({(slot.table, slot.copy) for slot in known}) == 1
    if len(known) != len(slots) or not alike:
        return []
    found: set[int] = set()
    for name in getters:
        start = returned_address(elf, symbols[name])
        pointers = [pointer_at(elf, start + slot.slot) for slot in known] if start else [None]
        code = {address for address in pointers if address and _is_code(elf, address)}
        # Tables share one function, which only fails, for every slot that they do not support.
        if len(code) != len(pointers):
            return []
        found |= code
    return [Symbol(address, 0, "") for address in sorted(found)]


def returned_address(elf: Elf, getter: Symbol) -> int | None:
    """The constant address that a function returns, None if it does anything else."""
    machine = machine_of(elf.machine)
    known: dict[int, int] = {}
    code = elf.code_at(getter.address, GETTER_LIMIT_BYTES)
    for instruction in machine.decode(code, getter.address):
        if instruction.flow_control == FlowKind.RETURN:
            return known.get(machine.result)
        if instruction.flow_control != FlowKind.NEXT:
            return None
        values = {
            one.register: known[one.source] + one.number if one.source in known else one.number
            for one in machine.effects(instruction).assignments
            if not one.is_load and (one.source == -1 or one.source in known)
        }
        for register in machine.written_registers(instruction):
            known.pop(register, None)
        known |= values
    return None


def copied_slot(elf: Elf, setter: Symbol) -> Slot | None:
    """The one slot of a table that a function copies into its argument."""
    size = min(setter.size, SETTER_LIMIT_BYTES) or SETTER_LIMIT_BYTES
    copies = copied_fields(
        machine_of(elf.machine), elf.code_at(setter.address, size), setter.address
    )
    slots = {Slot(*chain, copy) for chain, copy in copies if len(chain) == 2}
    return slots.pop() if len(slots) == 1 else None


def pointer_at(elf: Elf, address: int) -> int | None:
    """The target of the pointer at an address of the file, after relocation."""
    relocations = elf.content(".rela.dyn")
    wanted = RELOCATION.pack(address, machine_of(elf.machine).relative, 0)[: POINTER.size * 2]
    position = relocations.find(wanted)
    while position >= 0 and position % RELOCATION.size:
        position = relocations.find(wanted, position + 1)
    if 0 <= position <= len(relocations) - RELOCATION.size:
        return int(RELOCATION.unpack_from(relocations, position)[2])
    offset = elf.to_offset(address)
    if offset is None:
        return None
    return int(POINTER.unpack(elf.slice(offset, POINTER.size))[0])


def _is_code(elf: Elf, address: int) -> bool:
    return machine_of(elf.machine).first(elf.code_at(address, 16), address) is not None
