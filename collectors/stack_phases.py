# SPDX-License-Identifier: GPL-2.0-only
"""The phase of a stack, told by the boundary functions in it: for engines without probes.

The definitions name the functions at which a thread changes what it is doing; the innermost of
them in a whole stack says what it was doing. That is as good as the stack: one that broke off
before it reached such a function is `unknown`, and so is its time.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tlstax.probes.definitions import ACTIONS, Boundary, Definition, compile_names

UNKNOWN: Final = "unknown"
BACKGROUND: Final = "background"
_BASES: Final = ("base_connect", "base_disconnect", "await_command", "phase_open")
_BETWEEN: Final = ("connect", "disconnect")
_RECORDS: Final = ("record_read", "record_write")
_HANDSHAKE: Final = ("handshake", "sign", "keygen", "derive", "verify", "certificate")
_ROOTS: Final = re.compile(r"_?_?clone3?|start_thread|__libc_start_main|_start|__libc_start_call")
# Compilers split functions (.cold, .part.0, .constprop.0), linkers version them (@@GLIBC_2.34).
_SUFFIX: Final = re.compile(r"(?:\.|@).*")


class _Entry(NamedTuple):
    names: re.Pattern[str]
    phase: str
    only_in: str
    is_base: bool


class StackPhases:
    """Tells the phases of stacks by the boundaries of some definitions."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        boundaries = [one for entry in definitions for one in entry.boundaries]
        self._entries = [entry for one in boundaries if (entry := _entry(one))]
        self._known: dict[str, tuple[_Entry, ...]] = {}

    def phase(self, functions: Sequence[str]) -> str:
        """The phase of a user stack given as symbol names (mangled), leaf first."""
        frames = [self._entries_of(name) for name in functions]
        for depth, entry in ((depth, one) for depth, found in enumerate(frames) for one in found):
            outer = [one for found in frames[depth + 1 :] for one in found]
            if entry.only_in and not any(one.phase in _HANDSHAKE for one in outer):
                continue
            base = next((one.phase for one in outer if one.is_base), "")
            if entry.phase in _RECORDS and not entry.is_base and base in _BETWEEN:
                return base  # a connection's own reads and writes belong to its set-up
            return entry.phase
        is_whole = bool(functions) and _ROOTS.match(functions[-1]) is not None
        return BACKGROUND if is_whole else UNKNOWN

    def _entries_of(self, name: str) -> tuple[_Entry, ...]:
        if name not in self._known:
            plain = _SUFFIX.sub("", name)
            self._known[name] = tuple(one for one in self._entries if one.names.fullmatch(plain))
        return self._known[name]


def _entry(boundary: Boundary) -> _Entry | None:
    """What a function of this boundary means while it is on the stack."""
    if "enter" not in ACTIONS[boundary.action].events or not boundary.phase:
        return None
    names = compile_names(function.pattern for function in boundary.functions)
    is_base = boundary.action in _BASES
    return _Entry(names, boundary.phase, boundary.only_in, is_base)
