# SPDX-License-Identifier: GPL-2.0-only
"""Raw windows of the last hours: captures of an hour each, within a bound of bytes.

Each is an ordinary capture. The latest stay, and those in which a trigger fired: these have half of
the bound, the others the other half with the one that is being written, which ends early at a
quarter. Of each half the oldest are removed first, the newest never.
"""

import errno
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.printable import output_error
from tlstax.collectors.capture.writer import CaptureWriter
from tlstax.collectors.host.cpu_facts import cpu_facts
from tlstax.collectors.host.recording_facts import recording_facts
from tlstax.collectors.recording.part_end import PartEnd
from tlstax.collectors.watching import naming
from tlstax.collectors.watching.naming import Naming

SUFFIX: Final = ".tlstax"
KEPT: Final = "kept"
"""Folder of those in which a trigger fired."""
_PATIENCE_S: Final = 0.05
_NAMING_S: Final = 60
_NAME: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{16}\.tlstax")


class Recording(Protocol):
    """A recording that goes on while its captures end."""

    def begin(self) -> Iterable[schema.Row]:
        """What stands once in each."""

    def part_end(self, ahead: Sequence[schema.Row] = ()) -> PartEnd:
        """Its last rows; `ahead` is a window that belongs to the next one."""


class _Ended(NamedTuple):
    """A capture that is finished, but for the names of its functions."""

    naming: "subprocess.Popen[bytes] | None"
    """None: it could not be started."""
    path: Path
    source: int
    is_kept: bool


