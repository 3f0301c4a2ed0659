# SPDX-License-Identifier: GPL-2.0-only
"""Where the files of a data set are: tier=/table=/date=/hour=, by the interval's start in UTC.

A folder of one hour holds one file for each recording, `part-SOURCE.parquet`, and after compaction
`compacted.parquet`, which holds the rows of many. Where a day of a table is small, its hours are
merged, too: into hour=24. Names that begin with a dot are not data.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import DAY_NS, HOUR_NS, SECOND_NS, Row
from tlstax.collectors.capture.printable import output_error
from tlstax.collectors.capture.schema import table_name

COMPACTED: Final = "compacted.parquet"
WHOLE_DAY: Final = "24"
"""The hour of a folder with the rows of a day."""
PARTIAL: Final = ".partial"
"""Suffix of a file that is being written."""
_OWNER_MOST: Final = 4096
"""Bytes of a lock file that are read."""
_YEARS: Final = range(1970, 2100)
"""Folders of other years are none of ours."""
_LOCK: Final = ".lock"
_LOCKS: Final = 16
"""Locks that all recordings share."""
TURN_S: Final = 0.2
"""How long a watch waits for others who write: its recorder and SIGTERM wait meanwhile."""
_LOOK_AGAIN_S: Final = 0.01
_DATE: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_HOUR: Final = re.compile(r"hour=(\d{2})")
_PART: Final = re.compile(r"part-([0-9a-f]{16})\.parquet")


@dataclass(frozen=True)
class Place:
    """One table of one tier in one hour, or what was merged of one day."""

    tier: str
    table: type[Row]
    hour_wall_ns: int
    is_day: bool = False

    @property
    def end_wall_ns(self) -> int:
        """The end of its hour or day."""
        return self.hour_wall_ns + (DAY_NS if self.is_day else HOUR_NS)

    @property
    def day(self) -> "Place":
        """The place of its day."""
        start_ns = self.hour_wall_ns - self.hour_wall_ns % DAY_NS
        return Place(self.tier, self.table, start_ns, is_day=True)

    def folder(self, data: Path) -> Path:
        """Its folder in a data set."""
        at = datetime.fromtimestamp(self.hour_wall_ns // SECOND_NS, UTC)
        return (
            data
            / f"tier={self.tier}"
            / f"table={table_name(self.table)}"
            / f"date={at:%Y-%m-%d}"
            / (f"hour={WHOLE_DAY}" if self.is_day else f"hour={at:%H}")
        )


def part_name(source_id: int) -> str:
    """The name of a recording's file in each folder."""
    return f"part-{source_id & (2**64 - 1):016x}.parquet"


def source_of(name: str) -> int | None:
    """The recording of such a file; None for other names."""
    found = _PART.fullmatch(name)
    if found is None:
        return None
    value = int(found[1], 16)
    return value - 2**64 if value >= 2**63 else value


def hour_of(start_wall_ns: int) -> int:
    """The start of the hour that an interval is filed under."""
    return start_wall_ns - start_wall_ns % HOUR_NS


def places(
    data: Path,
    tier: str,
    table: type[Row],
    first_wall_ns: int | None = None,
    end_wall_ns: int | None = None,
) -> Iterator[Place]:
    """The hours and days of a table that have a folder, and may hold intervals in this span.

    In order; a day comes behind its hours.
    """
    top = data / f"tier={tier}" / f"table={table_name(table)}"
    for date_folder in _folders(top):
        date = _DATE.fullmatch(date_folder.name)
        for hour_folder in _folders(date_folder) if date else ():
            hour = _HOUR.fullmatch(hour_folder.name)
            start_ns = start_of(date[1], hour[1]) if date and hour else None
            if start_ns is None or (end_wall_ns is not None and start_ns >= end_wall_ns):
                continue
            place = Place(tier, table, start_ns, hour is not None and hour[1] == WHOLE_DAY)
            if first_wall_ns is None or place.end_wall_ns > first_wall_ns:
                yield place


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path, error) from error


