# SPDX-License-Identifier: GPL-2.0-only
"""Mutated streams of the recorder: frames whose checksums fit, with what no recorder writes."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from tlstax.collectors.placement.function_sites import plan_functions
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.target import open_target
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.probes.definitions import load_definitions
from tlstax.tests.fuzz.texts import OfTlstax
from tlstax.tests.unit.recording import streams

Part = tuple[str, bytes]
NUMBERS: Final = (0, 1, 2, 7, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1)
SIZES: Final = (1, 2, 4, 8)
_NO_LAYOUT: Final = ("MAGIC", "VERSION", "FRAME_MOST", "SPANS_MOST", "TARGETS_MOST")
_STRUCTURES: Final = {"HANDSHAKE": "handshake", "LINK": "fact"}
"""Frames whose structure has another name."""


class Streams(OfTlstax):
    """Streams, imported and reported."""

    def __init__(self, folder: Path) -> None:
        self._mutant, self._capture = folder / "mutant.stream", folder / "made.tlstax"
        self._parts = streams.two_windows(_plan_text())

    def make(self, number: int) -> str:
        """Write the mutant; the first one is none."""
        chance = random.Random(number)
        parts = [part for part in self._parts if not number or chance.random() < 0.98]
        done = [_change(parts, chance) for _ in range(chance.randrange(1, 5))] if number else []
        data = streams.stream(parts)
        if number and chance.random() < 0.25:
            data = _damaged(data, chance)
            done.append("damaged")
        self._mutant.write_bytes(data)
        return ", ".join(done)

    def commands(self, number: int, is_short: bool) -> list[list[str]]:
        """Import it, and report what came of it."""
        self.clear()
        read = ["import", str(self._mutant), "-o", str(self._capture)]
        report = ["report", str(self._capture)]
        return [read] if is_short and number % 2 else [read, report]

    def clear(self) -> None:
        """Remove the capture."""
        self._capture.unlink(missing_ok=True)


def _plan_text() -> str:
    """The plan of a process that has libssl."""
    code = "import ssl, sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        target = open_target(process.pid)
        known = load_definitions()
        functions = plan_functions(target, known, ("cipher",))
        return plan_file_text(target, plan(target, known), Safety(), functions)


def _kinds() -> list[str]:
    """Every type of frame."""
    names = [name.removeprefix("STREAM_") for name in definition().constants]
    return [name for name in names if name not in _NO_LAYOUT]


def _empty(kind: str) -> bytes:
    """A frame's structure of zeros; frames of bytes alone have some."""
    name = _STRUCTURES.get(kind, kind.lower())
    known = definition().structures.get(f"stream_{name}") or definition().structures.get(name)
    return bytes(known.size_bytes) if known else bytes(16)


def _change(parts: list[Part], chance: random.Random) -> str:
    """Change one frame, or its place; what was done."""
    at = chance.randrange(len(parts))
    kind, content = parts[at]
    how = chance.choice(
        ("new", "new", "numbers", "numbers", "type", "cut", "longer", "twice", "move")
    )
    if how == "new":
        kind = chance.choice(_kinds())
        content = _empty(kind)
        parts.insert(at, (kind, content))
    if how in ("new", "numbers") and content:
        made = bytearray(content)
        for _ in range(chance.randrange(1, 4)):
            size = chance.choice(SIZES)
            place = chance.randrange(len(made)) // size * size
            value = chance.choice((*NUMBERS, chance.getrandbits(64))) & ((1 << 8 * size) - 1)
            made[place : place + size] = value.to_bytes(size, "little")
        parts[at] = kind, bytes(made[: len(content)])
    elif how == "type":
        parts[at] = chance.choice(_kinds()), content
    elif how == "cut":
        parts[at] = kind, content[: chance.randrange(len(content) + 1)]
    elif how == "longer":
        parts[at] = kind, content + bytes(chance.choice((1, 8, 4096)))
    elif how == "twice":
        parts.insert(chance.randrange(len(parts)), parts[at])
    elif how == "move":
        parts.insert(chance.randrange(len(parts)), parts.pop(at))
    return f"{kind} {how}"


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, or the end cut off."""
    made = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made[: chance.randrange(len(made))] if chance.random() < 0.5 else made)
