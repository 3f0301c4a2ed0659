# SPDX-License-Identifier: GPL-2.0-only
"""A data set of many hosts from a few real recordings: replayed and varied, never measured.

Each cluster takes the rows of one recording (per second) as its profile, at 30 % of its load in the
median: the recordings are of saturated servers. Its load, the speed of its
CPU, how often its clients resume and the hour of its peak are drawn once; each interval has noise
of its own. What is planted (another key, library or client) changes after a given time, on given
hosts. All names begin with `replayed-`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from tlstax.analysis.fleet.columns import SECOND_NS
from tlstax.analysis.fleet.rollup.capture import RolledUp, roll_up
from tlstax.analysis.fleet.rollup.recording import hash_of
from tlstax.analysis.rows import tables as capture_tables
from tlstax.collectors.capture.reader import CaptureReader

Floats = npt.NDArray[np.float64]
START_NS: Final = 1_795_219_200 * SECOND_NS
"""2026-11-21, midnight UTC."""
SEED: Final = 17


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
