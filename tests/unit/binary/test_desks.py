# SPDX-License-Identifier: GPL-2.0-only
"""The desk of an arm64 host has no decoder of x86-64: only what decodes x86-64 may need it."""

import subprocess
import sys
from pathlib import Path

OF_X86 = {
    "tlstax.collectors.binary.code_evidence",
    "tlstax.collectors.binary.instructions",
    "tlstax.collectors.binary.x86",
    "tlstax.collectors.placement.library_code",
    "tlstax.collectors.unwinding.assembly_code",
    "tlstax.collectors.unwinding.assembly_rows",
    "tlstax.collectors.unwinding.assembly_state",
}
"""What the others import only where they have code of x86-64 before them."""
CODE = """
import importlib, sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "iced_x86":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Absent())
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error)
"""


def modules(repository: Path) -> list[str]:
    """All of what plans, records and names addresses."""
    files = sorted((repository / "collectors").rglob("*.py"))
    names = [".".join(file.relative_to(repository).with_suffix("").parts) for file in files]
    return [f"tlstax.{name.removesuffix('.__init__')}" for name in names]


def test_only_what_decodes_x86_needs_its_decoder(repository: Path) -> None:
    command = [sys.executable, "-c", CODE]
    names = modules(repository)
    said = subprocess.run(
        command, input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout
    failed = {line.partition(" ")[0] for line in said.splitlines()}
    assert set(names) >= OF_X86
    assert failed == OF_X86, said
