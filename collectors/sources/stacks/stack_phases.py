# SPDX-License-Identifier: GPL-2.0-only
"""Infer the phase of a stack from the boundary functions in it, for engines without probes.

The definitions name the functions at which a thread changes its phase; the innermost of them in a
complete stack gives the phase. If a stack is truncated before such a function, its phase and its
time are `unknown`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tlstax.probes.model import Boundary, Definition, compile_names

UNKNOWN: Final = "unknown"
BACKGROUND: Final = "background"
HELD: Final = (
    "phase", "phase_open", "phase_send", "call", "await_command", "await_receive", "base_connect",
    "base_disconnect", "base_pool", "handshake_bound", "handshake_call",
)  # fmt: skip
"""Actions whose function is on the stack during the whole phase."""
_BASES: Final = (
    *("base_connect", "base_disconnect"),
    *("await_command", "await_receive", "phase_open"),
)
_BETWEEN: Final = ("connect", "disconnect")
_RECORDS: Final = ("record_read", "record_write")
_HANDSHAKE: Final = ("handshake", "sign", "keygen", "derive", "verify", "certificate")
_ROOTS: Final = re.compile(r"_?_?clone3?|start_thread|__libc_start_main|_start|__libc_start_call")
# Compilers split functions (.cold, .part.0, .constprop.0), linkers version them (@@GLIBC_2.34).
_SUFFIX: Final = re.compile(r"(?:\.|@).*")
_ARGUMENTS: Final = re.compile(r"\(.*")
_MANGLED: Final = re.compile(r"_ZN?[KL]*(?=\d)")
_LENGTH: Final = re.compile(r"\d+")


class _Entry(NamedTuple):
    names: re.Pattern[str]
    phase: str
    only_in: str
    is_base: bool


class StackPhases:
    """Infers phases of stacks from the boundaries of definitions.

    Names may be mangled, or C++ names with or without their arguments, as debuggers print them.
    """

    def __init__(self, definitions: Iterable[Definition]) -> None:
        boundaries = [one for entry in definitions for one in entry.boundaries]
        self._entries = [entry for one in boundaries if (entry := _entry(one))]
        self._waits = [(_names(one), one.state) for one in boundaries if one.action == "wait"]
        self._known: dict[str, tuple[_Entry, ...]] = {}

    def wait_state(self, functions: Sequence[str]) -> str:
        """The state of a wait in one of the server's wait functions; "" in any other."""
        plain = [_plain(name) for name in functions]
        for names, state in self._waits:
            if any(names.fullmatch(name) for name in plain):
                return state
        return ""

    def phase(self, functions: Sequence[str], *, cut: bool = False) -> str:
        """The phase of a user stack given as symbol names, leaf first.

        `cut`: the stack is known to end below a boundary function, whose callers were hidden; what
        counts only inside of a handshake is then taken to be in one.
        """
        frames = [self._entries_of(name) for name in functions]
        for depth, entry in ((depth, one) for depth, found in enumerate(frames) for one in found):
            outer = [one for found in frames[depth + 1 :] for one in found]
            if entry.only_in and not (cut or any(one.phase in _HANDSHAKE for one in outer)):
                continue
            base = next((one.phase for one in outer if one.is_base), "")
            if entry.phase in _RECORDS and not entry.is_base and base in _BETWEEN:
                return base  # reads and writes during connecting belong to that phase
            return entry.phase
        is_whole = bool(functions) and _ROOTS.match(functions[-1]) is not None
        return BACKGROUND if is_whole else UNKNOWN

    def _entries_of(self, name: str) -> tuple[_Entry, ...]:
        if name not in self._known:
            plain = _plain(name)
            self._known[name] = tuple(one for one in self._entries if one.names.fullmatch(plain))
        return self._known[name]


def _plain(name: str) -> str:
    """A name without arguments and without suffixes of compilers and linkers."""
    return _ARGUMENTS.sub("", _SUFFIX.sub("", name))


def _names(boundary: Boundary) -> re.Pattern[str]:
    """The boundary's functions, mangled and as C++ names."""
    patterns = [function.pattern for function in boundary.functions]
    spoken = [name for pattern in patterns if (name := spoken_name(pattern))]
    return re.compile("|".join([compile_names(patterns).pattern, *map(re.escape, spoken)]))


def spoken_name(pattern: str) -> str:
    """`MDL_wait::timed_wait` for `_ZN8MDL_wait10timed_waitE*`; "" if it is not a plain C++ name."""
    rest = _MANGLED.sub("", pattern)
    if rest == pattern:
        return ""
    parts = []
    while found := _LENGTH.match(rest):
        length = int(found[0])
        rest = rest[found.end() :]
        if length > len(rest):
            return ""
        parts.append(rest[:length])
        rest = rest[length:]
    return "::".join(parts) if all(part.isidentifier() for part in parts) else ""


def _entry(boundary: Boundary) -> _Entry | None:
    """The meaning of a function of this boundary on the stack."""
    if boundary.action not in HELD or not boundary.phase:
        return None
    names = _names(boundary)
    is_base = boundary.action in _BASES
    return _Entry(names, boundary.phase, boundary.only_in, is_base)
