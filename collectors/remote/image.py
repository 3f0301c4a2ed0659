# SPDX-License-Identifier: GPL-2.0-only
"""What another host's recorder tells of a process, as a directory that planning reads.

The directory has the paths of that host: proc/1234/status, sys/fs/cgroup/... The mapped files are
in the cache, by build-id, and map_files leads there. Nothing that is received is believed: names
of files are of a fixed list, links are only read, lengths are bounded, build-ids are compared.
"""

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.host.probe_costs.costs import UnmeasuredError
from tlstax.collectors.process.build_id import build_id_of
from tlstax.collectors.process.file_images import (
    FILE_BYTES_MOST,
    fetching_turn,
    keep_image,
    kept_image,
)
from tlstax.collectors.process.mappings import DELETED
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame, counted, record
from tlstax.collectors.recording.stream.recorded_files import Mapping
from tlstax.collectors.remote.connection import FACT, Connection, Tell

_NUMBERS: Final = definition()
_LINK, _FILE, _PART, _MAPPING = (
    _NUMBERS.number(name) for name in ("LINK", "FILE", "PART", "MAPPING")
)
SOCKETS_FACT: Final = "socket-events"
"""What events of sockets come from there, as the recorder found: a SocketSource."""
_FACT_NAME: Final = re.compile(
    rf"machine|vdso|{SOCKETS_FACT}|proc/(cmdline|version_signature|config\.gz|kallsyms)|proc/sys/kernel/[a-z]+"
    r"|proc/(self|[0-9]{1,10})/(stat|status|limits|cgroup|mountinfo|comm|maps|cmdline|attr/current)"
    r"|sys/kernel/(security/lockdown|debug/sched/preempt)|sys/devices/system/cpu/online"
    r"|sys/fs/cgroup/(?!.*/\.\.?/)[^\0]+|boot/config-[\w.+~-]+",
    re.ASCII,
)
_IMPOSSIBLE: Final = re.compile(r"[\0-\x1f\x7f]|(^|/)\.{0,2}(/|$)")
"""In the name of a text: what is no character of a path, and parts that lead elsewhere."""
_LINK_NAME: Final = re.compile(r"proc/[0-9]{1,10}/(exe|root)", re.ASCII)
_FACTS_BYTES_MOST: Final = 64 << 20
WAIT_S: Final = 30.0
"""For files that other processes fetch, in all. The recorder there waits 120 s for a request
(answers.h), and behind this come two turns of planning (plan_cache.WAIT_S) and a plan."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Image:
    """A directory with the facts of another host; see above."""

    def __init__(self, directory: Path, connection: Connection) -> None:
        self.proc = directory / "proc"
        self._directory = directory
        self._connection = connection
        self._files_count = 0
        self._wait_left_s = WAIT_S
        (self.proc / "self").mkdir(parents=True)

    def add_named(self, name: str) -> None:
        """The processes that are called so, for `find_by_name`. Raises TlstaxError."""
        self._write(self._connection.ask(f"find {name}"))

    def add_grouped(self, word: str) -> None:
        """The processes with a word in the names of their control groups. Raises TlstaxError."""
        self._write(self._connection.ask(f"group {word}"))

    def add_process(self, pid: int, symbols: Iterable[str], tell: Tell) -> None:
        """A process, its files, its host, these functions of its kernel. Raises TlstaxError."""
        mappings = self._write(self._connection.ask(f"facts {' '.join([str(pid), *symbols])}"))
        try:
            self._add_files(pid, mappings, tell)
        except OSError as error:
            raise self._unwritable(error) from None

    def _add_files(self, pid: int, mappings: Iterable[Mapping], tell: Tell) -> None:
        files: dict[tuple[int, int, int], list[Mapping]] = {}
        for mapping, path in mappings:
            if mapping.inode:
                identity = mapping.device_major, mapping.device_minor, int(mapping.inode)
                files.setdefault(identity, []).append((mapping, path))
        build_ids = [_build_id(parts[0][0]) for parts in files.values()]
        if missing := sum(kept_image(each) is None for each in build_ids):
            tell(f"fetching {missing} of {len(files)} files of process {pid}, once for each build")
        map_files = self.proc / str(pid) / "map_files"
        map_files.mkdir(parents=True)
        for parts, build_id in zip(files.values(), build_ids, strict=True):
            first, path = parts[0]
            named = self._named(path)
            kept = kept_image(build_id)
            named.symlink_to(kept or self._fetch_once(pid, first, build_id))
            for part, _ in parts:
                (map_files / f"{part.start:x}-{part.end:x}").symlink_to(named)

    def prices_text(self) -> str:
        """What a probe hit costs there, measured now on code of the recorder (prices.h).

        Takes a second. Raises UnmeasuredError, TlstaxError if the line was cut.
        """
        texts: dict[str, str] = {}
        for frame in self._connection.ask("prices"):
            try:
                name, text = _fact(frame)
                texts[name] = text.decode("ascii")
            except ValueError as error:
                raise self._strange(str(error)) from None
        if "prices" not in texts:
            raise UnmeasuredError(visible(texts.get("no-prices", "it did not say why")))
        return texts["prices"]

    @property
    def host_name(self) -> str:
        """The host, as the user named it."""
        return self._connection.destination.name

    def _named(self, path: bytes) -> Path:
        """Where a file has its own name, in a directory of its own: texts show it."""
        name = os.fsdecode(path).removesuffix(DELETED).rpartition("/")[2]
        folder = self._directory / "files" / str(self._files_count)
        self._files_count += 1
        folder.mkdir(parents=True)
        return folder / (name if name not in ("", ".", "..") and "\0" not in name else "file")

    def _write(self, frames: Iterator[Frame]) -> list[Mapping]:
        """Write texts and links; the mappings among the frames."""
        mappings: list[Mapping] = []
        left_bytes = _FACTS_BYTES_MOST
        for frame in frames:
            left_bytes -= len(frame.content)
            try:
                if left_bytes < 0:
                    raise ValueError("it does not end")
                if frame.type == _MAPPING:
                    mappings += counted("mapping", frame.content, "path_bytes", 1)
                elif frame.type in (FACT, _LINK):
                    self._write_fact(frame)
                else:
                    raise ValueError(f"frame {frame.type}")
            except OSError as error:
                raise self._unwritable(error) from None
            except ValueError as error:
                raise self._strange(str(error)) from None
        return mappings

    def _write_fact(self, frame: Frame) -> None:
        name, text = _fact(frame)
        known = _FACT_NAME if frame.type == FACT else _LINK_NAME
        if not known.fullmatch(name) or _IMPOSSIBLE.search(name):
            raise ValueError(f"a text called {name}")
        path = self._directory / name
        if not path.parent.resolve().is_relative_to(self._directory.resolve()):
            raise ValueError(f"a text called {name}")  # links were received, too
        path.parent.mkdir(parents=True, exist_ok=True)
        if frame.type == FACT:
            how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(path, how, 0o600), "ab") as file:
                file.write(text)
        else:
            path.symlink_to(os.fsdecode(text))

    def _fetch_once(self, pid: int, mapping: Any, build_id: str) -> Path:
        """The same as `_fetch`: of processes that want the same build, one fetches it.

        The others wait for it, WAIT_S in all, then they fetch it, too.
        """
        if not build_id:
            return self._fetch(pid, mapping, build_id)
        began_s = time.monotonic()
        with fetching_turn(build_id, self._wait_left_s):
            self._wait_left_s = max(0.0, self._wait_left_s - (time.monotonic() - began_s))
            return kept_image(build_id) or self._fetch(pid, mapping, build_id)

    def _fetch(self, pid: int, mapping: Any, build_id: str) -> Path:
        """The image of a mapped file; of one without build-id it is kept with the facts only."""
        frames = self._connection.ask(f"file {pid} {mapping.start:x}")
        if not build_id:
            path = self._directory / f"file-{mapping.start:x}"
            with path.open("w+b") as file:
                self._write_parts(frames, file.fileno())
            return path

        def write(to: int) -> None:
            self._write_parts(frames, to)
            if (found := build_id_of(to)) != build_id:
                raise self._strange(f"a file of build-id {found or 'none'} instead of {build_id}")

        return keep_image(build_id, write)

    def _write_parts(self, frames: Iterator[Frame], to: int) -> None:
        """Write a file's parts at their places; where it cannot be read there, nothing."""
        size_bytes = 0
        for frame in frames:
            try:
                if frame.type == _FILE and not size_bytes:
                    size_bytes = int(record("file", frame.content).size_bytes)
                    if size_bytes > FILE_BYTES_MOST:
                        raise ValueError(f"a file of {size_bytes} bytes")
                    os.ftruncate(to, size_bytes)
                elif frame.type == _PART:
                    self._write_part(frame.content, size_bytes, to)
                else:
                    raise ValueError(f"frame {frame.type}")
            except ValueError as error:
                raise self._strange(str(error)) from None

    @staticmethod
    def _write_part(content: bytes, size_bytes: int, to: int) -> None:
        head = _NUMBERS.layout("part").from_buffer_copy(content)
        part = content[_NUMBERS.structures["stream_part"].size_bytes :]
        if head.offset + len(part) > size_bytes:
            raise ValueError("a part beyond the end of its file")
        os.pwrite(to, part, head.offset)

    def _unwritable(self, error: OSError) -> TlstaxError:
        """The error of a text or file that cannot be kept here."""
        if error.errno not in _NO_ROOM:  # a name that is too long, or that comes twice
            return self._strange(str(error))
        return TlstaxError(
            f"cannot write {self._directory}",
            error.strerror or str(error),
            "Free some space there, or name another directory by TMPDIR",
            ExitCode.IO,
        )

    def _strange(self, what: str) -> TlstaxError:
        name = self._connection.destination.name
        return TlstaxError(
            f"{name} cannot be recorded",
            f"it sent what no recorder sends: {visible(what)}",
            "Check what is installed there as tlstax-recorder",
            ExitCode.HOST,
        )


def _fact(frame: Frame) -> tuple[str, bytes]:
    """Name and text of a FACT or LINK frame. Raises ValueError."""
    if frame.type not in (FACT, _LINK):
        raise ValueError(f"frame {frame.type}")
    name_bytes = _NUMBERS.layout("fact").from_buffer_copy(frame.content).name_bytes
    start = _NUMBERS.structures["stream_fact"].size_bytes
    name = os.fsdecode(frame.content[start : start + name_bytes])
    return name, frame.content[start + name_bytes :]


def _build_id(mapping: Any) -> str:
    return bytes(mapping.build_id[: min(mapping.build_id_bytes, 32)]).hex()
