# SPDX-License-Identifier: GPL-2.0-only
"""The functions of a file that its call frame information leaves out, and rows for them.

A function begins at a symbol, or where a direct call leads to.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.unwinding.frame_program import Rows
from tlstax.collectors.unwinding.row_format import Rule

GAP_LEAST: Final = 16
"""Bytes; what is shorter is padding."""
ALIGNMENT: Final = 16
"""Of a function without a symbol: four random bytes that look like a call to one are rare then."""
CALLED_LEAST: Final = 1 << 12
"""Bytes of gaps for which all code is searched for calls: 0.1 s for a large server."""
CALL: Final = 0xE8
Addresses = npt.NDArray[np.int64]


class Uncovered(NamedTuple):
    """A stretch of code with rows that call frame information does not have."""

    start: int
    end: int
    rows: Rows


def uncovered_rows(
    elf: Elf, starts: Sequence[int], ends: Sequence[int], rule_word: Callable[[Rule], int]
) -> list[Uncovered]:
    """Rows for what lies in .text outside of these functions. x86-64 only.

    `rule_word` gives the word that refers to a rule.
    """
    text = elf.section(".text")
    if elf.machine != "EM_X86_64" or text is None or not text.in_file:
        return []
    gaps = _gaps(text.address, text.address + text.size, starts, ends)
    if not len(gaps):
        return []
    try:
        from tlstax.collectors.unwinding.assembly_rows import Code, word_of
    except ModuleNotFoundError:  # no decoder for this processor's desk
        return []
    entries = _entries(elf, gaps, text.address)

    def end_of(address: int) -> int:
        place = int(np.searchsorted(gaps[:, 0], address, side="right")) - 1
        return int(gaps[place, 1]) if place >= 0 and address < gaps[place, 1] else 0

    code = Code(
        lambda address: elf.code_at(address, end_of(address) - address),
        lambda address: bool(end_of(address)),
    )
    rows = list(code.rows(entries))
    addresses = np.array([row.address for row in rows], np.int64)
    found = []
    for start, end in gaps.tolist():
        first, last = np.searchsorted(addresses, (start, end))
        if first < last:
            inside = rows[first:last]
            words = [word_of(row.rule, rule_word) for row in inside]
            begin = inside[0].address
            deltas = [row.address - begin for row in inside]
            found.append(Uncovered(begin, end, Rows(deltas, words)))
    return found


def _gaps(first: int, last: int, starts: Sequence[int], ends: Sequence[int]) -> Addresses:
    """(start, end) of what no function covers, by address."""
    start, end = np.array(starts, np.int64), np.array(ends, np.int64)
    order = np.argsort(start, kind="stable")
    start, covered = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    left = np.append(np.int64(first), covered)
    right = np.append(start, np.int64(last))
    is_gap = (right - left >= GAP_LEAST) & (left >= first) & (right <= last)
    return np.stack((left[is_gap], right[is_gap]), axis=1)


def _entries(elf: Elf, gaps: Addresses, base: int) -> list[int]:
    symbols = [address for table in (".symtab", ".dynsym") for address, _, _ in elf.symbols(table)]
    is_large = int((gaps[:, 1] - gaps[:, 0]).sum()) >= CALLED_LEAST
    content = np.frombuffer(elf.content(".text") if is_large else bytes(5), np.uint8)
    places = np.flatnonzero(content[:-4] == CALL).astype(np.int64)
    offsets = sum(content[places + 1 + i].astype(np.int64) << 8 * i for i in range(4))
    targets = base + places + 5 + np.asarray(offsets, np.int64).astype(np.int32)
    targets = targets[targets % ALIGNMENT == 0]
    found = np.unique(np.concatenate((np.array(symbols, np.int64), targets)))
    place = np.searchsorted(gaps[:, 0], found, side="right") - 1
    is_inside = (place >= 0) & (found < gaps[np.maximum(place, 0), 1])
    return [int(each) for each in found[is_inside]]
