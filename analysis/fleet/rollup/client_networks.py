# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes by network of the client: the largest networks of each interval, and all others."""

from collections import defaultdict
from collections.abc import Mapping, MutableMapping
from typing import Final

from tlstax.analysis.fleet.columns import NETWORKS_MOST, OTHERS
from tlstax.collectors.capture.schema import Handshake

KEPT_MOST: Final = 1024
"""Networks of all intervals in memory; when there are more, the smallest are put together."""
_KEPT_APART: Final = 256

Key = tuple[str | int, ...]
Numbers = dict[str, int]


def count(numbers: MutableMapping[str, int], row: Handshake) -> None:
    """Count a handshake of a network."""
    numbers["connection_count"] += 1
    if row.outcome != "success":
        numbers["failed_count"] += 1
    elif row.resumed is not None:
        numbers["resumed_count" if row.resumed else "full_count"] += 1


def bound(networks: dict[Key, Numbers]) -> None:
    """Keep the memory that networks need: of too many only the largest stay apart.

    One that was put to the others begins anew when it comes back.
    """
    if len(networks) > KEPT_MOST:
        kept = _largest(networks, _KEPT_APART)
        networks.clear()
        networks.update(kept)


def largest(networks: Mapping[Key, Numbers]) -> Mapping[Key, Numbers]:
    """Those of each interval that have rows of their own, and the rest of it."""
    return _largest(networks, NETWORKS_MOST)


def _largest(networks: Mapping[Key, Numbers], most: int) -> dict[Key, Numbers]:
    by_start: dict[str | int, list[Key]] = defaultdict(list)
    for key in networks:
        if key[1] != OTHERS:
            by_start[key[0]].append(key)
    apart = {
        key
        for keys in by_start.values()
        for key in sorted(keys, key=lambda key: (-networks[key]["connection_count"], key))[:most]
    }
    made: dict[Key, Numbers] = {}
    for key, numbers in networks.items():
        into = made.setdefault(key if key in apart else (key[0], OTHERS), defaultdict(int))
        for name, value in numbers.items():
            into[name] += value
    return made
