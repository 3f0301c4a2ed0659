# SPDX-License-Identifier: GPL-2.0-only
"""Files CPU samples into categories by the rules in rules/*.toml.

The rules have no order: each one must be true by itself, and no stack may satisfy rules of two
categories (a test sees to that; a stack that does anyway is `unknown`). A rule sees where the
sample was taken (user or kernel side), the phase, the system call and the frames:

- `side`: `user` or `kernel`. A sample with a kernel stack or a system call is `kernel`.
- `phase`, `syscall`: lists of names, one of which must apply; `none` = no system call.
- `object`: pattern for the file name of the leaf, without directory.
- `code`: list of evidence from the leaf's own instructions; `""` = none.
- `named`: whether the leaf has a symbol.
- `source_file`: pattern for the source file or directory that a nameless leaf was compiled from,
  as far as the recorder could tell it; `^$` = not known.
- `symbol`: pattern for the nearest name: the leaf's, or, where the leaf has none, that of its
  nearest named caller in the same object. Stripped libraries name only what they export.
- `any_symbol`: pattern for the name of some frame of the leaf's side.
- `unless`: a list of tables of the same keys; where one applies the match does not.

A value "$name" stands for the pattern or list of that name in the file's `define` table. Patterns
are Python regular expressions, searched; all keys of a match must apply. A rule may have several
matches, one of which must apply. Kernel samples are filed by phase and system call, not by their
leaf: samples pile up where the kernel enables interrupts again.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.capture.schema import Frame
from tlstax.collectors.capture.syscalls import syscall_name
from tlstax.collectors.capture.vocabulary import CATEGORIES, PHASES

UNKNOWN: Final = "unknown"
# Paths below the top directory of a TLS library's sources.
_SOURCE: Final = re.compile(r"\b(?:crypto|ssl|providers|engines)/[\w./-]*")


class Sample(NamedTuple):
    """What a rule can see of a sample. Frames are leaf first."""

    phase: str
    syscall: int
    user: tuple[Frame, ...]
    kernel: tuple[Frame, ...]

    @property
    def side(self) -> str:
        """Where the CPU was."""
        return "kernel" if self.kernel or self.syscall >= 0 else "user"

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of that side, leaf first."""
        return self.kernel if self.side == "kernel" else self.user


@dataclass(frozen=True)
class Match:
    """Conditions that must all apply; None = does not matter. See the module's text."""

    side: str | None = None
    phase: tuple[str, ...] | None = None
    syscall: tuple[str, ...] | None = None
    object: str | None = None
    code: tuple[str, ...] | None = None
    named: bool | None = None
    source_file: str | None = None
    symbol: str | None = None
    any_symbol: str | None = None
    unless: tuple["Match", ...] = ()

    def applies(self, sample: Sample) -> bool:
        """Whether the sample satisfies every condition."""
        return self.leaf_applies(sample.frames) and self.rest_applies(sample)

    def rest_applies(self, sample: Sample) -> bool:
        """Whether it satisfies the conditions that are not about the leaf."""
        return (
            (self.side is None or sample.side == self.side)
            and (self.phase is None or sample.phase in self.phase)
            and (self.syscall is None or syscall_name(sample.syscall) in self.syscall)
            and (
                self.any_symbol is None
                or any(_found(self.any_symbol, frame.symbol) for frame in sample.frames)
            )
            and not any(match.applies(sample) for match in self.unless)
        )

    def searched(self, side: str) -> Iterator[str]:
        """The patterns that are searched in all frames of a side."""
        if self.side in (None, side):
            if self.any_symbol is not None:
                yield self.any_symbol
            for match in self.unless:
                yield from match.searched(side)

    def leaf_applies(self, frames: tuple[Frame, ...]) -> bool:
        """Whether the leaf satisfies the conditions about it."""
        conditions = (self.object, self.code, self.named, self.source_file, self.symbol)
        if conditions == (None,) * len(conditions):
            return True
        if not frames:
            return False
        leaf = frames[0]
        return (
            (self.object is None or _found(self.object, _file_name(leaf.object)))
            and (self.code is None or instructions(leaf) in self.code)
            and (self.named is None or is_named(leaf) == self.named)
            and (self.source_file is None or _found(self.source_file, source_file(leaf)))
            and (self.symbol is None or _found(self.symbol, nearest_name(frames)))
        )


