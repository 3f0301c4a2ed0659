# SPDX-License-Identifier: GPL-2.0-only
"""The stream's definition: read from the recorder's own headers, so that there is one only.

The headers are written plainly: one member a line, its description in the comment behind it.
"""

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[3]
_HEADERS: Final = (
    "probes/bpf/counts.h",
    "probes/bpf/ledger.h",
    "probes/bpf/functions.h",
    "collectors/recorder/stream.h",
    "collectors/recorder/stream_prices.h",
)
_SKIPPED: Final = (  # in no frame
    *("latency_shard", "thread_slot", "site_hits", "config"),
    *("call", "thread_calls", "function_key", "function_bucket", "function_cost"),
    "function_config",
)
_TYPES: Final[dict[str, Any]] = {
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "s32": ctypes.c_int32,
    "s64": ctypes.c_int64,
    "char": ctypes.c_char,
}
_STRUCT: Final = re.compile(
    r"(?:/\*(?P<text>[^*]*)\*/\n)?struct (?P<name>\w+) \{\n(?P<body>.*?)^\};", re.M | re.S
)
_MEMBER: Final = re.compile(r"(?:struct )?(\w+) (\w+)(?:\[(\w+)\])?;(?:\s*/\*(.*?)\*/)?", re.S)
_SIZE: Final = re.compile(r"\b([A-Z_]+) = (\d+)\b")
_CONSTANT: Final = re.compile(r"(STREAM_[A-Z_]+) = (\w+),(?:\s*/\*(.*?)\*/)?", re.S)


@dataclass(frozen=True)
class Member:
    """A member of a structure."""

    name: str
    type: str  # as in C
    offset_bytes: int
    text: str


@dataclass(frozen=True)
class Structure:
    """A structure of the stream."""

    name: str
    text: str
    layout: type[ctypes.LittleEndianStructure]
    members: tuple[Member, ...]

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return ctypes.sizeof(self.layout)


@dataclass(frozen=True)
class Constant:
    """A number with a name."""

    name: str
    value: int
    text: str


@dataclass(frozen=True)
class Definition:
    """What stream.h and stream_prices.h define."""

    structures: dict[str, Structure]
    constants: dict[str, Constant]

    def number(self, name: str) -> int:
        """The value of STREAM_<name>."""
        return self.constants[f"STREAM_{name}"].value

    def layout(self, name: str) -> Any:
        """The ctypes structure `struct stream_<name>`."""
        return self.structures[f"stream_{name}"].layout


@cache
def definition() -> Definition:
    """What this version of tlstax writes and reads."""
    return parse(*((_ROOT / path).read_text(encoding="utf-8") for path in _HEADERS))


def parse(*headers: str) -> Definition:
    """The structures and constants of some headers, in which nothing is used before it stands."""
    structures: dict[str, Structure] = {}
    constants: dict[str, Constant] = {}
    sizes: dict[str, int] = {}
    for header in headers:
        sizes |= {name: int(value) for name, value in _SIZE.findall(header)}
        for match in _STRUCT.finditer(header):
            if match["name"] not in _SKIPPED:
                text = _plain(match["text"])
                made = _structure(match["name"], text, match["body"], structures, sizes)
                structures[made.name] = made
        for name, value, text in _CONSTANT.findall(header):
            constants[name] = Constant(name, int(value, 0), _plain(text))
    return Definition(structures, constants)


def _structure(
    name: str, text: str, body: str, known: dict[str, Structure], sizes: dict[str, int]
) -> Structure:
    fields: list[tuple[str, Any]] = []
    parts: list[tuple[str, str, str]] = []
    for kind, member, count, comment in _MEMBER.findall(body):
        of = known[kind].layout if kind in known else _TYPES[kind]
        length = sizes[count] if count in sizes else int(count or 0)
        fields.append((member, of * length if length else of))
        parts.append((member, f"{kind}[{length}]" if length else kind, _plain(comment)))
    layout = type(name, (ctypes.LittleEndianStructure,), {"_fields_": tuple(fields)})
    members = tuple(
        Member(member, kind, getattr(layout, member).offset, words) for member, kind, words in parts
    )
    return Structure(name, text, layout, members)


def _plain(comment: str | None) -> str:
    """A comment without the stars and breaks of its lines."""
    return re.sub(r"\s*\n\s*\*?\s*", " ", comment or "").strip()
