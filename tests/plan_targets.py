# SPDX-License-Identifier: GPL-2.0-only
"""Targets made of the files of an installed server of the catalogue, which need not run.

The program, and what it was linked with: from the directory that the server was unpacked to, from
the root that it is started in, or from the host.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.placement.detection import needed_names
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target
from tlstax.workloads.servers import installing
from tlstax.workloads.servers.catalogue import ServerKind

LIBRARY_DIRECTORIES = ("lib", "lib/x86_64-linux-gnu", "usr/lib", "usr/lib/x86_64-linux-gnu")


def target_of_kind(kind: ServerKind) -> Target | None:
    """The target, None when the server is not installed."""
    program = installing.installed_program(kind)
    if program is None:
        return None
    home = installing.place_of(kind)
    root = home if kind.source.client == "debian-root" else Path("/")
    folders = [root / one for one in LIBRARY_DIRECTORIES]
    if root == Path("/") and home.is_dir():
        folders = [Path(name) for name, _, _ in os.walk(home)] + folders
    objects = []
    for number, path in enumerate(_linked(program, folders)):
        with Elf(path) as elf:
            build_id = elf.build_id
        objects.append(MappedObject(str(path), str(path), "00:00", number, build_id, False, ()))
    return Target(0, program.name, str(program), 0, tuple(objects))


def _linked(program: Path, folders: list[Path]) -> Iterator[Path]:
    """The program and the libraries that it was linked with, each once."""
    waiting, seen = [program], set()
    while waiting:
        path = waiting.pop(0)
        yield path
        with Elf(path) as elf:
            names = needed_names(elf)
        for name in names:
            if name not in seen:
                seen.add(name)
                waiting += [found for folder in folders if (found := folder / name).is_file()][:1]
