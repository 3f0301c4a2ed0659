# SPDX-License-Identifier: GPL-2.0-only
"""Names the frames of a capture that have none, from files with the recorded build-ids.

Frames of files whose DWARF is at hand also get the names of functions that are inlined there; no
file is fetched only for that.

A file is looked for at its recorded path on this host, in the directories that the user names,
among those that were fetched from hosts that were recorded over ssh, and on debuginfod servers. Its
debug file is looked for beside it and at the usual places, then in the same directories and on the
same servers. Paths and build-ids of a capture are untrusted: a file is used only if its build-id is
the recorded one.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.rooted_files import open_regular, path_below
from tlstax.collectors.capture.schema import Frame, InlinedFrame
from tlstax.collectors.process.build_id import build_id_of
from tlstax.collectors.process.debug_server import URLS, DebugServer
from tlstax.collectors.process.file_images import kept_image
from tlstax.collectors.process.inlined_names import InlinedNames
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.symbols import OpenObject

FILES_MOST: Final = 100_000
_ROOT: Final = Path("/")


@dataclass
class FileNames:
    """What became of the frames of one file."""

    path: str
    build_id: str
    unnamed_count: int
    changed: list[Frame] = field(default_factory=list)
    """With a name, or at least with what their code shows."""
    why: str = ""
    """Why frames are still unnamed; '' if none is."""
    inlined: list[InlinedFrame] = field(default_factory=list)
    asked_ids: frozenset[int] = frozenset()
    """Frames for which it is known now what is inlined there, if anything."""
    why_not_inlined: str = ""
    """Why that is not known of others although there is DWARF; '' if it is."""

    @property
    def named_count(self) -> int:
        """Frames that have a name now."""
        return sum(frame.source != "none" for frame in self.changed)

    @property
    def left_count(self) -> int:
        """Frames that are still unnamed."""
        return self.unnamed_count - self.named_count


class LaterNames:
    """Finds files by build-id, and names what a capture could not."""

    def __init__(
        self,
        directories: Sequence[Path],
        server: DebugServer | None,
        root: Path = _ROOT,
        *,
        inlined: bool = True,
    ) -> None:
        """`root`: what recorded paths are below of; `inlined`: whether to ask DWARF, which is slow.

        Raises TlstaxError (USAGE) if a directory cannot be read.
        """
        self._server = server
        self._root = root
        self._has_inlined = inlined
        self._inlined = InlinedNames()
        self._files: dict[str, list[Path]] = {}
        for directory in directories:
            self._index(directory)

    def name(self, frames: Iterable[Frame]) -> list[FileNames]:
        """Files with frames, those with most unnamed frames first."""
        by_file: dict[tuple[str, str], list[Frame]] = {}
        for frame in frames:
            if frame.object:
                by_file.setdefault((frame.object, frame.build_id), []).append(frame)
        made = [self._name(path, build, mine) for (path, build), mine in by_file.items()]
        return sorted(made, key=lambda one: (-one.unnamed_count, one.path))

    def _name(self, path: str, build_id: str, frames: list[Frame]) -> FileNames:
        unnamed = [frame for frame in frames if frame.source == "none"]
        made = FileNames(path, build_id, len(unnamed))
        if not build_id:
            made.why = "the capture has no build-id for it" if unnamed else ""
            return made
        found = self._executable(path, build_id, may_fetch=bool(unnamed))
        if found is None:
            if unnamed:
                why = self._no_server(build_id, "executable")
                made.why = f"no file with this build-id here{why}"
            return made
        mapped = _mapped(path, build_id, found)
        with closing(OpenObject(mapped, self._root, self._debug_files)) as names:
            for frame in unnamed:
                place = names.place(frame.offset_bytes)
                if place.source != "none" or (place.code and not frame.code):
                    made.changed.append(Frame(frame.frame_id, *place))
            if self._has_inlined:
                self._find_inlined(names, frames, made)
        if made.left_count:
            made.why = f"no symbol table covers them: {self._tables(names, build_id)}"
        return made

    def _find_inlined(self, names: OpenObject, frames: list[Frame], made: FileNames) -> None:
        """Look for DWARF, among debug files that need not be fetched, and ask what is inlined."""
        addresses = {
            frame.frame_id: address
            for frame in frames
            if (address := names.address(frame.offset_bytes)) is not None
        }
        dwarf = names.with_dwarf(self._kept_debug_files)
        if dwarf is None or not addresses:
            return
        answer = self._inlined.at(set(addresses.values()), dwarf, made.build_id)
        made.why_not_inlined = answer.why
        made.asked_ids = frozenset(one for one, at in addresses.items() if at in answer.names)
        made.inlined = [
            InlinedFrame(frame_id, outer_count, symbol)
            for frame_id in sorted(made.asked_ids)
            for outer_count, symbol in enumerate(answer.names[addresses[frame_id]])
        ]

    def _tables(self, names: OpenObject, build_id: str) -> str:
        if {"symtab", "buildid", "debuglink", "debuginfod"} & set(names.sources):
            return f"searched {', '.join(names.sources)}"
        return "no debug file" + self._no_server(build_id, "debuginfo")

    def _no_server(self, build_id: str, kind: str) -> str:
        if self._server is None:
            return f"; {URLS} is not set"
        why = self._server.why_not(build_id, "debuginfo" if kind == "debuginfo" else "executable")
        return f"; {why}" if why else ""

    def _executable(self, path: str, build_id: str, *, may_fetch: bool) -> Path | None:
        """The file itself, not a debug file: only it tells addresses from offsets."""
        here = []
        with suppress(OSError):
            here = [path_below(self._root, path)] if path.startswith("/") else []
        image = kept_image(build_id)
        for candidate in [*here, *self._files.get(build_id, []), *([image] if image else [])]:
            if _has_code(candidate, build_id):
                return candidate
        if self._server is None:
            return None
        find = self._server.fetch if may_fetch else self._server.kept
        fetched = find(build_id, "executable")
        return fetched if fetched and _has_code(fetched, build_id) else None

    def _debug_files(self, build_id: str) -> Iterator[tuple[Path, str]]:
        for path in self._files.get(build_id, ()):
            yield path, "buildid"
        if self._server and (fetched := self._server.fetch(build_id, "debuginfo")):
            yield fetched, "debuginfod"

    def _kept_debug_files(self, build_id: str) -> Iterator[tuple[Path, str]]:
        for path in self._files.get(build_id, ()):
            yield path, "buildid"
        if self._server and (kept := self._server.kept(build_id, "debuginfo")):
            yield kept, "debuginfod"

    def _index(self, directory: Path) -> None:
        """Note the ELF files below a directory by build-id; links are not followed."""
        if not os.path.isdir(directory):  # False also where it may not be looked at
            raise _unusable(directory, "it is not a directory")
        count = 0
        for place, _, names in os.walk(directory):
            for name in names:
                count += 1
                if count > FILES_MOST:
                    raise _unusable(directory, f"it holds more than {FILES_MOST} files")
                if build_id := _build_id(Path(place, name)):
                    self._files.setdefault(build_id, []).append(Path(place, name))


def _unusable(directory: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot look for files in {directory}",
        why,
        "Name a directory with the server's executables, libraries or debug files",
        ExitCode.USAGE,
    )


def _build_id(path: Path) -> str:
    """The build-id of a regular file, '' if it has none or cannot be read."""
    with suppress(OSError):
        descriptor = open_regular(path)
        try:
            return build_id_of(descriptor)
        finally:
            os.close(descriptor)
    return ""


def _has_code(path: Path, build_id: str) -> bool:
    """Whether it is the file of that build with its code, which debug files lack."""
    if _build_id(path) != build_id:
        return False
    with suppress(TlstaxError), Elf(path) as elf:
        return any(part.executable and part.in_file for part in elf.headers.sections)
    return False


def _mapped(path: str, build_id: str, found: Path) -> MappedObject:
    """The file as if it were mapped; its recorded path says where its debug file may be."""
    facts = found.stat()
    identity = (facts.st_dev, facts.st_ino)
    return MappedObject(path, str(found), "", facts.st_ino, build_id, False, (), None, identity)
