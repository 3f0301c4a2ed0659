# SPDX-License-Identifier: GPL-2.0-only
"""Which recording a capture is, and when each of its windows was, on the wall clock."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Window

_EARLIEST_NS: Final = 946_684_800 * SECOND_NS
_LATEST_NS: Final = 4_102_444_800 * SECOND_NS
"""2000 and 2100: no recording was made outside of them."""
_MOST_HOURS: Final = 24 * 40
"""Hours that one recording may touch."""
_LONGEST_NAME: Final = 200


@dataclass(frozen=True)
class Recording:
    """What all rows of one capture have in common."""

    host: str
    cluster: str
    source_id: int
    wall_offset_ns: int
    """Wall clock less CLOCK_MONOTONIC."""
    is_watched: bool = False
    """Whether it is of raw windows of a watch, whose rollups have the same source."""
    is_beside_others: bool = False
    """Whether it is of one of several servers that were recorded together."""

    def start_of(self, window: Window, length_ns: int) -> int:
        """The start of the interval that a window belongs to: the one in which it began."""
        at_ns = window.start_ns + self.wall_offset_ns
        return at_ns - at_ns % length_ns


def identify(tables: Tables, path: str, host: str = "", cluster: str = "") -> Recording:
    """The recording of a capture's server; `host` and `cluster` as the user names them.

    Raises TlstaxError: CAPTURE where the capture does not say when it was recorded or holds times
    that no recorder writes, USAGE for a name that cannot be used.
    """
    try:
        created_ns = int(tables.meta["created_wall_ns"])
        anchor_ns = int(tables.meta["monotonic_anchor_ns"])
    except (KeyError, ValueError) as error:
        raise _refuse(
            path,
            "it does not say when it was recorded",
            "Give a capture of `tlstax attach` or `tlstax lab`",
        ) from error
    watched = tables.meta.get("watch_host", "")
    name = host or watched or tables.meta.get("hostname", "")
    if not name:
        raise _refuse(path, "it does not name its host", "Give the name with --host")
    require_names(f"cannot add {path}", name, cluster)
    if not tables.windows:
        raise _refuse(path, "it has no window of a server", "Record it again")
    offset_ns = created_ns - anchor_ns
    _check_times(tables.windows, offset_ns, path)
    server = tables.targets[0] if tables.targets else None
    cluster = cluster or tables.meta.get("watch_cluster", "")
    if name == watched and "watch_source" in tables.meta:
        source = _watched_source(tables.meta["watch_source"], path)
        return Recording(name, cluster, source, offset_ns, is_watched=True)
    facts = (
        *(name, str(created_ns), str(anchor_ns)),
        *(tables.meta.get(key, "") for key in ("hostname", "engine")),
        *((str(server.pid), server.build_id) if server else ()),
    )
    is_beside_others = "recording_id" in tables.meta
    return Recording(name, cluster, hash_of(facts), offset_ns, is_beside_others=is_beside_others)


def require_names(what: str, host: str, cluster: str) -> None:
    """Raise TlstaxError (USAGE), beginning with `what`, for names that no question could use."""
    for text, option in ((host, "--host"), (cluster, "--cluster")):
        if len(text) > _LONGEST_NAME or not text.isprintable() or "\\" in text:
            raise TlstaxError(
                what,
                f"the name {text[:40]!r} is too long, or has control characters or a backslash",
                f"Give another one with {option}",
                ExitCode.USAGE,
            )


def _watched_source(text: str, path: str) -> int:
    """The source of the rollups. Raises TlstaxError (CAPTURE)."""
    try:
        source = int(text)
    except ValueError:
        source = 0
    if not source or not -(1 << 63) <= source < 1 << 63:
        raise damaged(path, "it names a source that no watch has")
    return source


def hash_of(facts: Iterable[str]) -> int:
    """A 64-bit hash of texts, never 0; signed, as not every engine has unsigned numbers."""
    digest = hashlib.blake2b(digest_size=8)
    for fact in facts:
        encoded = fact.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return int.from_bytes(digest.digest(), "little", signed=True) or 1


def _check_times(windows: Iterable[Window], offset_ns: int, path: str) -> None:
    hours = set()
    for window in windows:
        at_ns = window.start_ns + offset_ns
        sane = _EARLIEST_NS <= at_ns < _LATEST_NS and 0 <= window.end_ns - window.start_ns < (
            _MOST_HOURS * HOUR_NS
        )
        hours.add(at_ns // HOUR_NS)
        if not sane or len(hours) > _MOST_HOURS:
            raise damaged(path, "the times of its windows are those of no recording")


def damaged(path: str, detail: str) -> TlstaxError:
    """The error for rows that no recorder writes."""
    return _refuse(path, f"it is damaged ({detail})", "Record it again, or copy it again")


def _refuse(path: str, why: str, do: str) -> TlstaxError:
    return TlstaxError(f"cannot add {path}", why, do, ExitCode.CAPTURE)
