# SPDX-License-Identifier: GPL-2.0-only
"""How much of a recipe is run: its scales, the lists that they change, how long a run lasts."""

from dataclasses import dataclass
from typing import Final

from tlstax.workloads.recipe_table import RecipeTable, Scalar

SCALES: Final = ("smoke", "standard", "paper")
"""From the least to the most; a recipe has those that its author needs."""
PLURALS: Final = {
    "server": "servers",
    "key": "keys",
    "encryption": "encryption",
    "tls": "tls",
    "transport": "transports",
    "driver": "drivers",
    "scenario": "scenarios",
    "threads": "threads",
    "rate": "rates",
}
STARTS_MAX, ROUNDS_MAX, SECONDS_MAX, OPERATIONS_MAX, THREADS_MAX, RATE_MAX = (
    100,
    1000,
    3600,
    10**7,
    1024,
    10**6,
)
ROUNDS, SECONDS, ROUNDS_IN_TURN = 8, 5, 1

Lists = dict[str, tuple[Scalar, ...]]


@dataclass(frozen=True)
class Length:
    """When a run is over."""

    seconds: int
    operation_count: int | None = None  # of all threads together; given, `seconds` do not count


@dataclass(frozen=True)
class Scale:
    """How much of it."""

    name: str
    rounds_count: int  # of each start
    length: Length  # of a run, unless its [[cells]] say otherwise
    rounds_in_turn: int  # recorded in one go; a server that is alone in them starts only then
    starts_count: int = 1  # of each server


@dataclass(frozen=True)
class Block:
    """One [[cells]]: what it changes."""

    lists: Lists
    length: Length | None = None


def take_lists(table: RecipeTable) -> Lists:
    """What a table says about the dimensions; the rest of it must be empty."""
    found: Lists = {}
    for dimension, plural in PLURALS.items():
        if dimension == "threads":
            values: tuple[Scalar, ...] = table.numbers(plural, 1, THREADS_MAX)
        elif dimension == "rate":
            values = table.numbers(plural, 0, RATE_MAX)
        else:
            values = table.texts(plural)
        if values:
            found[dimension] = values
    table.refuse_rest()
    return found


def take_scale(top: RecipeTable, name: str | None) -> tuple[Scale, Lists]:
    """The scale that is asked for, without a name the least, and the lists that it changes.

    The others that are there are checked, too; those that are not, nobody asked for.
    """
    parsed = {}
    for own_name, table in top.named("scale"):
        if own_name not in SCALES:
            raise top.refuse(f"it has [scale.{own_name}], and known scales are {', '.join(SCALES)}")
        scale = Scale(
            own_name,
            table.number("rounds", ROUNDS, ROUNDS_MAX),
            _take_length(table) or Length(SECONDS),
            table.number("rounds_in_turn", ROUNDS_IN_TURN, ROUNDS_MAX),
            table.number("starts", 1, STARTS_MAX),
        )
        parsed[own_name] = (scale, take_lists(table))
    if not parsed:
        raise top.refuse(f"it lacks a [scale.NAME], and known scales are {', '.join(SCALES)}")
    has = [own_name for own_name in SCALES if own_name in parsed]
    if name is None:
        name = has[0]
    if name not in parsed:
        raise top.refuse(f"it lacks [scale.{name}], which was asked for; it has {', '.join(has)}")
    return parsed[name]


def take_blocks(top: RecipeTable, scale_name: str) -> list[Block]:
    """The [[cells]] of this scale, all of them checked; an empty one where there are none."""
    tables = top.tables("cells", required=False)
    found = []
    for table in tables:
        scales = table.texts("scales") or SCALES
        for name in scales:
            if name not in SCALES:
                raise table.refuse(f"scales = {name!r}, and known scales are {', '.join(SCALES)}")
        length = _take_length(table)
        block = Block(take_lists(table), length)
        if scale_name in scales:
            found.append(block)
    return found if tables else [Block({})]


def _take_length(table: RecipeTable) -> Length | None:
    """None where the table says nothing about it."""
    if "seconds" not in table and "operations" not in table:
        return None
    return Length(
        table.number("seconds", SECONDS, SECONDS_MAX),
        table.number("operations", 0, OPERATIONS_MAX, least=0) or None,
    )
