# SPDX-License-Identifier: GPL-2.0-only
"""The unwind table of one file: built from its call frame information, kept as bytes.

Text is divided into buckets of 256 bytes. The index has the first row of each bucket, so that a
search looks at the few rows of one bucket, and a row needs only the low byte of its address. A row
applies until the next one, also beyond its bucket. The bytes: docs/unwinding.md.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.unwinding.debug_frames import SECTION_BYTES_MOST, frames_in
from tlstax.collectors.unwinding.frame_entries import Entries, Function, read_entries
from tlstax.collectors.unwinding.frame_program import Packer, Programs, Rows
from tlstax.collectors.unwinding.row_format import (
    OFFSET_SHIFT,
    REGISTERS,
    REGISTERS_MOST,
    RULE_FORMAT,
    RULES_MOST,
    Kind,
    Rule,
    RuleKind,
    Saved,
)
from tlstax.collectors.unwinding.uncovered_code import uncovered_rows

BUCKET_BITS: Final = 8
TEXT_BYTES_MOST: Final = 1 << 30
ROWS_MOST: Final = 1 << 22
"""Rows of a file before they are compacted; a hostile file of 64 MB could have 60 million."""
PADDING_MOST: Final = 16
"""Bytes between two functions that belong to the first one: no code is executed there."""
ARM64_SIGNAL_RULE: Final = Rule(RuleKind.SIGNAL, offset=560, saved_offset=544)
"""struct rt_sigframe: siginfo (128), ucontext up to x0 (184); x29, x30, sp and pc are in a row."""
MAGIC: Final = b"tlstaxUT"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sII")  # magic, version, CRC-32 of all that follows
_COUNTS: Final = struct.Struct("<QIIIIIB")
Words = npt.NDArray[np.uint32]


class FileTable(NamedTuple):
    """How to find the caller from any instruction of a file. Addresses are the file's."""

    base: int  # address of the first bucket
    firsts: Words  # first row of each bucket, and the number of rows
    rows: Words  # the first one is NONE: for addresses before all others
    rules: tuple[Rule, ...]
    functions_count: int
    damaged_count: int  # entries that could not be read
    build_id: str

    @property
    def buckets_count(self) -> int:
        """Buckets of text."""
        return len(self.firsts) - 1

    @property
    def words_count(self) -> int:
        """Words that the programs in the kernel need for it."""
        return len(self.firsts) + len(self.rows)

    @property
    def unsupported_count(self) -> int:
        """Rows that say only that the programs cannot follow this place."""
        numbers = [n for n, rule in enumerate(self.rules) if rule.kind == RuleKind.UNSUPPORTED]
        is_rule = (self.rows >> np.uint32(8) & np.uint32(7)) == Kind.RULE
        return int(np.isin(self.rows[is_rule] >> np.uint32(OFFSET_SHIFT), numbers).sum())

    def row(self, address: int) -> int:
        """The row for an address, as the programs find it; 0 if there is none."""
        bucket = address - self.base >> BUCKET_BITS
        if not 0 <= bucket < self.buckets_count:
            return 0
        first, end = int(self.firsts[bucket]), int(self.firsts[bucket + 1])
        low = self.rows[first:end] & np.uint32(0xFF)
        found = first + int(np.searchsorted(low, address & 0xFF, side="right")) - 1
        return int(self.rows[found])


