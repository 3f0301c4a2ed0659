# SPDX-License-Identifier: GPL-2.0-only
"""The request for a recording."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tlstax.collectors.preflight.safety import Safety
from tlstax.probes.model import Level

if TYPE_CHECKING:  # rows of captures take 10 ms to define, and planning needs none
    from tlstax.collectors.recording.source_set import SourceSet


@dataclass(frozen=True)
class Request:
    """What to record."""

    pid: int
    capture: Path
    window_s: float = 1.0
    sample_hz: int = 99
    level: Level = Level.RECORD
    definitions: Path | None = None
    overwrite: bool = False
    functions: tuple[str, ...] = ()  # primitives to count, by category or id
    clients: tuple[int, ...] = ()
    client_level: Level = Level.HANDSHAKE
    sources: "SourceSet | None" = None  # recorded in addition to the engine
    unwind_tables: bool = True  # walk user stacks by them; else by frame pointers
    threads_most: int | None = None  # room in the ledger; None: by the limits of the process
    budget: float | None = None  # limit of the overhead, as a share of the server's CPU time
    budget_is_default: bool = False  # if nothing fits, everything is recorded without a limit
    accepted: tuple[str, ...] = ()  # hazards whose safe variants are not applied
    safety: Safety | None = None  # what preflight found; None: the recorder asks it
    duration_s: float | None = None  # end after this long; None: when it is closed
    calibration_s: float | None = None  # at level flow, mean time between calibration stretches
    chooses_level: bool = False  # record instead, by what it would cost: needs budget and stretches
    network_bits: tuple[int, int] | None = None  # of clients' addresses; None: no address at all
    is_all: bool = False  # this process has done nothing else yet: its CPU time is the recording's
    recorder: Path | None = None  # executable to start instead of the one that ships: for tests

    @property
    def has_networks(self) -> bool:
        """Whether the networks of clients are asked for."""
        return self.network_bits is not None
