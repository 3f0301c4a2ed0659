# SPDX-License-Identifier: GPL-2.0-only
"""A TOML table that reports keys that were never read."""

from collections.abc import Mapping
from typing import Any, Final

from tlstax import ExitCode, TlstaxError

MOST: Final = 1_000_000
"""The largest number of a definition: hits of a crossing, pointers that are followed."""


class Table:
    """A TOML table whose keys are read one by one; a key that was never read is an error."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.content = dict(content)
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self.content

    def _take(self, key: str) -> Any:
        if key not in self.content:
            raise refuse(self.where, f"{key!r} is missing")
        return self.content.pop(key)

    def text(self, key: str) -> str:
        """A text, its white space folded."""
        value = self._take(key)
        if not isinstance(value, str) or not value.strip():
            raise refuse(self.where, f"{key!r} must be a text")
        return " ".join(value.split())

    def text_or_texts(self, key: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        return self.texts(key) if isinstance(self.content.get(key), list) else (self.text(key),)

    def flag(self, key: str) -> bool:
        """A truth value; false where the key is absent."""
        value = self.content.pop(key, False)
        if not isinstance(value, bool):
            raise refuse(self.where, f"{key!r} must be true or false")
        return value

    def number(self, key: str) -> float:
        """A number above 0."""
        value = self._take(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MOST:
            raise refuse(self.where, f"{key!r} must be a number above 0 and up to {MOST:,}")
        return float(value)

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of `allowed`; `default` where the key is absent."""
        if default is not None and key not in self.content:
            return default
        value = self._take(key)
        if value not in allowed:
            raise refuse(self.where, f"{key!r} is {value!r}, not one of {', '.join(allowed)}")
        return str(value)

    def items(self, key: str) -> list[object]:
        """A list that is not empty."""
        value = self._take(key)
        if not isinstance(value, list) or not value:
            raise refuse(self.where, f"{key!r} must be a list that is not empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts that is not empty."""
        values = self.items(key)
        if not all(isinstance(value, str) and value for value in values):
            raise refuse(self.where, f"{key!r} must be a list of texts")
        return tuple(str(value) for value in values)

    def table(self, key: str) -> "Table":
        """A table inside this one."""
        value = self._take(key)
        if not isinstance(value, dict):
            raise refuse(self.where, f"{key!r} must be a table")
        return Table(value, f"{self.where}, {key}")

    def tables(self, key: str) -> list["Table"]:
        """The tables of an array, none where the key is absent."""
        value = self.content.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise refuse(self.where, f"{key!r} must be an array of tables")
        names = [
            str(entry.get("id", entry.get("role", number))) for number, entry in enumerate(value)
        ]
        return [
            Table(entry, f"{self.where}, {key} {name}")
            for entry, name in zip(value, names, strict=True)
        ]

    def refuse(self, why: str) -> TlstaxError:
        """The error that this table cannot be used."""
        return refuse(self.where, why)

    def finish(self) -> None:
        """Raise TlstaxError if a key was never read."""
        if self.content:
            raise self.refuse(f"unknown key: {', '.join(sorted(self.content))}")


def refuse(where: str, why: str) -> TlstaxError:
    """The error (USAGE) that a definition file, or a part of it, cannot be used."""
    return TlstaxError(
        f"Definition {where} cannot be used", why, "Correct the file", ExitCode.USAGE
    )