def build(elf: Elf, debug_frames: tuple[bytes, int] = (b"", 0)) -> FileTable | None:
    """The table of a file; None if it has no call frame information for its code, or too much.

    `debug_frames`: .debug_frame of its debug file, and the section's address.
    """
    registers = REGISTERS.get(elf.machine)
    if registers is None:
        return None
    spans = [(s.address, s.address + s.file_size) for s in elf.segments if s.executable]
    if not spans:
        return None
    base = min(start for start, _ in spans) >> BUCKET_BITS << BUCKET_BITS
    end = max(end for _, end in spans)
    if end - base > TEXT_BYTES_MOST:
        return None
    packer = Packer(registers)
    starts, ends, programs, damaged_count = [], [], [], 0
    results = _Results()
    for content, address, is_debug in _sections(elf, debug_frames):
        entries = read_entries(content, address, is_debug)
        damaged_count += entries.damaged_count
        for function, number in results.run(entries, packer):
            starts.append(function.start)
            ends.append(function.end)
            programs.append(number)
        damaged_count += results.damaged_count
    for function in _signal_frames(elf) if registers.is_linked else ():
        starts.append(function.start)
        ends.append(function.end)
        programs.append(results.keep(Rows([0], [packer.rule_word(ARM64_SIGNAL_RULE)])))
    for uncovered in uncovered_rows(elf, starts, ends, packer.rule_word):
        starts.append(uncovered.start)
        ends.append(uncovered.end)
        programs.append(results.keep(uncovered.rows))
    if not starts or len(packer.rules) > RULES_MOST or results.rows_count > ROWS_MOST:
        return None
    addresses, words = _spread(starts, ends, programs, results)
    addresses, words = _compact(addresses, words, base, end)
    buckets_count = (end - base >> BUCKET_BITS) + 1
    edges = base + (np.arange(buckets_count + 1, dtype=np.int64) << BUCKET_BITS)
    index = (np.searchsorted(addresses, edges) + 1).astype(np.uint32)
    rows = np.zeros(len(words) + 1, np.uint32)
    rows[1:] = words | (addresses & 0xFF).astype(np.uint32)
    rules = tuple(packer.rules)
    return FileTable(base, index, rows, rules, len(starts), damaged_count, elf.build_id)


def _sections(elf: Elf, debug_frames: tuple[bytes, int]) -> Iterator[tuple[bytes, int, bool]]:
    """(contents, address, whether it is .debug_frame): of several entries of a function the first
    is used.
    """
    section = elf.section(".eh_frame")
    if section is not None and section.in_file and section.size <= SECTION_BYTES_MOST:
        yield elf.content(".eh_frame"), section.address, False
    for content, address in (frames_in(elf), debug_frames):
        if content:
            yield content, address, True


def _signal_frames(elf: Elf) -> list[Function]:
    """The function of arm64's vdso that signal handlers return to. The kernel gives it no entry."""
    found = elf.find(re.compile("__kernel_rt_sigreturn"))
    # A return address is looked up as the one before it.
    return [Function(one.address - 4, one.address + 8, 0, b"") for one in found]


class _Results:
    """The rows of each different program of a file, end to end."""

    def __init__(self) -> None:
        self.deltas: list[int] = []
        self.words: list[int] = []
        self.firsts: list[int] = []
        self.counts: list[int] = []
        self.damaged_count = 0
        self.rows_count = 0  # of all functions that were read

    def run(self, entries: Entries, packer: Packer) -> list[tuple[Function, int]]:
        """The functions of a section with the number of their result; without damaged ones."""
        programs = Programs(packer.word, packer.registers)
        known: dict[tuple[int, bytes], int] = {}
        found: list[tuple[Function, int]] = []
        self.damaged_count = 0
        for function in entries.functions:
            if self.rows_count > ROWS_MOST:
                break
            # What follows the last instruction is zeros; so may be operands: the runner adds some.
            key = (function.common, function.program.rstrip(b"\0"))
            number = known.get(key)
            if number is None:
                common = entries.commons[function.common]
                try:
                    if common.return_register != packer.registers.return_address:
                        raise IndexError("another return address register")
                    rows = programs.rows(*key[:1], common, key[1])
                except IndexError:
                    rows = Rows([], [])
                number = known[key] = self.keep(rows)
            if number >= 0:
                self.rows_count += self.counts[number]
                found.append((function, number))
            else:
                self.damaged_count += 1
        return found

    def keep(self, rows: Rows) -> int:
        """The number of a new result; -1 if it is damaged."""
        if not rows.deltas or max(rows.deltas) >= 1 << 32 or min(rows.deltas) < 0:
            return -1
        self.firsts.append(len(self.deltas))
        self.counts.append(len(rows.deltas))
        self.deltas += rows.deltas
        self.words += rows.words
        return len(self.firsts) - 1


