# SPDX-License-Identifier: GPL-2.0-only
"""Reading a recipe's TOML entry by entry, so that whatever is wrong or left over is named."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from tlstax import ExitCode, TlstaxError

T = TypeVar("T", int, str)


class RecipeTable:
    """A TOML table whose entries are taken one by one; whatever is left over is an error."""

    def __init__(self, path: Path, name: str, entries: object) -> None:
        self._path, self._name = path, name
        if not isinstance(entries, Mapping):
            raise self.refuse("it is not a table")
        self._entries = dict(entries)

    def take(self, key: str, kind: type[T], default: T | None) -> T:
        """The entry `key`, which must be of this kind; without a default it must be there."""
        value = self._entries.pop(key, default)
        if value is None:
            raise self.refuse(f"it lacks '{key}'")
        if type(value) is not kind:  # not isinstance: true is no number
            raise self.refuse(f"{key} = {value!r}, which is no {kind.__name__}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; an empty one if it is missing."""
        found = self._entries.pop(key, [])
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            raise self.refuse(f"{key} = {found!r}, which is no list of names")
        return tuple(found)

    def number(self, key: str, default: int, most: int, *, least: int = 1) -> int:
        """A whole number within bounds."""
        value = self.take(key, int, default)
        if not least <= value <= most:
            raise self.refuse(f"{key} = {value}, which is not within {least}..{most}")
        return value

    def table(self, key: str, *, required: bool = True) -> "RecipeTable":
        """A table within this one; an empty one if it may be missing and is."""
        if required and key not in self._entries:
            raise self.refuse(f"it lacks [{key}]")
        return RecipeTable(self._path, key, self._entries.pop(key, {}))

    def tables(self, key: str) -> list["RecipeTable"]:
        """An array of tables, at least one."""
        found = self._entries.pop(key, [])
        if not isinstance(found, list) or not found:
            raise self.refuse(f"it lacks a [[{key}]]")
        return [RecipeTable(self._path, key, entries) for entries in found]

    def refuse_rest(self) -> None:
        """Say which entry nobody asked for: a misspelt one would be silently ignored."""
        for key in self._entries:
            raise self.refuse(f"it has an unknown '{key}'")

    def refuse(self, why: str) -> TlstaxError:
        """The error for this table."""
        return refuse(self._path, f"in [{self._name}] {why}" if self._name else why)


def refuse(path: Path, why: str) -> TlstaxError:
    """The error for a recipe file."""
    return TlstaxError(
        f"cannot use the recipe {path}",
        why,
        "Compare it with one that works: `tlstax lab show demo`",
        ExitCode.USAGE,
    )