@dataclass(frozen=True)
class Rule:
    """One entry of the taxonomy."""

    id: str
    name: str
    category: str
    evidence: str
    description: str
    matches: tuple[Match, ...]

    def is_possible_in(self, file: str) -> bool:
        """Whether it could apply to a leaf in a file of this name; '': no leaf."""
        return any(match.object is None or _found(match.object, file) for match in self.matches)


Leaf = tuple[str, str, str, str]
"""Object, symbol and code of a leaf, and its nearest name: what conditions about it can see."""

Key = tuple[str, int, str, str, str, str, str, frozenset[str]]
"""All that rules can see of a sample; samples alike in it have the same category."""


@dataclass(frozen=True)
class Taxonomy:
    """A set of rules."""

    rules: tuple[Rule, ...]
    _known: dict[Key, str] = field(default_factory=dict, compare=False, repr=False)
    _of_file: dict[str, tuple[Rule, ...]] = field(default_factory=dict, compare=False, repr=False)
    _of_leaf: dict[Leaf | None, tuple[tuple[Rule, tuple[Match, ...]], ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _searched: dict[str, frozenset[str]] = field(init=False, compare=False, repr=False)
    _present: dict[tuple[str, str], frozenset[str]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        matches = [match for rule in self.rules for match in rule.matches]
        patterns = {
            side: frozenset(p for match in matches for p in match.searched(side))
            for side in ("user", "kernel")
        }
        object.__setattr__(self, "_searched", patterns)

    def hits(self, sample: Sample) -> list[Rule]:
        """All rules that apply."""
        return [
            rule
            for rule, matches in self._matches_of(sample.frames)
            if any(match.rest_applies(sample) for match in matches)
        ]

    def _matches_of(self, frames: tuple[Frame, ...]) -> tuple[tuple[Rule, tuple[Match, ...]], ...]:
        """The rules for a leaf, each with its matches that apply to it."""
        leaf = None
        if frames:
            leaf = frames[0].object, frames[0].symbol, frames[0].code, nearest_name(frames)
        known = self._of_leaf.get(leaf)
        if known is None:
            found = (
                (rule, tuple(match for match in rule.matches if match.leaf_applies(frames)))
                for rule in self._rules_of(_file_name(leaf[0]) if leaf else "")
            )
            known = self._of_leaf[leaf] = tuple(one for one in found if one[1])
        return known

    def _rules_of(self, file: str) -> tuple[Rule, ...]:
        """The rules that can apply to a leaf in this file: most are for other files."""
        known = self._of_file.get(file)
        if known is None:
            known = tuple(rule for rule in self.rules if rule.is_possible_in(file))
            self._of_file[file] = known
        return known

    def category(self, sample: Sample) -> str:
        """The category of a sample: `unknown` if no rule applies, or if rules disagree."""
        key = self._key(sample)
        return self._known.get(key) or self._learn(key, sample)

    def frame_categories(self, phase: str, frames: tuple[Frame, ...]) -> list[str]:
        """The category of each frame of a user stack, as if it were the leaf."""
        found = [""] * len(frames)
        present: frozenset[str] = frozenset()
        name, file = "", ""
        for index in range(len(frames) - 1, -1, -1):
            frame = frames[index]
            present |= self._patterns_in("user", frame.symbol)
            if is_named(frame):
                name = frame.symbol
            elif frame.object != file:
                name = ""
            file = frame.object
            key = phase, -1, "user", file, frame.symbol, frame.code, name, present
            found[index] = self._known.get(key) or self._learn(
                key, Sample(phase, -1, frames[index:], ())
            )
        return found

    def _learn(self, key: Key, sample: Sample) -> str:
        categories = {rule.category for rule in self.hits(sample)}
        known = self._known[key] = categories.pop() if len(categories) == 1 else UNKNOWN
        return known

    def _key(self, sample: Sample) -> Key:
        side, frames = sample.side, sample.frames
        if not frames:
            return sample.phase, sample.syscall, side, "", "", "", "", frozenset()
        leaf = frames[0]
        present = frozenset[str]().union(*(self._patterns_in(side, f.symbol) for f in frames))
        name = nearest_name(frames)
        place = sample.phase, sample.syscall, side
        return *place, leaf.object, leaf.symbol, leaf.code, name, present

    def _patterns_in(self, side: str, symbol: str) -> frozenset[str]:
        """The patterns that are searched in all frames and found in this name."""
        known = self._present.get((side, symbol))
        if known is None:
            known = frozenset(p for p in self._searched[side] if _found(p, symbol))
            self._present[side, symbol] = known
        return known


def is_named(frame: Frame) -> bool:
    """Whether a symbol covers the frame: `[object+0x...]` is a place, not a name."""
    return bool(frame.symbol) and not frame.symbol.startswith("[")


def source_file(frame: Frame) -> str:
    """The source file or directory that the recorder found for a nameless function, or ''."""
    found = None if is_named(frame) else _SOURCE.search(f"{frame.code} {frame.symbol}")
    return found[0] if found else ""


def instructions(frame: Frame) -> str:
    """The evidence from the function's own instructions, or ''."""
    return _SOURCE.sub("", frame.code).strip()


def nearest_name(frames: tuple[Frame, ...]) -> str:
    """The leaf's name, or that of its nearest named caller in the same object, or ''."""
    for frame in frames:
        if frame.object != frames[0].object:
            break
        if is_named(frame):
            return frame.symbol
    return ""


@cache
def builtin() -> Taxonomy:
    """The rules that tlstax ships."""
    folder = files("tlstax.analysis.classify") / "rules"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".toml"))
    return parse({name: (folder / name).read_text(encoding="utf-8") for name in names})


def parse(texts: Mapping[str, str]) -> Taxonomy:
    """Rules from TOML texts by file name. Raises TlstaxError if one is not as it should be."""
    rules: dict[str, Rule] = {}
    for file, text in texts.items():
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _bad(file, str(error)) from error
        for table in document.get("rule", []):
            rule = _rule(file, table, document.get("define", {}))
            if rule.id in rules:
                raise _bad(file, f"the id {rule.id} is used twice")
            rules[rule.id] = rule
    return Taxonomy(tuple(rules.values()))


def _rule(file: str, table: dict[str, Any], define: dict[str, Any]) -> Rule:
    wanted = {"id", "name", "category", "evidence", "description", "match"}
    label = f"rule {table.get('id', 'without id')}"
    if set(table) != wanted:
        raise _bad(file, f"{label} must have the keys {', '.join(sorted(wanted))} and no others")
    if table["category"] not in CATEGORIES:
        raise _bad(file, f"{label} has the category {table['category']}, which does not exist")
    matches = (_match(file, label, match, define) for match in table["match"])
    return Rule(
        **{key: str(table[key]) for key in wanted - {"match"}},
        matches=tuple(matches),
    )


def _match(file: str, label: str, table: dict[str, Any], define: dict[str, Any]) -> Match:
    if not table or not set(table) <= {item.name for item in fields(Match)}:
        raise _bad(file, f"{label} has an empty match or one with unknown keys")
    values = {
        key: _defined(file, label, value, define) for key, value in table.items() if key != "unless"
    }
    for key in ("object", "source_file", "symbol", "any_symbol"):
        try:
            re.compile(values.get(key, ""))
        except re.error as error:
            raise _bad(file, f"{label} has a bad pattern for {key}: {error}") from error
    if set(values.get("phase", ())) - set(PHASES):
        raise _bad(file, f"{label} names a phase that does not exist")
    unless = (_match(file, label, other, define) for other in table.get("unless", []))
    return Match(**values, unless=tuple(unless))


def _defined(file: str, label: str, value: Any, define: dict[str, Any]) -> Any:
    """The value, or what its "$name" stands for; lists as tuples, which can be hashed."""
    if isinstance(value, str) and value.startswith("$"):
        if value[1:] not in define:
            raise _bad(file, f"{label} refers to {value}, which is not defined")
        value = define[value[1:]]
    return tuple(value) if isinstance(value, list) else value


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def _found(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def _bad(file: str, why: str) -> TlstaxError:
    return TlstaxError(f"cannot use the taxonomy {file}", why, "correct the file")
