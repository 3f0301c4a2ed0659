# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a comparison of TLS libraries: what `tlstax lab run libraries` prints and draws.

Costs are CPU time of the server, TLS less plaintext within the same server. Times are nanoseconds.
"""

from dataclasses import dataclass
from typing import Annotated

from tlstax.analysis.model.tables import Interval, Measure, UnitCount


@dataclass(frozen=True)
class CategoryCost:
    """What one category adds."""

    category: Annotated[str, "category, see Categories"]
    cost: Annotated[Measure, "TLS less plaintext"]


@dataclass(frozen=True)
class Cost:
    """What TLS adds to one unit of work."""

    per: Annotated[str, "the unit: handshake or KB"]
    total: Annotated[Measure, "all categories together; exact, by the ledger"]
    categories: Annotated[list[CategoryCost], "its split by samples: medians"]
    unit_count: Annotated[float, "units in the TLS arm"]
    sample_count: Annotated[int, "CPU samples behind the split of the TLS arm"]
    latency: Annotated[Measure, "the same difference as the client sees it, waits included"]


@dataclass(frozen=True)
class HotFunction:
    """A function that samples hit often."""

    name: Annotated[str, "function; for one without a name, its file and what its code shows"]
    category: Annotated[str, "category, see Categories"]
    share: Annotated[float, "of all CPU samples in these phases, kernel included"]
    low: Interval
    high: Interval
    sample_count: Annotated[int, "samples in it"]
    unit_count: UnitCount = None


@dataclass(frozen=True)
class Build:
    """The TLS library of a server, as it was found in the process and by negotiating."""

    library: Annotated[str, "library and version"]
    linkage: Annotated[str, "shared or static"]
    agreed: Annotated[str, "version, cipher and temporary key of the drivers' connections"]
    versions: Annotated[list[str], "TLS versions that it accepts"]
    lacks: Annotated[list[str], "features that it lacks, found by negotiating or disassembling"]


@dataclass(frozen=True)
class ServerCosts:
    """One server of the comparison."""

    name: Annotated[str, "name in the catalogue"]
    server: Annotated[str, "server and version, as found in the process"]
    build: Annotated[Build, "its TLS library"]
    round_count: Annotated[int, "rounds behind the intervals"]
    handshake: Annotated[Cost | None, "per full handshake; null = not measured"]
    private_key_ns: Annotated[float | None, "CPU time of the private-key operation; exact"]
    record: Annotated[Cost | None, "per KB of result, reading and writing records"]
    hot_handshake: Annotated[list[HotFunction], "in the handshake"]
    hot_record: Annotated[list[HotFunction], "while reading and writing records of a bulk result"]
    unknown_share: Annotated[float, "share of the samples in these phases that match no rule"]
    start_count: Annotated[
        int, "server starts with these rounds; from 2 on, starts are units, not rounds"
    ] = 1


@dataclass(frozen=True)
class Libraries:
    """The whole comparison."""

    title: Annotated[str, "its title"]
    key: Annotated[str, "kind of the server's key"]
    host: Annotated[str, "CPU and kernel that it was measured on"]
    note: Annotated[str, "how the intervals were computed, and their limits"]
    servers: Annotated[list[ServerCosts], "in the order of the recipe"]
    left_out: Annotated[dict[str, str], "servers that could not be measured, and why"]
