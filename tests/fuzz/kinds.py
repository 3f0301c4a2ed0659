# SPDX-License-Identifier: GPL-2.0-only
"""What is mutated, and the commands that read it."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from tlstax.tests.fuzz import captures, seeds, streams, texts


class Kind(Protocol):
    """One kind of input."""

    def make(self, number: int) -> str:
        """Write the mutant of this number; what it is."""

    def commands(self, number: int, is_short: bool) -> list[list[str]]:
        """The commands that read it; with `is_short` a few, others for each number."""

    def run(self, command: list[str]) -> int:
        """Run one; its exit status."""

    def clear(self) -> None:
        """Remove what commands wrote."""

    @property
    def cpu_s(self) -> float:
        """CPU time that a command may take."""

    @property
    def wall_s(self) -> float:
        """Time that a command may take, on a busy host, too."""


class Captures(texts.OfTlstax):
    """Captures, and every command that reads one."""

    def __init__(self, folder: Path) -> None:
        self._seeds = {name: folder / f"{name}.tlstax" for name in seeds.NAMES}
        self._mutant = folder / "mutant.tlstax"
        self._seed = "attached"
        self._made = folder / "made"
        self._made.mkdir(exist_ok=True)

    def make(self, number: int) -> str:
        """Write the mutant."""
        self._seed, done = captures.make(number, self._seeds, self._mutant)
        return f"{self._seed}: {done}"

    def commands(self, number: int, is_short: bool) -> list[list[str]]:
        """The report always; with `is_short` one other of each second."""
        path, seed = str(self._mutant), str(self._seeds[self._seed])
        every = [
            ["report", path],
            ["report", path, "--html", f"{self._made}/a.html"],
            ["diff", f"{path}:plaintext", f"{path}:tls"],
            ["flamegraph", path, "--kind", "mixed", "-o", "-"],
            ["whatif", path, "--pool", "20"],
            ["report", path, "--markdown", "-"],
            ["diff", seed, path, "--per", "connection", "--html", f"{self._made}/d.html"],
            ["export", path, "--format", "pprof", "-o", f"{self._made}/a.pb.gz"],
            ["diff", path, seed, "--per", "query", "--markdown", "-"],
            ["report", path, "--json", "-"],
            ["export", path, "--format", "speedscope", "-o", "-"],
            ["flamegraph", path, "--against-capture", seed, "-o", f"{self._made}/a.svg"],
            ["export", path, "--format", "firefox", "-o", f"{self._made}/a.json"],
            ["export", path, "--format", "folded", "-o", "-"],
            ["top", path, "--once"],
            ["export", path, "--format", "parquet", "-o", f"{self._made}/a.parquet"],
            ["diff", path, path, "--per", "query", "--json", f"{self._made}/d.json"],
            ["fleet", "add", path, "--data", f"{self._made}/fleet"],
            ["whatif", f"{path}:tls", "--library", "openssl-3.5", "--measured", seed],
        ]
        if not is_short:
            return every
        others = every[1:]
        return [every[0], others[number % len(others)], others[(number // 2) % len(others)]]

    def clear(self) -> None:
        """Remove outputs, and what SQLite left."""
        for path in self._made.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        Path(f"{self._mutant}-journal").unlink(missing_ok=True)


KINDS: Final[Mapping[str, Callable[[Path], Kind]]] = {
    "captures": Captures,
    "definitions": texts.Definitions,
    "imports": texts.Imports,
    "streams": streams.Streams,
}


def prepare(folder: Path) -> None:
    """What the kinds need in the folder of a worker."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seeds.make(folder)
