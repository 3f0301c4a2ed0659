# SPDX-License-Identifier: GPL-2.0-only
"""Text from a capture inside Markdown."""

from typing import Final

from tlstax.analysis.report import texts

_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>|#"})


def plain(text: str) -> str:
    """Text on one line, in which Markdown finds nothing to interpret."""
    return texts.clean(" ".join(text.split())).translate(_SPECIAL)
