# SPDX-License-Identifier: GPL-2.0-only
"""What /proc/cpuinfo says of this host's CPUs."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

CRYPTO_FLAGS: Final = frozenset(
    (
        *("aes", "pclmulqdq", "sha_ni", "sse2", "avx", "avx2", "avx512f", "vaes", "vpclmulqdq"),
        *("bmi2", "adx", "asimd", "pmull"),
    )
)
"""Every 64-bit CPU has sse2 or asimd: a CPU of which no feature is known was not asked."""


def cpu_facts() -> dict[str, object]:
    """The number of CPUs, and their features that matter to crypto (arm64 calls them Features)."""
    return {
        "cpu_count": os.cpu_count(),
        "cpu_model": cpu_field("model name"),
        "cpu_flags": crypto_flags(f"{cpu_field('flags')} {cpu_field('Features')}"),
    }


def crypto_flags(features: str) -> str:
    """Those of a CPU's features that matter to crypto, sorted."""
    return " ".join(sorted(CRYPTO_FLAGS.intersection(features.split())))


def cpu_field(name: str) -> str:
    """A field of the first CPU in /proc/cpuinfo, or `unknown`."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "unknown"
