# SPDX-License-Identifier: GPL-2.0-only
"""Plans in which one value of a description is another: JSON as nobody writes it."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

VALUES: Final[tuple[Any, ...]] = ([], {}, [[]], "", "x", -1, 0, 1 << 70, 1e400, None, True)
_LINES: Final = ("site", "function", "about")
Keys = tuple[str | int, ...]


def plan_mutants(text: str, seed: int, count: int) -> Iterator[tuple[str, str]]:
    """(what was changed, the text): a sample of all values, each as one of VALUES."""
    lines = text.split("\n")
    places: dict[str, tuple[int, Keys]] = {}
    for number, line in enumerate(lines):
        if line.startswith(_LINES):
            words, described = _split(line)
            kind = words.split()[1] if line.startswith("about") else words.split()[0]
            for keys in _keys(described):
                shape = ".".join((kind, *("*" if isinstance(key, int) else key for key in keys)))
                places.setdefault(shape, (number, keys))
    chance = random.Random(seed)
    for shape in chance.sample(sorted(places), count):
        number, keys = places[shape]
        value = chance.choice(VALUES)
        words, described = _split(lines[number])
        changed = json.dumps(_with(described, keys, value), separators=(",", ":"))
        mutant = [*lines[:number], f"{words}{changed}", *lines[number + 1 :]]
        yield f"{shape} = {value!r}", "\n".join(mutant)


def _split(line: str) -> tuple[str, Any]:
    """The words of a line, and its description."""
    start = line.index(" ", len("about ")) + 1 if line.startswith("about") else line.index("{")
    return line[:start], json.loads(line[start:])


def _keys(value: Any, before: Keys = ()) -> Iterator[Keys]:
    """Where its values are, itself included."""
    yield before
    entries: Any = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        entries = enumerate(value)
    for key, item in entries:
        yield from _keys(item, (*before, key))


def _with(value: Any, keys: Keys, new: Any) -> Any:
    if not keys:
        return new
    made = copy.copy(value)
    made[keys[0]] = _with(value[keys[0]], keys[1:], new)
    return made