def _spread(
    starts: list[int], ends: list[int], programs: list[int], results: _Results
) -> tuple[npt.NDArray[np.int64], Words]:
    """Addresses and words of all rows, in order. A function ends where the next one starts."""
    start, end = np.array(starts, np.int64), np.array(ends, np.int64)
    program = np.array(programs, np.int64)
    order = np.argsort(start, kind="stable")
    start, end, program = start[order], end[order], program[order]
    is_first = np.ones(len(start), bool)  # of those at one address: .eh_frame is read first
    is_first[1:] = start[1:] != start[:-1]
    start, end, program = start[is_first], end[is_first], program[is_first]
    following = np.append(start[1:], np.int64(1 << 62))
    end = np.where(following - end < PADDING_MOST, following, end)

    firsts = np.array([*results.firsts, len(results.deltas)], np.int64)
    counts = (firsts[1:] - firsts[:-1])[program]
    before = np.cumsum(counts) - counts
    place = np.arange(counts.sum()) - np.repeat(before, counts) + np.repeat(firsts[program], counts)
    addresses = np.repeat(start, counts) + np.array(results.deltas, np.int64)[place]
    words = np.array(results.words, np.uint32)[place]
    inside = addresses < np.repeat(end, counts)
    is_gap = end < following  # nothing is known from the end of these functions on
    addresses = np.concatenate((addresses[inside], end[is_gap]))
    words = np.concatenate((words[inside], np.zeros(is_gap.sum(), np.uint32)))
    order = np.argsort(addresses, kind="stable")
    return addresses[order], words[order]


def _compact(
    addresses: npt.NDArray[np.int64], words: Words, base: int, end: int
) -> tuple[npt.NDArray[np.int64], Words]:
    """Only rows of mapped code, the last one of each address, without repetitions."""
    mapped = (addresses >= base) & (addresses < end)
    mapped[:-1] &= addresses[1:] != addresses[:-1]
    addresses, words = addresses[mapped], words[mapped]
    changes = np.ones(len(words), bool)
    changes[1:] = words[1:] != words[:-1]
    if len(words):
        changes[0] = words[0] != 0
    return addresses[changes], words[changes]


# ---- as bytes ----


def to_bytes(table: FileTable) -> bytes:
    """The table as it is kept in a file."""
    identity = bytes.fromhex(table.build_id)
    body = b"".join(
        (
            _COUNTS.pack(
                table.base,
                len(table.firsts),
                len(table.rows),
                len(table.rules),
                table.functions_count,
                table.damaged_count,
                len(identity),
            ),
            identity,
            *(RULE_FORMAT.pack(*rule) for rule in table.rules),
            table.firsts.astype("<u4").tobytes(),
            table.rows.astype("<u4").tobytes(),
        )
    )
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def from_bytes(data: bytes) -> FileTable:
    """The table in a file that to_bytes() wrote. ValueError, and why, for anything else."""
    if len(data) < _HEAD.size + _COUNTS.size or data[:8] != MAGIC:
        raise ValueError("it is not an unwind table")
    _, version, checksum = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"it has version {version}, this tlstax reads {VERSION}")
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise ValueError("its checksum is wrong")
    base, indexes, rows, rules, functions, damaged, identity = _COUNTS.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _COUNTS.size
    sizes = (identity, rules * RULE_FORMAT.size, indexes * 4, rows * 4)
    if at + sum(sizes) != len(data) or rules > RULES_MOST or indexes < 2 or rows < 1:
        raise ValueError("its counts do not fit its size")
    build_id = data[at : at + identity].hex()
    at += identity
    each = RULE_FORMAT.iter_unpack(data[at : at + sizes[1]])
    at += sizes[1]
    index = np.frombuffer(data, "<u4", indexes, at).astype(np.uint32)
    table = FileTable(
        base,
        index,
        np.frombuffer(data, "<u4", rows, at + sizes[2]).astype(np.uint32),
        tuple(Rule(*rule) for rule in each),
        functions,
        damaged,
        build_id,
    )
    _require_sound(table)
    return table


def _require_sound(table: FileTable) -> None:
    """ValueError unless every number in it leads to something that it has."""
    kinds = table.rows >> np.uint32(8) & np.uint32(7)
    numbers = table.rows[kinds == Kind.RULE] >> np.uint32(OFFSET_SHIFT)
    if table.base % (1 << BUCKET_BITS) or table.base >= 1 << 48:
        raise ValueError("its first address is not one of code")
    if table.firsts[0] < 1 or table.firsts[-1] != len(table.rows):
        raise ValueError("its index does not fit its rows")
    if (table.firsts[1:] < table.firsts[:-1]).any() or (kinds > Kind.END).any():
        raise ValueError("its rows are not in order")
    if len(numbers) and numbers.max() >= len(table.rules):
        raise ValueError("a row refers to a rule that it does not have")
    for rule in table.rules:
        if rule.kind > max(RuleKind) or rule.register >= REGISTERS_MOST or rule.saved > max(Saved):
            raise ValueError("a rule is of a kind that does not exist")
