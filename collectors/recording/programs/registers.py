# SPDX-License-Identifier: GPL-2.0-only
"""The numbers by which cookies of probes tell a register: its place in probes/bpf/arch.h."""

from typing import Final

# In the order of struct pt_regs.
REGISTERS: Final = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
    "rdi",
)  # fmt: skip
# arm64: by REGISTER_PLACE of probes/bpf/arch.h.
ARM64_REGISTERS: Final = (*(f"x{n}" for n in range(8)), *(f"x{n}" for n in range(19, 27)))
REGISTER_NUMBERS: Final = {
    name: number for names in (REGISTERS, ARM64_REGISTERS) for number, name in enumerate(names)
} | {"": 0}
