# SPDX-License-Identifier: GPL-2.0-only
"""Attaching the uprobes of a loaded object: files that are verified once, exits before entries."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host import bpf
from tlstax.collectors.process.build_id import require_same_build
from tlstax.collectors.process.mappings import MappedObject, open_mapped
from tlstax.tests.loader.libbpf import BpfObject, LinkGroup


class ProbedFiles:
    """Descriptors of the files that are probed, until `stack` closes them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._descriptors: dict[MappedObject, int] = {}

    def path(self, mapped: MappedObject) -> str:
        """A path to the mapped file that stays valid: verified once, then held open."""
        if mapped not in self._descriptors:
            self._descriptors[mapped] = open_mapped(mapped)
            self._stack.callback(os.close, self._descriptors[mapped])
            require_same_build(mapped, self._descriptors[mapped])
        return f"/proc/self/fd/{self._descriptors[mapped]}"


class File(NamedTuple):
    """A file that is probed."""

    name: str
    """The name that messages show."""
    path: str
    """The path that opens it."""


class Attachment(NamedTuple):
    """A probe to attach."""

    event: str
    file: File
    offset_bytes: int
    cookie: int
    is_return: bool


class UprobeAttacher:
    """Attaches probes of one process to the programs of one object, by event (enter, exit)."""

    def __init__(self, loaded: BpfObject, entry: str, leave: str, *, multi: bool) -> None:
        """`multi`: one uprobe_multi link takes all probes of a file."""
        self._object = loaded
        self._programs = {"enter": entry, "exit": leave}
        self._multi = multi

    def prepare(self) -> None:
        """Set before load() which kind of links the programs are for."""
        for program in self._programs.values() if self._multi else ():
            self._object.set_attach_type(program, bpf.ATTACH_UPROBE_MULTI)

    def attach(self, probes: Iterable[Attachment], pid: int, links: LinkGroup) -> None:
        """Raises TlstaxError (HOST) when the kernel refuses one."""
        groups: dict[tuple[str, bool, File], list[Attachment]] = defaultdict(list)
        for probe in probes:
            groups[probe.event, probe.is_return, probe.file].append(probe)
        # Exits first: an entry whose exit is not yet probed would look like a missed exit.
        for key, group in sorted(groups.items(), key=lambda item: item[0][0] == "enter"):
            try:
                self._attach_group(group, pid, links)
            except OSError as error:
                raise TlstaxError(
                    f"cannot probe {key[2].name}",
                    error.strerror or str(error),
                    "run `tlstax doctor` to see what this host lacks",
                    ExitCode.HOST,
                ) from error

    def _attach_group(self, group: Sequence[Attachment], pid: int, links: LinkGroup) -> None:
        """Probes of one file and program."""
        event, file, _, _, is_return = group[0]
        program = self._programs[event]
        if self._multi:
            link = bpf.attach_uprobe_multi(
                self._object.program_fd(program),
                file.path,
                [probe.offset_bytes for probe in group],
                [probe.cookie for probe in group],
                pid,
                is_return,
            )
            links.callback(os.close, link)
            return
        for probe in group:
            attached = self._object.attach_uprobe(
                program, pid, file.path, probe.offset_bytes, probe.cookie, is_return
            )
            links.callback(attached.close)