def files_in(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in order.

    Raises OSError where it is gone or may not be read: Path.glob() would find nothing in it.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    return [
        folder / name for name in names if name.endswith(".parquet") and not name.startswith(".")
    ]


def unreadable(path: Path, error: OSError) -> TlstaxError:
    """The error (IO) for a folder that cannot be read."""
    return TlstaxError(
        f"cannot read {path}",
        reason(error),
        "Read the data set as the user that its files belong to",
        ExitCode.IO,
    )


def reason(error: OSError) -> str:
    """What the system said, as part of a sentence."""
    return (error.strerror or str(error)).lower()


def start_of(date: str, hour: str) -> int | None:
    """The start of an hour from the names of its folders (hour 24: of the day); None for others."""
    try:
        of_day = "00" if hour == WHOLE_DAY else hour
        at = datetime.strptime(f"{date} {of_day}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp()) * SECOND_NS if at.year in _YEARS else None


def start_of_path(path: Path) -> int:
    """The start of the hour or day of a file that `places` leads to."""
    start_ns = start_of(path.parent.parent.name[len("date=") :], path.parent.name[len("hour=") :])
    assert start_ns is not None
    return start_ns


def make_folder(path: Path) -> None:
    """Create a folder that only its owner can enter, with those above it."""
    with contextlib.suppress(FileExistsError):
        missing = [path, *path.parents]
        for folder in reversed(missing):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def lock(data: Path, *, exclusive: bool, wait_s: float | None = None) -> Iterator[None]:
    """Hold the data set: writers of new files together, who replaces files alone.

    `wait_s`: how long to wait for others at most. Readers need no lock. Raises TlstaxError (IO)
    where the folder cannot be written, or others held it for so long.
    """
    with _held(data, _LOCK, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, wait_s):
        yield


@contextlib.contextmanager
def lock_recording(data: Path, source_id: int, wait_s: float | None = None) -> Iterator[None]:
    """Let two writers of one recording follow each other. Raises TlstaxError (IO)."""
    with _held(data, f"{_LOCK}-{source_id % _LOCKS:x}", fcntl.LOCK_EX, wait_s):
        yield


def claim(data: Path, host: str) -> int:
    """Become the only process that watches this host into the data set; keep the descriptor.

    Raises TlstaxError: USAGE where another one does, IO where the folder cannot be written.
    """
    try:
        make_folder(data)
        name = f"{_LOCK}-watch-{host_key(host)}"
        descriptor = _open_lock(data / name)
    except OSError as error:
        raise output_error(f"to the data set {data}", error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise TlstaxError(
            f"cannot watch {host} into {data}",
            "another `tlstax watch` does that now",
            "Give another folder, or another name with --host",
            ExitCode.USAGE,
        ) from error
    with contextlib.suppress(OSError):  # a full disk: its rows are not removed when it is no more
        _write_owner(descriptor, host)
    return descriptor


def _write_owner(descriptor: int, host: str) -> None:
    """Say in a lock file whose it is: a copy of the file has another inode, and says nothing."""
    os.ftruncate(descriptor, 0)
    inode = os.fstat(descriptor).st_ino
    os.pwrite(descriptor, f"{inode} {host}".encode("utf-8", "surrogatepass"), 0)


@contextlib.contextmanager
def former(data: Path) -> Iterator[dict[str, int]]:
    """The hosts that were watched into the data set and are not now, claimed as long as it lasts.

    By host a descriptor, for `forget`. Files of earlier versions do not say whose they are.
    """
    found: dict[str, int] = {}
    try:
        for path in sorted(data.glob(f"{_LOCK}-watch-*")):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                host = _claimed(descriptor)
                if host and path.name.endswith(f"-{host_key(host)}"):
                    found[host] = descriptor
                else:
                    os.close(descriptor)
        yield found
    finally:
        for descriptor in found.values():
            os.close(descriptor)


def _claimed(descriptor: int) -> str:
    """Claim the lock file; the host that it says it is of, '' if it does not or is claimed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = os.pread(descriptor, _OWNER_MOST, 0).decode("utf-8", "replace")
        inode, _, host = text.partition(" ")
        return host if inode == str(os.fstat(descriptor).st_ino) else ""
    except OSError:
        return ""


def forget(descriptor: int) -> None:
    """Nothing is left of a host. Its lock file stays: another process may be about to claim it."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)


def host_key(host: str) -> str:
    """A host's name as part of a file's name."""
    return hashlib.blake2b(host.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _open_lock(path: Path) -> int:
    """Open or create a lock file, which is written by root, too.

    A link that the folder's owner has put in its place is not followed. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EEXIST, "no file, but what is in the place of a lock", str(path))
    return descriptor


@contextlib.contextmanager
def _held(data: Path, name: str, how: int, wait_s: float | None) -> Iterator[None]:
    try:
        make_folder(data)
        descriptor = _open_lock(data / name)
    except OSError as error:
        raise output_error(f"to the data set {data}", error) from error
    try:
        if wait_s is None:
            fcntl.flock(descriptor, how)
        else:
            _try_for(data, descriptor, how, wait_s)
        yield
    finally:
        os.close(descriptor)


def _try_for(data: Path, descriptor: int, how: int, wait_s: float) -> None:
    """Lock a file within some time. Raises TlstaxError (IO)."""
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise TlstaxError(
                    f"cannot write to the data set {data}",
                    "another process is replacing files of it",
                    "Wait until `tlstax fleet compact` or `add` has ended",
                    ExitCode.IO,
                ) from error
            time.sleep(_LOOK_AGAIN_S)
