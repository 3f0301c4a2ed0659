# SPDX-License-Identifier: GPL-2.0-only
"""Instructions for AES and SHA: found where they are, and not where only their bytes are."""

import platform
from pathlib import Path

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.placement.library_code import holds
from tlstax.tests.unit.conftest import Compile

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 instructions")

ROUNDS = """
void rounds(void) { __asm__("%s"); }
int main(void) { rounds(); return 0; }
"""
AES = r"aesenc %xmm1, %xmm0\n aesenc %xmm2, %xmm0\n aesenclast %xmm3, %xmm0"
AES_HIGH = r"aesenc %xmm9, %xmm8\n aesenclast %xmm10, %xmm8"
VECTOR_AES = r"vaesenc %ymm1, %ymm0, %ymm0\n vaesenclast %ymm2, %ymm0, %ymm0"
SHA = r"sha256rnds2 %xmm0, %xmm2, %xmm1\n sha256rnds2 %xmm0, %xmm1, %xmm2"
# mov $0xdc380f66, %eax: the bytes of aesenc as a number.
NUMBER = r"movl $0xdc380f66, %eax\n nop\n nop"


@pytest.mark.parametrize(
    ("code", "has_aes", "has_sha"),
    [
        (AES, True, False),
        (AES_HIGH, True, False),
        (VECTOR_AES, True, False),
        (SHA, False, True),
        (NUMBER, False, False),
    ],
)
def test_what_a_file_holds(compile_c: Compile, code: str, has_aes: bool, has_sha: bool) -> None:
    path = Path(compile_c(ROUNDS.replace("%s", code)))
    with Elf(path) as elf:
        assert (holds(elf, "aes"), holds(elf, "sha")) == (has_aes, has_sha)
