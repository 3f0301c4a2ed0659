# SPDX-License-Identifier: GPL-2.0-only
"""Assembly functions and kinds of fixtures, for the tests of this folder."""

from collections.abc import Callable
from pathlib import Path

from tlstax.collectors.process.target import Target

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]


def assembly(name: str, *lines: str, size: int | None = None) -> str:
    """C source with one function written in assembly."""
    body = "".join(f"{line}\\n" for line in lines)
    end = f"{size}" if size is not None else f".-{name}"
    return (
        f'asm(".text\\n.globl {name}\\n.type {name}, @function\\n{name}:\\n{body}'
        f'.size {name}, {end}\\n");\n'
    )
