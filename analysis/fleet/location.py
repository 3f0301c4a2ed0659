# SPDX-License-Identifier: GPL-2.0-only
"""A data set where it is: in a folder, or in a bucket of an S3-compatible store."""

from collections.abc import Sequence
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.bucket import adding as bucket_adding
from tlstax.analysis.fleet.bucket import address, mirror
from tlstax.analysis.fleet.bucket import compaction as bucket_compaction
from tlstax.analysis.fleet.bucket.address import Bucket
from tlstax.analysis.fleet.columns import HOUR_NS, TIERS, Row
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.store import adding, compaction, layout, selection
from tlstax.analysis.fleet.store.compaction import Outcome
from tlstax.analysis.fleet.store.selection import Selection

Location = Path | Bucket


def parse(text: str) -> Location:
    """A folder, or s3://BUCKET/PREFIX. Raises TlstaxError (USAGE)."""
    if "://" in text:
        return address.parse(text)
    return Path(text)


def add(rolled: RolledUp, data: Location) -> str:
    """Add a recording; what became of it. Raises TlstaxError (IO, HOST)."""
    if isinstance(data, Bucket):
        return bucket_adding.add(rolled, data)
    return adding.add(rolled, data)


def compact(data: Location) -> Outcome:
    """Merge the files of each hour. Raises TlstaxError (USAGE, IO, CAPTURE)."""
    if isinstance(data, Bucket):
        hours_of(data)
        return bucket_compaction.compact(data)
    return compaction.compact(data)


def require(data: Location) -> None:
    """Raise TlstaxError (IO) for a bucket that cannot be used; folders are made when needed."""
    if isinstance(data, Bucket):
        data.require()


def hours_of(data: Location) -> list[int]:
    """The start of every hour that has intervals, or may have: of a merged day the first and last.

    Raises TlstaxError: USAGE where there is no data set, IO.
    """
    if isinstance(data, Path):
        selection.require(data)
        return [
            hour_ns
            for tier in TIERS
            for place in layout.places(data, tier, columns.Interval)
            for hour_ns in (place.hour_wall_ns, place.end_wall_ns - HOUR_NS)
        ]
    found = mirror.hours(data)
    if not found:
        raise TlstaxError(
            f"there is no data set in {data}",
            "it has no object of the table interval",
            "Make one with `tlstax fleet add CAPTURE --data s3://BUCKET/PREFIX`",
            ExitCode.USAGE,
        )
    return found


def tiers_with(data: Location, span: tuple[int, int]) -> list[str]:
    """The tiers that have intervals in this time. Raises TlstaxError (IO)."""
    if isinstance(data, Bucket):
        return mirror.tiers_with(data, span)
    return [
        tier
        for tier in TIERS
        if next(layout.places(data, tier, columns.Interval, *span), None) is not None
    ]


def select(
    data: Location, tier: str, tables: Sequence[type[Row]], span: tuple[int | None, int | None]
) -> tuple[Selection, Path]:
    """The files that a question reads, and the folder that they are in.

    Raises TlstaxError (USAGE, IO, CAPTURE).
    """
    if isinstance(data, Bucket):
        return mirror.select(data, tier, tables, span), mirror.root(data)
    return selection.select(data, tier, tables, span), data
