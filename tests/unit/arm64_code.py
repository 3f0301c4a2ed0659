# SPDX-License-Identifier: GPL-2.0-only
"""arm64 code for tests on any host: clang assembles it, no arm64 linker or header is needed."""

import struct
import subprocess
from pathlib import Path

from tlstax.collectors.binary.elf import Elf

BASE = 0x1000
EM_AARCH64, ET_DYN, PT_LOAD, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB = 183, 3, 1, 1, 2, 3


def words_of(folder: Path, *lines: str) -> list[int]:
    """The words that these instructions assemble to."""
    content = assembled(folder, *lines)
    return [word for (word,) in struct.iter_unpack("<I", content)]


def assembled(folder: Path, *lines: str) -> bytes:
    """The code of a text whose labels are all local."""
    source, made = folder / "code.s", folder / "code.o"
    source.write_text("\n".join((".arch armv8.5-a+lse+mops", ".text", *lines)) + "\n")
    target = ["clang", "--target=aarch64-linux-gnu", "-c", "-o", str(made), str(source)]
    subprocess.run(target, check=True, capture_output=True, text=True)
    with Elf(made) as elf:
        section = elf.section(".text")
        assert section is not None
        return elf.slice(section.offset, section.size)


def program(folder: Path, functions: dict[str, list[str]]) -> Path:
    """An ELF file with these functions, one after the other; `1:` and `1b` are labels."""
    code, symbols, strings = b"", [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)], b"\0"
    lines = [line for name, body in functions.items() for line in (f"L{name}:", *body)]
    code = assembled(folder, *lines)
    start = BASE
    for name, body in functions.items():
        size = 4 * sum(not line.rstrip().endswith(":") for line in body)
        symbols.append(struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, start, size))
        strings += name.encode() + b"\0"
        start += size
    assert start - BASE == len(code)
    names = b"\0.text\0.symtab\0.strtab\0"
    parts = [code, b"".join(symbols), strings, names]
    places = [BASE]
    for part in parts[:-1]:
        places.append(places[-1] + len(part) + -len(part) % 8)
    header = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, ET_DYN, EM_AARCH64, 1, 0, 64,
        places[-1] + len(names) + 8, 0, 64, 56, 1, 64, 5, 4,
    )  # fmt: skip
    load = struct.pack("<IIQQQQQQ", PT_LOAD, 5, BASE, BASE, BASE, len(code), len(code), 0x1000)
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, SHT_PROGBITS, 6, BASE, places[0], len(code), 0, 0, 4, 0),
        (7, SHT_SYMTAB, 0, 0, places[1], len(parts[1]), 3, 1, 8, 24),
        (15, SHT_STRTAB, 0, 0, places[2], len(strings), 0, 0, 1, 0),
        (1, SHT_STRTAB, 0, 0, places[3], len(names), 0, 0, 1, 0),
    ]
    content = bytearray((header + load).ljust(BASE, b"\0"))
    for place, part in zip(places, parts, strict=True):
        content[place:] = part.ljust(len(part) + -len(part) % 8, b"\0")
    content[places[-1] + len(names) :] = bytes(8)
    content += b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)
    path = folder / "program"
    path.write_bytes(content)
    return path
