# SPDX-License-Identifier: GPL-2.0-only
"""The files of a recorded process, as far as files of the same build are on this host.

Those may have been fetched from the recorded host (`process.file_images`).
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from tlstax.collectors.host.emulation import PLACE_OF_COPIES
from tlstax.collectors.process.file_images import file_of_build
from tlstax.collectors.process.mappings import DELETED, MappedObject, TextSegment
from tlstax.collectors.process.symbols import Place, Symbolizer
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.stream.replay import Replay

Mapping = tuple[Any, bytes]
"""struct stream_mapping, and the path."""

_USER_END = 1 << 48  # of arm64, on x86-64 half of it; above it is [vsyscall], which holds no stack


def recorded_objects(
    mappings: Iterable[Mapping], planned: Sequence[MappedObject]
) -> tuple[MappedObject, ...]:
    """The mapped files. One without a readable file here can be located, but not named."""
    segments: dict[tuple[str, int, str], list[TextSegment]] = {}
    builds: dict[tuple[str, int, str], str] = {}
    for entry, raw in mappings:
        if not entry.inode:
            continue
        path = os.fsdecode(raw).removesuffix(DELETED)
        key = (f"{entry.device_major:02x}:{entry.device_minor:02x}", int(entry.inode), path)
        part = TextSegment(int(entry.start), int(entry.end), int(entry.file_offset))
        segments.setdefault(key, []).append(part)
        builds[key] = bytes(entry.build_id[: min(entry.build_id_bytes, 32)]).hex()
    names = {each.build_id: each.path for each in planned if each.build_id}
    found = [
        _object(key, names.get(builds[key], key[2]), builds[key], tuple(parts))
        for key, parts in segments.items()
    ]
    paths = {each.path for each in found}
    unmapped = (replace(each, segments=()) for each in planned if each.path not in paths)
    return (*found, *unmapped)


def special_mappings(mappings: Iterable[Mapping]) -> list[tuple[int, int, str]]:
    """(start, end, name) of executable mappings without a file."""
    return [
        (int(entry.start), int(entry.end), os.fsdecode(raw) or "[anonymous]")
        for entry, raw in mappings
        if not entry.inode
    ]


def without_table(mappings: Iterable[Mapping]) -> list[str]:
    """Code of which no unwind table was in the plan's file, each once; not the kernel's own."""
    names = [
        os.fsdecode(raw).rpartition("/")[2] or "generated code"
        for entry, raw in mappings
        if not entry.has_table and entry.start < _USER_END
    ]
    names = [name for name in names if name != PLACE_OF_COPIES]
    return list(dict.fromkeys(names))


def _object(
    key: tuple[str, int, str], path: str, build_id: str, segments: tuple[TextSegment, ...]
) -> MappedObject:
    device, inode, seen_path = key
    open_path, identity = file_of_build(build_id, (seen_path, path))
    return MappedObject(path, open_path, device, inode, build_id, False, segments, None, identity)


class RecordedSymbolizer(Symbolizer):
    """Names addresses of a process that may have ended long ago, on another host."""

    def __init__(self, replay: Replay, target: Target) -> None:
        super().__init__(target, root=Path("/"))
        self._replay = replay
        self._special = special_mappings(replay.mappings)

    def kernel(self, address: int) -> Place:
        """By the names that the stream holds."""
        found = self._replay.kernel_names.get(address)
        if found is None:
            return Place("kernel", "", 0, "[kernel]", 0, "none", "")
        return Place("kernel", "", 0, found[0], found[1], "kallsyms", "")

    def _refresh(self) -> None:
        """Those that the stream told since: code that was mapped later."""
        self._refreshed = monotonic()
        self._add(recorded_objects(self._replay.mappings, self._replay.plan_file.objects))
        self._special = special_mappings(self._replay.mappings)
