# SPDX-License-Identifier: GPL-2.0-only
"""A row that differs from the file's own call frame information gives a wrong caller.

Every row of this host's libraries is compared with what pyelftools decodes. Of large files one
function in several is, unless TLSTAX_ALL_ROWS is set (minutes).
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.unwinding.file_table import FileTable, build
from tlstax.collectors.unwinding.process_tables import vdso_of
from tlstax.collectors.unwinding.row_format import (
    OFFSET_SHIFT,
    SAVED_SHIFT,
    UNSUPPORTED,
    Kind,
    Rule,
    RuleKind,
    Saved,
)

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
FILES = {
    "libssl": (LIBRARIES / "libssl.so.3", 1),
    "libcrypto": (LIBRARIES / "libcrypto.so.3", 6),
    "libc": (LIBRARIES / "libc.so.6", 3),
    "ld.so": (LIBRARIES / "ld-linux-x86-64.so.2", 1),
    "libstdc++": (LIBRARIES / "libstdc++.so.6", 8),
    "mariadbd": (Path("/usr/sbin/mariadbd"), 24),
}


RBP, RA, ARGS_SIZE = 6, 16, 0x2E
BREG_RSP, BREG_RIP = 0x77, 0x80


def rule_of_word(word: int, rules: tuple[Rule, ...]) -> Rule | Kind:
    """What a word of a table says."""
    kind = Kind(word >> 8 & 7)
    if kind in (Kind.NONE, Kind.END):
        return kind
    if kind == Kind.RULE:
        return rules[word >> OFFSET_SHIFT]
    saved = word >> SAVED_SHIFT
    return Rule(
        RuleKind.REGISTER,
        7 if kind == Kind.SP else 6,
        Saved.AT_CFA if saved else Saved.SAME,
        offset=(word >> OFFSET_SHIFT & 0x1FFF) * 8,
        saved_offset=-8 * saved,
    )


def functions(
    path: Path, every: int = 1, *, is_debug: bool = False
) -> Iterator[tuple[int, int, list[dict[Any, Any]], bool]]:
    """(start, end, decoded lines, of a signal frame) of one function in `every`."""
    with path.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        found = dwarf.CFI_entries() if is_debug else dwarf.EH_CFI_entries()
        entries = [entry for entry in found if isinstance(entry, FDE)]
        for entry in entries[::every]:
            start = entry["initial_location"]
            assert entry.cie is not None
            is_signal = b"S" in entry.cie["augmentation"]
            # Without DW_CFA_GNU_args_size, which has no effect and which it refuses.
            entry.instructions[:] = [i for i in entry.instructions if int(i.opcode) != ARGS_SIZE]
            lines = [line for line in entry.get_decoded().table if "cfa" in line]
            yield start, start + entry["address_range"], lines, is_signal


def expected(line: dict[Any, Any], is_signal: bool) -> Rule | Kind | None:
    """The rule of a decoded line; None for an expression that only the table's tests know."""
    cfa, rbp, ra = line["cfa"], line.get(RBP), line.get(RA)
    if ra is not None and ra.type == "UNDEFINED":
        return Kind.END
    if is_signal:
        return Rule(RuleKind.SIGNAL, 7, offset=160, add=168, saved_offset=120)
    if ra is not None and (ra.type, ra.arg) != ("OFFSET", -8):
        return UNSUPPORTED
    if cfa.expr is not None:
        code = list(cfa.expr)
        if code[0] == BREG_RSP and BREG_RIP in code and code[-1] == 0x22:
            return Rule(RuleKind.PLT, code[6] - 0x30, offset=code[1])
        return None
    rule = Rule(RuleKind.REGISTER, cfa.reg, offset=cfa.offset)
    if rbp is None or rbp.type == "SAME_VALUE":
        return rule
    if rbp.type == "OFFSET":
        return rule._replace(saved=Saved.AT_CFA, saved_offset=rbp.arg)
    if rbp.type == "UNDEFINED":
        return rule._replace(saved=Saved.LOST)
    if rbp.type == "EXPRESSION" and len(rbp.arg) == 2 and rbp.arg[0] == 0x76:
        offset = rbp.arg[1] - (0x80 if rbp.arg[1] & 0x40 else 0)
        return rule._replace(saved=Saved.AT_RBP, saved_offset=offset)
    return None


def compare(path: Path, table: FileTable, every: int, *, is_debug: bool = False) -> Counter[str]:
    """Rows that were compared, and those that the reference does not put into words.

    `is_debug`: with .debug_frame of the file instead of .eh_frame.
    """
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for start, end, lines, is_signal in functions(path, every, is_debug=is_debug):
        if end <= start:
            continue
        edges = [line["pc"] for line in lines] + [end]
        for line, following in zip(lines, edges[1:], strict=False):
            right = expected(line, is_signal)
            if line["pc"] >= min(following, end):
                continue
            if right is None:
                seen["not compared"] += 1
                continue
            for address in (line["pc"], min(following, end) - 1):
                found = rule_of_word(table.row(address), table.rules)
                seen["compared"] += 1
                if found != right:
                    wrong.append(f"{address:#x}: {found} instead of {right}")
    assert not wrong, f"{len(wrong)} rows of {path}:\n" + "\n".join(wrong[:10])
    return seen


@pytest.mark.parametrize("name", FILES)
def test_every_row(name: str) -> None:
    path, every = FILES[name]
    if not path.exists():
        pytest.skip(f"{path} is not installed")
    with Elf(path) as elf:
        table = build(elf)
    assert table is not None
    assert table.damaged_count == 0
    seen = compare(path, table, 1 if os.environ.get("TLSTAX_ALL_ROWS") else every)
    assert seen["compared"] > 500
    assert seen["not compared"] <= seen["compared"] / 100


def test_vdso(tmp_path: Path) -> None:
    content = vdso_of(PROC)
    path = tmp_path / "vdso"
    path.write_bytes(content)
    with Elf(path) as elf:
        table = build(elf)
    assert table is not None
    assert compare(path, table, 1)["compared"] > 20
    assert table.row(table.base + len(content)) >> 8 & 7 == Kind.NONE
