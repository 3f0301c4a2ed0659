# SPDX-License-Identifier: GPL-2.0-only
"""Text of unknown origin made safe for a terminal."""


def visible(text: str) -> str:
    """Text of unknown origin with everything but printable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
