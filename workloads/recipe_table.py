# SPDX-License-Identifier: GPL-2.0-only
"""Reading a recipe's TOML entry by entry, so that whatever is wrong or left over is named."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tlstax import ExitCode, TlstaxError

T = TypeVar("T", int, str, bool)
Scalar = str | int | float | bool


class RecipeTable:
    """A TOML table whose entries are taken one by one; whatever is left over is an error."""

    def __init__(self, path: Path, name: str, entries: object) -> None:
        self._path, self._name = path, name
        if not isinstance(entries, Mapping):
            raise self.refuse("it is not a table")
        self._entries = dict(entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def take(self, key: str, kind: type[T], default: T | None) -> T:
        """The entry `key`, which must be of this kind; without a default it must be there."""
        value = self._entries.pop(key, default)
        if value is None:
            raise self.refuse(f"it lacks '{key}'")
        if type(value) is not kind:  # not isinstance: true is no number
            raise self.refuse(f"{key} = {value!r}, which is no {kind.__name__}")
        return value

    def real(self, key: str, default: float | None = float("nan")) -> Any:
        """A number, whole or not; None if it is missing and None is the default."""
        value = self._entries.pop(key, default)
        if value is None:
            return None
        if type(value) not in (int, float) or value != value:
            raise self.refuse(f"{key} = {value!r}, which is no number")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; an empty one if it is missing."""
        found = self._entries.pop(key, [])
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            raise self.refuse(f"{key} = {found!r}, which is no list of names")
        return tuple(found)

    def numbers(self, key: str, least: int, most: int) -> tuple[int, ...]:
        """A list of whole numbers within bounds; an empty one if it is missing."""
        found = self._entries.pop(key, [])
        if not isinstance(found, list) or not all(type(entry) is int for entry in found):
            raise self.refuse(f"{key} = {found!r}, which is no list of whole numbers")
        for entry in found:
            if not least <= entry <= most:
                raise self.refuse(f"{key} holds {entry}, which is not within {least}..{most}")
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
            raise self.refuse(f"it lacks [{self._below(key)}]")
        return RecipeTable(self._path, self._below(key), self._entries.pop(key, {}))

    def tables(self, key: str, *, required: bool = True) -> list["RecipeTable"]:
        """An array of tables, at least one if it is required."""
        found = self._entries.pop(key, [])
        if not isinstance(found, list) or (required and not found):
            raise self.refuse(f"it lacks a [[{key}]]")
        return [RecipeTable(self._path, self._below(key), entries) for entries in found]

    def named(self, key: str) -> Iterator[tuple[str, "RecipeTable"]]:
        """The tables [KEY.NAME], none if there is no such."""
        found = self._entries.pop(key, {})
        if not isinstance(found, Mapping):
            raise self.refuse(f"{key} is no table")
        for name, entries in found.items():
            yield name, RecipeTable(self._path, f"{key}.{name}", entries)

    def rest(self, *, lists: bool = False) -> dict[str, Any]:
        """All that is left, each a text, a number or a switch, or with `lists` a list of such."""
        found, self._entries = self._entries, {}
        for key, value in found.items():
            values = value if lists and isinstance(value, list) else [value]
            if not all(type(entry) in (str, int, float, bool) for entry in values):
                raise self.refuse(f"{key} = {value!r}, which is no text, number or switch")
        return found

    def refuse_rest(self) -> None:
        """Say which entry nobody asked for: a misspelt one would be silently ignored."""
        for key in self._entries:
            raise self.refuse(f"it has an unknown '{key}'")

    def refuse(self, why: str) -> TlstaxError:
        """The error for this table."""
        return refuse(self._path, f"in [{self._name}] {why}" if self._name else why)

    def _below(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def refuse(path: Path, why: str) -> TlstaxError:
    """The error for a recipe file."""
    return TlstaxError(
        f"cannot use the recipe {path}",
        why,
        "Compare it with one that works: `tlstax lab show demo`",
        ExitCode.USAGE,
    )
