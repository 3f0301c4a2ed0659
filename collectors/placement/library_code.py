# SPDX-License-Identifier: GPL-2.0-only
"""Which cryptographic instructions a process's TLS library contains, found by disassembling it.

A build without them computes AES and SHA with general instructions, which is slower by a factor;
it is a property of the build, not of the library. The bytes of such an instruction are searched
for, and decoded where they are found. Ciphers and hashes work in rounds, so a find counts when
another instruction of the kind follows soon; bytes that match by chance have no such neighbour. A
library linked into a program cannot be separated from the program's own code, so the whole program
is searched: what is not found is not in the library either.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from tlstax.collectors.binary.code_evidence import AES, SHA
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.instructions import decode
from tlstax.collectors.placement.planning import plan_in_child

# Opcodes as the manuals of Intel and AMD give them: legacy (with an optional REX) and VEX forms.
BYTES: Final = {
    "aes": re.compile(
        rb"\x66[\x40-\x4f]?\x0f\x38[\xdc\xdd]|\xc4[\x02\x22\x42\x62\x82\xa2\xc2\xe2].[\xdc\xdd]",
        re.DOTALL,
    ),
    "sha": re.compile(rb"\x0f\x38[\xc8-\xcd]"),
}
MNEMONICS: Final[Mapping[str, frozenset[int]]] = {"aes": AES, "sha": SHA}
NEAR_COUNT: Final = 12
CODE_BYTES: Final = NEAR_COUNT * 15  # no instruction is longer than 15 bytes


def crypto_instructions(pid: int) -> dict[str, bool]:
    """Whether the TLS library of a process contains instructions for "aes" and for "sha".

    Empty if no TLS library is recognised. Raises TlstaxError when the process cannot be read.
    """
    _, plan = plan_in_child(pid)
    library = plan.library("tls")
    if library is None:
        return {}
    found = dict.fromkeys(BYTES, False)
    for mapped in library.objects:
        with Elf(mapped.open_path, mapped.headers) as elf:
            for name in BYTES:
                found[name] = found[name] or holds(elf, name)
    return found


def holds(elf: Elf, name: str) -> bool:
    """Whether a file contains instructions of the kind `name`."""
    return any(_is_round(elf.code_at(address, CODE_BYTES), name) for address in _finds(elf, name))


def _is_round(code: bytes, name: str) -> bool:
    """Whether code begins with an instruction of the kind and soon has another one."""
    near = [instruction.mnemonic for instruction in islice(decode(code, 0), NEAR_COUNT)]
    kinds = MNEMONICS[name]
    return bool(near) and near[0] in kinds and not kinds.isdisjoint(near[1:])


def _finds(elf: Elf, name: str) -> Iterator[int]:
    """Addresses with the bytes of such an instruction; some match by chance."""
    text = elf.section(".text")
    if text is None:
        return
    content = elf.slice(text.offset, text.size)
    for match in BYTES[name].finditer(content):
        yield text.address + match.start()
