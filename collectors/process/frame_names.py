# SPDX-License-Identifier: GPL-2.0-only
"""Names of addresses of several processes, looked up together in a forked child.

Symbol tables are large, and what a library's code without names does takes long to find out. So
each place in a file is looked up once, whichever processes were there.
"""

import os
from collections.abc import Mapping
from typing import Final

from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.process.symbols import Place, Symbolizer

LAST_OF_ALL: Final = 19  # nice
KERNEL: Final = "kernel"

PlaceKey = tuple[str, str, int]
"""(path, build-id, offset), ("kernel", "", address), or of one process ("", process, address)."""


class FrameNames:
    """Places that are to be named."""

    def __init__(self) -> None:
        self._asked: dict[PlaceKey, Symbolizer | Place] = {}
        self._files: dict[tuple[str, str], Symbolizer] = {}

    def add(
        self, symbolizer: Symbolizer, kernel: bool, address: int, *, is_over: bool = False
    ) -> PlaceKey:
        """The place of an address. `is_over`: its process has ended, and maps nothing any more."""
        file = (KERNEL, "")
        if not kernel:
            place = symbolizer.locate(address)
            file = (place.object, place.build_id)
            if place.build_id:
                address = place.offset_bytes
            else:
                file = ("", symbolizer.process)
                if is_over and not place.object:
                    self._asked[*file, address] = symbolizer.outside(address)
                    return *file, address
        self._asked[*file, address] = self._files.setdefault(file, symbolizer)
        return *file, address

    def needs(self, symbolizer: Symbolizer) -> bool:
        """Whether its files must stay open until the names have been looked up."""
        return symbolizer in self._files.values()

    def look_up(self) -> Mapping[PlaceKey, Place]:
        """The names of all places; they are forgotten here."""
        asked, self._asked, self._files = self._asked, {}, {}
        known = {key: found for key, found in asked.items() if isinstance(found, Place)}
        unknown = {key: who for key, who in asked.items() if not isinstance(who, Place)}
        if not unknown:
            return known
        places = run_in_child(
            "Naming the functions of the recorded stacks", lambda: _name_all(unknown)
        )
        return known | dict(zip(unknown, places, strict=True))


def _name_all(asked: Mapping[PlaceKey, Symbolizer]) -> list[Place]:
    """In the child: the server comes first."""
    os.nice(LAST_OF_ALL)
    return [_name(symbolizer, key) for key, symbolizer in asked.items()]


def _name(symbolizer: Symbolizer, key: PlaceKey) -> Place:
    path, build_id, where = key
    if path == KERNEL:
        return symbolizer.kernel(where)
    if not path:
        return symbolizer.user(where)
    place = symbolizer.in_file(path, build_id, where)
    assert place is not None  # it was located in that file
    return place
