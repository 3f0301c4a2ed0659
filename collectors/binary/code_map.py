# SPDX-License-Identifier: GPL-2.0-only
"""Facts about an object's functions from its tables: bounds, names, what stubs call."""

from typing import Final

from tlstax.collectors.binary.architectures import machine_of
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.binary.import_stubs import imported_name, slot_symbols
from tlstax.collectors.binary.symbol_tables import ObjectSymbols
from tlstax.collectors.binary.unwind_table import UnwindTable
from tlstax.probes.model import compile_names

# These never return to their caller; the code after the call belongs to another path.
NEVER_RETURN: Final = frozenset(
    {
        "__stack_chk_fail", "abort", "exit", "_exit", "__assert_fail", "__assert_perror_fail",
        "_Unwind_Resume", "__cxa_throw", "__cxa_rethrow", "__cxa_bad_cast", "_ZSt9terminatev",
        "__cxa_throw_bad_array_new_length", "__chk_fail", "longjmp", "siglongjmp", "__longjmp_chk",
        "pthread_exit", "_ZSt17__throw_bad_allocv", "_ZSt20__throw_length_errorPKc",
        "_ZSt19__throw_logic_errorPKc", "__cxa_pure_virtual",
    }
)  # fmt: skip
UNKNOWN_SIZE_BYTES: Final = 4096


class CodeMap:
    """Facts about an object's functions from its tables: bounds, names, what stubs call."""

    def __init__(self, elf: Elf, names: ObjectSymbols | None = None) -> None:
        self.elf = elf
        self.machine = machine_of(elf.machine)
        self._outside = names  # symbol tables that may lie outside of the file
        self.unwind = UnwindTable(elf)
        self._imports: dict[int, str] = {}
        self._slots: dict[int, int] | None = None
        self._never_return: frozenset[int] | None = None
        self._names: dict[int, str] | None = None

    def import_at(self, address: int) -> str:
        """The function that a stub at an address calls, "" when there is no stub."""
        if address not in self._imports:
            if self._slots is None:
                self._slots = slot_symbols(self.elf)
            found = imported_name(self.elf, address, self._slots)
            self._imports[address] = found[0] if found else ""
        return self._imports[address]

    def name_at(self, address: int) -> str:
        """The name of the function that begins at an address, "" when no symbol does."""
        if self._names is None:
            self._names = {}
            for table in (".symtab", ".dynsym"):
                strings = self.elf.names(table)
                for start, _, name in self.elf.symbols(table):
                    raw = strings[name : strings.find(b"\0", name)]
                    self._names.setdefault(start, raw.decode("utf-8", "surrogateescape"))
        return self._names.get(address, "")

    def returns(self, callee: int) -> bool:
        """False for a function that is known never to return."""
        if self._never_return is None:
            tables = self._outside.matching if self._outside else self.elf.find
            found = tables(compile_names(NEVER_RETURN))
            self._never_return = frozenset(symbol.address for symbol in found)
        return callee not in self._never_return and self.import_at(callee) not in NEVER_RETURN

    def start_of(self, address: int) -> int | None:
        """Where the function that contains an address begins, None when no table covers it."""
        if bounds := self.unwind.covering(address):
            return bounds.start
        for table in (".symtab", ".dynsym"):
            for start, size, _ in self.elf.symbols(table):
                if start <= address < start + size:
                    return start
        return None

    def end_of(self, symbol: Symbol) -> int:
        """The first address after a function."""
        if symbol.size:
            return symbol.address + symbol.size
        if bounds := self.unwind.covering(symbol.address):
            return bounds.end
        for table in (".symtab", ".dynsym"):
            for start, size, _ in self.elf.symbols(table):
                if start == symbol.address and size:
                    return start + size
        return symbol.address + UNKNOWN_SIZE_BYTES

    def begins_function(self, address: int) -> bool:
        """Whether a function or stub begins at an address, according to any table."""
        if self.import_at(address):
            return True
        name = self.name_at(address)
        return ".cold" not in name if name else self.unwind.index(address) is not None
