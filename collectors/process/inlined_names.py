# SPDX-License-Identifier: GPL-2.0-only
"""Asks a helper for the functions that the compiler inlined at addresses of a file.

Reading DWARF is left to eu-addr2line (elfutils) or llvm-addr2line. Debug files are untrusted: the
helper runs with limits of time, memory and output, without an environment (so it asks no
debuginfod server), and only what it answers is used. Answers are kept by build-id below inlined/
of tlstax.cache_directory(). binutils' addr2line is not used: it names the innermost function after
the symbol table.
"""

import json
import re
import resource
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from tlstax import cache_directory
from tlstax.collectors.host.kept_file import keep_file, read_kept
from tlstax.collectors.process.symbols import demangle

HELPERS: Final = ("eu-addr2line", "llvm-addr2line")
SECONDS_MOST: Final = 60
MEMORY_BYTES_MOST: Final = 4 << 30
OUTPUT_BYTES_MOST: Final = 64 << 20
DEPTH_MOST: Final = 64
NAME_MOST: Final = 4096
_BUILD_ID: Final = re.compile(r"[0-9a-f]{8,64}")
_ADDRESS: Final = re.compile(r"0x([0-9a-f]{1,16})")
_CALL: Final = " inlined at "
"""eu-addr2line continues the innermost name with where it is inlined, and in what."""
_VERSION: Final = 1

Names = tuple[str, ...]
"""Inlined functions at one address, outermost first; none where nothing is inlined."""


@dataclass(frozen=True)
class Answer:
    """What is inlined at the addresses of a file."""

    names: Mapping[int, Names] = field(default_factory=dict)
    """By address; those that nobody answered are missing."""
    why: str = ""
    """Why some are missing; '' if none is."""


class InlinedNames:
    """The helper of this host, and the kept answers."""

    def __init__(self, helpers: Sequence[str] = HELPERS) -> None:
        """Use the first of these programs that is installed."""
        self._program = next(filter(None, map(shutil.which, helpers)), None)
        self._cache = cache_directory() / "inlined"

    def at(self, addresses: Collection[int], dwarf: Path, build_id: str) -> Answer:
        """The inlined functions at these addresses; `dwarf` has the file's .debug_info."""
        kept = self._kept(build_id)
        asked = sorted(set(addresses) - kept.keys())
        if not asked:
            return Answer({one: kept[one] for one in addresses})
        if self._program is None:
            return Answer(kept, f"{' or '.join(HELPERS)} not found: install elfutils or llvm")
        found, why = _ask(self._program, dwarf, asked)
        if found:
            self._keep(build_id, kept | found)
        return Answer(kept | found, why)

    def _kept(self, build_id: str) -> dict[int, Names]:
        """Answers of earlier runs; none if the file is damaged."""
        with suppress(OSError, ValueError, RecursionError):
            if _BUILD_ID.fullmatch(build_id):
                return _read(json.loads(read_kept(self._cache / f"{build_id}.json")))
        return {}

    def _keep(self, build_id: str, names: Mapping[int, Names]) -> None:
        if not _BUILD_ID.fullmatch(build_id):
            return
        document = {"version": _VERSION, "names": {f"{at:x}": one for at, one in names.items()}}
        with suppress(OSError):
            keep_file(self._cache / f"{build_id}.json", json.dumps(document).encode())


def _read(document: Any) -> dict[int, Names]:
    """Raises ValueError for what `_keep` does not write."""
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError
    names = document.get("names")
    if not isinstance(names, dict):
        raise ValueError
    made = {}
    for address, one in names.items():
        if not isinstance(one, list) or not all(isinstance(name, str) for name in one):
            raise ValueError
        made[int(address, 16)] = tuple(one)
    return made


def _ask(program: str, dwarf: Path, addresses: Sequence[int]) -> tuple[dict[int, Names], str]:
    """Its answers, and why there are not more."""
    command = [program, "-a", "-f", "-i", "-e", str(dwarf.absolute())]
    why = ""
    with TemporaryFile() as questions, TemporaryFile() as answers:
        questions.write("".join(f"{one:#x}\n" for one in addresses).encode())
        questions.seek(0)
        try:
            code = subprocess.run(
                command,
                stdin=questions,
                stdout=answers,
                stderr=subprocess.DEVNULL,
                env={"LC_ALL": "C"},
                preexec_fn=_limit,
                timeout=SECONDS_MOST,
                check=False,
            ).returncode
            why = f"{Path(program).name} ended with status {code}" if code else ""
        except subprocess.TimeoutExpired:
            why = f"{Path(program).name} took more than {SECONDS_MOST} s"
        except OSError as error:
            why = f"{program} cannot be run: {error.strerror}"
        answers.seek(0)
        found = _parse(answers.read(OUTPUT_BYTES_MOST), addresses)
    missing = len(addresses) - len(found)
    if missing and not why:
        why = f"{Path(program).name} did not answer"
    return found, f"{missing:,} addresses: {why}" if missing else ""


def _limit() -> None:
    """For `preexec_fn`."""
    for what, most in (
        (resource.RLIMIT_CPU, SECONDS_MOST),
        (resource.RLIMIT_AS, MEMORY_BYTES_MOST),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES_MOST),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _parse(text: bytes, addresses: Iterable[int]) -> dict[int, Names]:
    """Answers in the order of the questions: an address, then functions and places in turn.

    Names are untrusted and may look like addresses: only the next one that was asked is one. The
    last answer may be cut, so it counts only if the text ends with a line.
    """
    lines = text.decode("utf-8", "replace").split("\n")
    whole = lines.pop() == ""
    found: dict[int, Names] = {}
    waiting = iter(addresses)
    expected, current = next(waiting, None), None
    chain: list[str] = []
    at = 0
    while at < len(lines):
        number = _ADDRESS.fullmatch(lines[at])
        if number and int(number[1], 16) == expected:
            if current is not None:
                found[current] = _names(chain)
            current, expected, chain = expected, next(waiting, None), []
            at += 1
        else:
            chain.append(lines[at])
            at += 2
    if current is not None and whole:
        found[current] = _names(chain)
    return found


def _names(chain: Sequence[str]) -> Names:
    """The inlined functions of a chain, innermost first, which ends in the function itself."""
    inlined = chain[:-1][-DEPTH_MOST:]
    return tuple(demangle(one.partition(_CALL)[0][:NAME_MOST]) for one in reversed(inlined))
