# SPDX-License-Identifier: GPL-2.0-only
"""Two readings of Debian's arm64 libraries that share no code must agree, and a plan be whole.

    python tests/kernels/arm64_files.py ROOT

- rows: unwind tables against what pyelftools decodes from the same call frame information;
- depths: the stack depth that placement finds by following instructions against those rows;
- plan: MariaDB's plan has what a handshake record needs, on simulated instructions.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.placement.probe_points import Finder
from tlstax.collectors.process.target import open_target
from tlstax.collectors.unwinding.file_table import FileTable, build
from tlstax.collectors.unwinding.row_format import OFFSET_SHIFT, SAVED_SHIFT, Kind, Saved
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import Level

FILES: Final = {  # one function in so many
    "usr/lib/aarch64-linux-gnu/libssl.so.3": 2,
    "usr/lib/aarch64-linux-gnu/libcrypto.so.3": 16,
    "usr/lib/aarch64-linux-gnu/libc.so.6": 8,
    "usr/sbin/mariadbd": 300,
}
SP, FRAME, LINK = 31, 29, 30
PID: Final = 7
NEEDED: Final = (
    ("handshake_call", "enter"), ("handshake_call", "exit"), ("handshake", "enter"),
    ("handshake", "exit"), ("command", "enter"), ("connect_ready", "exit"),
)  # fmt: skip


def functions(path: Path, every: int) -> Iterator[tuple[int, int, list[dict[Any, Any]]]]:
    """(start, end, decoded lines) of one function in `every`."""
    with path.open("rb") as file:
        entries = ELFFile(file).get_dwarf_info().EH_CFI_entries()
        for entry in [one for one in entries if isinstance(one, FDE)][::every]:
            start = entry["initial_location"]
            lines = [line for line in entry.get_decoded().table if "cfa" in line]
            yield start, start + entry["address_range"], lines


def told(line: dict[Any, Any]) -> tuple[int, int, int, int] | None:
    """(CFA's register, its offset, where x29 is, where x30 is: 0 as it was); None: no such row."""
    cfa, frame, link = line["cfa"], line.get(FRAME), line.get(LINK)
    if cfa.reg is None or any(rule and rule.type != "OFFSET" for rule in (frame, link)):
        return None
    return cfa.reg, cfa.offset, frame.arg if frame else 0, link.arg if link else 0


def row_of(table: FileTable, address: int) -> tuple[int, int, int, int] | None:
    """The same, of a table."""
    word = table.row(address)
    kind = Kind(word >> 8 & 7)
    if kind == Kind.RULE:
        rule = table.rules[word >> OFFSET_SHIFT]
        saved = rule.saved_offset if rule.saved == Saved.AT_CFA else 0
        return rule.register, rule.offset, saved, rule.add
    if kind not in (Kind.SP, Kind.BP):
        return None
    below = word >> SAVED_SHIFT
    register = SP if kind == Kind.SP else FRAME
    offset = (word >> OFFSET_SHIFT & 0x1FFF) * 8
    return register, offset, -8 * below, 8 - 8 * below if below else 0


def check(path: Path, every: int) -> list[str]:
    """What disagrees; prints how much was compared."""
    wrong: list[str] = []
    rows_count = depths_count = unknown_count = 0
    with Elf(path) as elf:
        table, finder = build(elf), Finder(elf)
        assert table is not None
        for start, end, lines in functions(path, every):
            for line in lines:
                expected = told(line)
                if expected is not None and line["pc"] < end:
                    rows_count += 1
                    if (found := row_of(table, line["pc"])) != expected:
                        wrong.append(f"row {line['pc']:#x}: {found}, not {expected}")
            flow = finder.flow(Symbol(start, end - start, ""))
            for address, depth in flow.depth_bytes.items():
                row = row_of(table, address) if start <= address < end else None
                if row is None or row[0] != SP:
                    continue
                depths_count += 1
                unknown_count += depth is None
                if depth is not None and depth != row[1]:
                    wrong.append(f"depth {address:#x}: {depth}, not {row[1]}")
    counts = f"{rows_count} rows, {depths_count} depths ({unknown_count} unknown)"
    print(f"{path.name}: {counts}, {len(wrong)} differ", flush=True)
    return wrong


def process_of(root: Path, folder: Path) -> Path:
    """What /proc would show of MariaDB with its libraries, as planning reads it."""
    process = folder / "proc" / str(PID)
    (process / "map_files").mkdir(parents=True)
    (folder / "machine").write_text("aarch64")
    maps, start = "", 0xAAAA00000000
    for number, name in enumerate(FILES):
        path = (root / name).resolve()
        with Elf(path) as elf:
            for part in elf.segments:
                if part.executable:
                    first = start + part.address & -4096
                    last = start + part.address + part.file_size + 4095 & -4096
                    place = f"{first:x}-{last:x}"
                    offset = part.offset & -4096
                    maps += f"{place} r-xp {offset:08x} 08:01 {number + 1} /{name}\n"
                    (process / "map_files" / place).symlink_to(path)
        start += 1 << 32
    (process / "maps").write_text(maps)
    (process / "stat").write_text(f"{PID} (mariadbd) S " + " ".join(["1"] * 30))
    (process / "status").write_text(f"Name:\tmariadbd\nTgid:\t{PID}\nNSpid:\t{PID}\n")
    (process / "exe").symlink_to("/usr/sbin/mariadbd")
    (process / "root").symlink_to("/")
    return folder / "proc"


def check_plan(root: Path) -> list[str]:
    """What the plan of MariaDB lacks."""
    with tempfile.TemporaryDirectory() as name:
        target = open_target(PID, process_of(root, Path(name)))
        made = plan(target, load_definitions(None), Level.RECORD)
    placed = {(site.boundary, site.event) for site in made.sites}
    wrong = [f"plan: no {one} {event}" for one, event in NEEDED if (one, event) not in placed]
    wrong += [f"plan: {one} is unknown" for one, offset in made.accessors.items() if offset < 0]
    returning = [site.function for site in made.sites if site.kind != "uprobe"]
    wrong += [f"plan: a return probe on {name}" for name in returning]
    stepped = sum(site.stepped for site in made.sites)
    print(f"plan: {len(made.sites)} probes, {stepped} single-stepped; {len(wrong)} faults")
    return wrong


def main(root: Path) -> int:
    """Compare every file; 1 if one differs."""
    wrong = check_plan(root)
    wrong += [line for name, every in FILES.items() for line in check(root / name, every)]
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
