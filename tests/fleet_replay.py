# SPDX-License-Identifier: GPL-2.0-only
"""A data set of many hosts from a few real recordings: replayed and varied, never measured.

Each cluster takes the rows of one recording (per second) as its profile, at 30 % of its load in the
median: the recordings are of saturated servers. Its load, the speed of its
CPU, how often its clients resume and the hour of its peak are drawn once; each interval has noise
of its own. What is planted (another key, library or client) changes after a given time, on given
hosts. All names begin with `replayed-`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import SECOND_NS, Row
from tlstax.analysis.fleet.rollup.capture import RolledUp, roll_up
from tlstax.analysis.fleet.rollup.recording import hash_of
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.rows import tables as capture_tables
from tlstax.collectors.capture.reader import CaptureReader

Floats = npt.NDArray[np.float64]
START_NS: Final = 1_795_219_200 * SECOND_NS
"""2026-11-21, midnight UTC."""
SEED: Final = 17
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Planted:
    """What changes at a time, and on which hosts (by number)."""

    at_ns: int = 0
    longer_key: Sequence[int] = ()
    """Signing takes `key_factor` times as long: 6.3 is RSA-4096 instead of RSA-2048."""
    new_library: Sequence[int] = ()
    """OpenSSL 3.5 instead of 3.0: handshakes take 30 % less CPU time."""
    no_resumption: Sequence[int] = ()
    """Clients of the first network resume no more."""
    key_factor: float = 6.3


@dataclass(frozen=True)
class Fleet:
    """How many hosts, and how much they differ."""

    host_count: int
    profiles: Sequence[RolledUp]
    planted: Planted = field(default_factory=Planted)
    cluster_size: int = 25
    with_networks: bool = False
    observed_share: float = 1.0
    """Part of the time in which recorders looked."""

    def name(self, number: int) -> str:
        """The name of a host."""
        return f"replayed-{number:05d}"

    def cluster(self, number: int) -> str:
        """The cluster of a host."""
        return f"c{number // self.cluster_size:03d}"


def profile(path: Path, arm: str = "tls") -> RolledUp:
    """A recording as rows; of an experiment, only what was recorded in this arm."""
    with CaptureReader.open(path) as reader:
        tables = capture_tables.load(reader)
    runs = {run.run_id for run in tables.runs if run.arm == arm}
    if runs:
        tables.windows = [window for window in tables.windows if window.run_id in runs]
        kept = {window.window_id for window in tables.windows}
        for name in ("ledger", "latencies", "handshakes", "phase_counts", "samples", "losses"):
            rows = [row for row in getattr(tables, name) if row.window_id in kept]
            setattr(tables, name, rows)
        tables.runs = []
    return roll_up(tables, str(path))


class Traits:
    """What was drawn once for each host."""

    def __init__(self, fleet: Fleet) -> None:
        count = fleet.host_count
        self.random = np.random.default_rng(SEED)
        self.profile = np.arange(count) // fleet.cluster_size % len(fleet.profiles)
        self.load = 0.3 * self.random.lognormal(0.0, 0.5, count)
        self.speed = self.random.lognormal(0.0, 0.08, count)
        self.resumed = self.random.beta(8, 4, count)
        self.peak = self.random.normal(14.0, 1.0, count)
        self.source = np.array([hash_of((fleet.name(n),)) for n in range(count)])


class Causes:
    """Rows about causes of all hosts in one hour.

    Each host has the findings of its recording and an estimate of its record crypto in every hour,
    as a watch writes them. Stacks and frames are those of the recordings: hosts share them.
    """

    def __init__(
        self, fleet: Fleet, traits: Traits, start_ns: int, random: np.random.Generator
    ) -> None:
        self._fleet, self._traits, self._start_ns = fleet, traits, start_ns
        self._random = random

    def findings(self) -> Any:
        """The findings of each host's recording: shares, sizes and the numbers in words vary."""
        made = []
        for number in range(self._fleet.host_count):
            profile = self._fleet.profiles[self._traits.profile[number]]
            for row in profile.rows["1h"][columns.Finding]:
                assert isinstance(row, columns.Finding)
                noise = float(self._random.lognormal(0, 0.1))
                changed = row._replace(
                    host=self._fleet.name(number),
                    start_wall_ns=self._start_ns,
                    source_id=int(self._traits.source[number]),
                    share=min(1.0, row.share * noise),
                    size_ns=row.size_ns * noise,
                    sentence=_NUMBER.sub(lambda found: self._other(found[0]), row.sentence),
                )
                made.append(changed)
        return parquet_files.table_of(columns.Finding, made) if made else None

    def _other(self, digits: str) -> str:
        """Another number of as many digits."""
        return "".join(str(digit) for digit in self._random.integers(0, 10, len(digits)))

    def splits(self, command_ns: Floats, record_ns: Floats, samples: Floats) -> Any:
        """Estimates with an interval of a tenth, by host: sums over the hour."""
        sides: npt.NDArray[np.float64] = self._random.lognormal(0, 0.02, (2, len(record_ns)))
        share = record_ns / np.maximum(command_ns, 1)
        made = [
            columns.RecordSplit(
                self._fleet.name(number),
                self._start_ns,
                int(self._traits.source[number]),
                int(command_ns[number]),
                int(record_ns[number]),
                int(record_ns[number] * 0.9 * sides[0, number]),
                int(record_ns[number] * 1.1 * sides[1, number]),
                int(samples[number]),
                int(samples[number] * share[number]),
            )
            for number in range(self._fleet.host_count)
        ]
        return parquet_files.table_of(columns.RecordSplit, made)

    def shared(self, table: type[Row]) -> Any:
        """The stacks, or frames, of all recordings, each once."""
        found = {
            row[0]: row._replace(start_wall_ns=self._start_ns)
            for profile in self._fleet.profiles
            for row in profile.rows["1h"][table]
        }
        return parquet_files.table_of(table, found.values()) if found else None
