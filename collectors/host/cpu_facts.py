# SPDX-License-Identifier: GPL-2.0-only
"""What /proc/cpuinfo says of this host's CPUs."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

CRYPTO_FLAGS: Final = frozenset(
    ("aes", "pclmulqdq", "sha_ni", "avx", "avx2", "avx512f", "vaes", "vpclmulqdq", "bmi2", "adx")
)


def cpu_facts() -> dict[str, object]:
    """The number of CPUs, and their features that matter to crypto."""
    flags = cpu_field("flags").split()
    return {
        "cpu_count": os.cpu_count(),
        "cpu_model": cpu_field("model name"),
        "cpu_flags": " ".join(sorted(CRYPTO_FLAGS.intersection(flags))),
    }


def cpu_field(name: str) -> str:
    """A field of the first CPU in /proc/cpuinfo, or `unknown`."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "unknown"