class RawCaptures:
    """Writes the windows of a watch to captures, one after the other."""

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        tell: Callable[[str], None],
        finished: Callable[[Path, int], None],
        marks: Sequence[schema.Meta] = (),
    ) -> None:
        """`marks`: facts of the watch in each capture, besides its source.

        `finished` gets each capture whose functions have names, and its source, which is over.

        Raises TlstaxError (IO) if the folder cannot be made.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        self._tell = tell
        self._finished = finished
        self._marks = marks
        self._writer: CaptureWriter | None = None
        self._recording: Recording | None = None
        self._source = 0
        self._is_kept = False
        self._is_over = False
        self._ended: list[_Ended] = []
        self._threads: dict[int, schema.Thread] = {}
        self._is_failing = False
        self._is_full = False  # and it was told
        try:
            self._make_folders()
        except OSError as error:
            raise self._error(error) from error

    def _make_folders(self) -> None:
        for each in (self._folder.parent, self._folder, self._folder / KEPT):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _error(self, error: OSError) -> TlstaxError:
        return output_error(f"raw windows to {self._folder}", error)

    def attached(self, recording: Recording, pid: int, facts: Sequence[schema.Meta]) -> None:
        """A recorder was attached; `facts` are those of the recording that stand once."""
        self._recording, self._pid, self._facts = recording, pid, facts
        self._threads = {}

    def window(self, rows: Sequence[schema.Row], source: int) -> None:
        """A window of this source ended: another source begins another capture."""
        if source != self._source:
            carried = self._end(rows)
            self._begin(source, carried)
        for row in rows:
            if isinstance(row, schema.Thread):
                self._threads[row.thread_id] = row
        if self._writer is not None:
            self._try(lambda writer: writer.add(rows))
            self._try(lambda writer: writer.commit_if_free())
            self._is_failing = self._is_failing and self._writer is None
            self._bound()
            self._remove_oldest()
        for row in rows:
            if isinstance(row, schema.Thread) and row.end_ns is not None:
                del self._threads[row.thread_id]
        self.take_named()

    def keep(self) -> None:
        """Something happened: the present capture stays longer than others."""
        self._is_kept = True

    def detached(self) -> None:
        """The recorder was detached."""
        self._end()
        self._recording = None  # the memory of a recording is given back when it has ended

    def close(self) -> None:
        """Wait for the names."""
        end = time.monotonic() + _NAMING_S
        while self._ended and time.monotonic() < end:
            self.take_named()
            time.sleep(0.05)
        for one in self._ended:
            if one.naming is not None:
                one.naming.kill()
                one.naming.wait()
        self.take_named()

    # ---- one capture ----

    def _begin(self, source: int, carried: Sequence[schema.Row]) -> None:
        self._source = source
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = self._folder / f"{stamp}-{source % (1 << 64):016x}{SUFFIX}"
        try:
            self._make_folders()
            self._writer = CaptureWriter.create(path)
        except (TlstaxError, OSError) as error:
            self._failed(error)
            return
        facts = {row.key: row.value for row in self._facts}
        now = recording_facts("native", facts.get("command_level", ""), **cpu_facts())
        fresh = {row.key: row.value for row in now}
        self._writer.set_patience(_PATIENCE_S)
        rows = [schema.Meta(key, value) for key, value in (facts | fresh).items()]
        rows += [*self._marks, schema.Meta("watch_source", str(source))]
        self._try(lambda writer: writer.add(rows))
        assert self._recording is not None
        begun = self._recording.begin()
        self._try(lambda writer: writer.add(begun))
        self._try(lambda writer: writer.add([*self._threads.values(), *carried]))
        if self._writer is not None:
            # Attaching was paid once: the captures that follow do not have it again.
            self._facts = [row for row in self._facts if row.key != "start_cpu_ns"]

    def _end(self, ahead: Sequence[schema.Row] = ()) -> Sequence[schema.Row]:
        """Finish the present capture, and let its functions be named.

        `ahead` is the first window of the next capture; returns the stacks that it needs.
        """
        source, self._source = self._source, 0
        is_kept, self._is_kept = self._is_kept, False
        is_over, self._is_over = self._is_over, False
        if not source:
            return ()
        assert self._recording is not None
        rows, unnamed, carried = self._recording.part_end(ahead)
        if is_over:
            self._ended = [
                one._replace(is_kept=one.is_kept or is_kept) if one.source == source else one
                for one in self._ended
            ]
            return carried
        self._try(lambda writer: writer.add(rows))
        self._try(lambda writer: writer.close())
        writer, self._writer = self._writer, None
        if writer is not None:
            process = None
            with suppress(OSError):
                process = naming.start(Naming(writer.path, self._pid, unnamed))
            self._ended.append(_Ended(process, writer.path, source, is_kept))
        self._remove_oldest()
        return carried

    def _bound(self) -> None:
        """An hour that alone would fill the room ends early."""
        sizes: list[int] = []
        self._try(lambda writer: sizes.append(writer.path.stat().st_size))
        if sum(sizes) <= self._most_bytes // 4:
            return
        self._tell(
            f"the raw windows of this hour take more than a quarter of {self._most_bytes >> 20} "
            "MB: the rest of it is not kept. Give more than that with --raw"
        )
        source = self._source
        self._end()
        self._source, self._is_over = source, True

    def _try(self, write: Callable[[CaptureWriter], object]) -> None:
        """Write; a capture that cannot be written is given up, and the watch goes on."""
        if self._writer is None:
            return
        writer = self._writer
        try:
            write(writer)
        except (TlstaxError, OSError) as error:
            self._writer = None
            with suppress(OSError):
                writer.discard()
            self._failed(error)

    def _failed(self, error: TlstaxError | OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            found = self._error(error) if isinstance(error, OSError) else error
            self._tell(f"{found.what}: {found.why}; raw windows of this hour are not kept")

    def take_named(self) -> None:
        """Pass on what has names, unless its hour goes on: something may happen in it yet."""
        for one in self._ended[:]:
            if one.source == self._source or (one.naming and one.naming.poll() is None):
                continue
            self._ended.remove(one)
            if one.naming is None or one.naming.returncode:
                self._tell(f"the functions of {one.path} could not be named")
            path = one.path
            if one.is_kept:
                try:
                    path = path.rename(self._folder / KEPT / path.name)
                except OSError as error:
                    self._tell(f"{path} stays no longer than others: {error.strerror}")
            self._finished(path, one.source)

    def _remove_oldest(self) -> None:
        try:
            self._remove_beyond_bound()
        except FileNotFoundError:
            pass  # somebody else removed it
        except OSError as error:
            if not self._is_full:
                self._is_full = True
                self._tell(
                    f"older raw windows cannot be removed: {error.strerror}: {error.filename}"
                )

    def _remove_beyond_bound(self) -> None:
        being_named = {one.path for one in self._ended}
        written = self._writer.path if self._writer else None
        for folder in (self._folder, self._folder / KEPT):
            files = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
            sizes = {path: path.stat().st_size for path in files}
            finished = [path for path in files if path != written]
            for oldest in finished[:-1]:
                if sum(sizes.values()) <= self._most_bytes // 2:
                    break
                del sizes[oldest]
                if oldest not in being_named:
                    oldest.unlink(missing_ok=True)


def remove_before(folder: Path, end_wall_ns: int) -> bool:
    """Remove the captures of a folder that began before this time; whether none is left.

    A journal that a killed watch left beside its capture goes, too.
    """
    end = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(end_wall_ns // 10**9))
    is_left = False
    for each in (folder / KEPT, folder):
        try:
            for path in each.iterdir():
                if _NAME.match(path.name) and path.name < end:
                    path.unlink(missing_ok=True)
                else:
                    is_left = is_left or _NAME.match(path.name) is not None
            each.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            is_left = is_left or error.errno != errno.ENOTEMPTY
    return not is_left
