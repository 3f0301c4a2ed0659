# SPDX-License-Identifier: GPL-2.0-only
"""The second clock of servers with a shared libcrypto: a library that is loaded before it.

interposer.c, beside this, clocks the functions from within the process. What its own readings take
is timed in the server when it starts, and taken off.
"""

import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax.collectors.binary.elf import SYMBOL, Elf
from tlstax.collectors.binary.import_stubs import relocations
from tlstax.collectors.process.target import open_target
from tlstax.tests.bench.crypto.second_clock import OPERATIONS, Reading, Recording
from tlstax.workloads.servers.catalogue import ServerKind
from tlstax.workloads.servers.installing import install, place_of

SOURCE: Final = Path(__file__).with_name("interposer.c")
INNER: Final = "EVP_DigestVerify"
"""What a chain check calls within libcrypto."""
READINGS: Final = "readings"
_ROWS: Final = (*OPERATIONS, READINGS)
_SUM: Final = struct.Struct("2Q")  # calls, CPU time
_ENTRY: Final = struct.Struct("<QQ")  # of .dynamic
_SYMBOLIC, _FLAGS, _DF_SYMBOLIC = 16, 30, 2  # elf.h


class Preloaded:
    """The library and the file in which it adds up, where a server can read them."""

    def __init__(self, kind: ServerKind, folder: Path, seen_as: Path) -> None:
        """`seen_as`: the folder by its name in the server's root."""
        self._kind = kind
        self._sums = folder / "sums"
        self.environment = (
            ("LD_PRELOAD", f"{seen_as}/interposer.so"),
            ("INTERPOSER_SUMS", f"{seen_as}/sums"),
        )

    def read(self) -> dict[str, tuple[int, int]]:
        """Calls and CPU time by operation so far, and of the readings alone."""
        rows = _SUM.iter_unpack(self._sums.read_bytes())
        return {name: (count, cpu_ns) for name, (count, cpu_ns) in zip(_ROWS, rows, strict=True)}


@contextmanager
def preloaded(kind: ServerKind, folder: Path) -> Iterator[Preloaded]:
    """Build the library in a folder that a server of this kind can read."""
    install(kind)
    root = place_of(kind) if kind.source.client == "debian-root" else Path("/")
    inside = root / str(folder).lstrip("/")
    inside.mkdir(parents=True, exist_ok=True)
    try:
        inside.chmod(0o755)
        for place in {folder, inside}:  # the host's linker looks the library up here, too
            _build(place)
        yield Preloaded(kind, inside, folder)
    finally:
        if inside != folder:
            shutil.rmtree(inside)


def _build(folder: Path) -> None:
    library, sums = folder / "interposer.so", folder / "sums"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE)], check=True)
    sums.write_bytes(bytes(_SUM.size * (len(OPERATIONS) + 1)))
    sums.chmod(0o666)


def between(
    before: Mapping[str, tuple[int, int]],
    after: Mapping[str, tuple[int, int]],
    recording: Recording,
) -> dict[str, Reading]:
    """What was added from one reading of the sums to another.

    Without what the readings take. Where tlstax sees the end in a caller, its time contains the
    second one.
    """
    trials, trials_ns = after[READINGS]
    reading_ns = trials_ns / max(1, trials)
    found = {}
    for name in OPERATIONS:
        count, cpu_ns = (new - old for new, old in zip(after[name], before[name], strict=True))
        found[name] = Reading(
            count,
            cpu_ns - count * reading_ns,
            recording.traps_ns.get(name, 0),
            recording.ends_outside.get(name, 0) * reading_ns,
        )
    return found


def inner_calls_pass(pid: int) -> bool:
    """Whether calls of INNER within the process's libcrypto reach a library before it."""
    for mapped in open_target(pid).objects:
        if Path(mapped.path).name.startswith("libcrypto.so"):
            with Elf(mapped.open_path) as elf:
                return can_be_replaced(elf, INNER)
    raise SystemExit(f"process {pid} has no libcrypto.so: it cannot be clocked by a library")


def can_be_replaced(elf: Elf, function: str) -> bool:
    """Whether calls of an exported function within its own library go through a relocation.

    They do not where it was linked with -Bsymbolic or -Bsymbolic-functions.
    """
    dynamic = elf.content(".dynamic")
    for tag, value in _ENTRY.iter_unpack(dynamic[: len(dynamic) // _ENTRY.size * _ENTRY.size]):
        if tag == _SYMBOLIC or (tag == _FLAGS and value & _DF_SYMBOLIC):
            return False
    names, symbols = elf.content(".dynstr"), elf.content(".dynsym")
    wanted = {
        number
        for number, (name, *_) in enumerate(SYMBOL.iter_unpack(symbols))
        if names[name : names.find(b"\0", name)] == function.encode()
    }
    rows = [relocations(elf, name) for name in (".rela.plt", ".rela.dyn")]
    return any(wanted.intersection((part[:, 1] >> 32).tolist()) for part in rows)
