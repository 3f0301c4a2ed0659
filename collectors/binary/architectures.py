# SPDX-License-Identifier: GPL-2.0-only
"""The architecture of an ELF file."""

from functools import cache

from tlstax.collectors.binary.machine import ARM64, X86_64, Machine


@cache
def machine_of(name: str) -> Machine:
    """The architecture of an ELF file, by Elf.machine. KeyError for one that is not supported.

    Its decoder is imported here: that of the other one may not be installed.
    """
    if name == X86_64:
        from tlstax.collectors.binary.x86 import X86

        return X86()
    if name == ARM64:
        from tlstax.collectors.binary.arm64 import Arm64

        return Arm64()
    raise KeyError(name)
