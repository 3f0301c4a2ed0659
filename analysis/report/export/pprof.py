# SPDX-License-Identifier: GPL-2.0-only
"""Write stacks as a pprof profile: `go tool pprof`, Pyroscope and Parca open it.

The format is a gzipped protocol buffer, `perftools.profiles.Profile` of
https://github.com/google/pprof/blob/main/proto/profile.proto. The few field kinds that it needs
are encoded here: variable-length integers and fields with a length (wire types 0 and 2). Each
stack is a sample with two values in ns, CPU time and waiting; its workload is a label. The first
frames are the phase and, for waits, the state. A location has a line for the function of its code
and, before that, one for each function that the compiler inlined there.
"""

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tlstax.analysis.classify.stacks import Folded, FoldedFrame, Path

KINDS: Final = ("on_cpu", "off_cpu")
_TYPES: Final = (("cpu", "nanoseconds"), ("wait", "nanoseconds"))
# Numbers of fields in profile.proto.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING_TABLE = 1, 2, 4, 5, 6
_TIME_NANOS, _DURATION_NANOS, _DEFAULT_SAMPLE_TYPE = 9, 10, 14


def render(graphs: Mapping[str, Folded], time_ns: int, duration_ns: int) -> bytes:
    """All graphs, named WORKLOAD/KIND, in one profile; wall clock of the start, and its length."""
    strings = _Strings()
    locations: dict[Path, int] = {}
    functions: dict[FoldedFrame, int] = {}
    body = bytearray()
    for name, unit in _TYPES:
        body += _message(_SAMPLE_TYPE, _value_type(strings, name, unit))
    for name, folded in graphs.items():
        workload, _, kind = name.rpartition("/")
        for path, value_ns in folded.items():
            ids = [locations.setdefault(one, len(locations) + 1) for one in _locations(path)]
            values = [round(value_ns) if kind == one else 0 for one in KINDS]
            labels = {"workload": workload, "phase": path[0].name, "category": path[-1].category}
            body += _message(_SAMPLE, _sample(strings, ids, values, labels))
    for frames, number in locations.items():
        lines = b"".join(  # Location.line, innermost first, whose field 1 is the function
            _message(4, _integer(1, functions.setdefault(frame, len(functions) + 1)))
            for frame in reversed(frames)
        )
        body += _message(_LOCATION, _integer(1, number) + lines)
    for frame, number in functions.items():
        name_at = strings.at(frame.name)
        body += _message(_FUNCTION, _integer(1, number) + _integer(2, name_at))
    body += _integer(_TIME_NANOS, time_ns) + _integer(_DURATION_NANOS, duration_ns)
    body += _integer(_DEFAULT_SAMPLE_TYPE, strings.at("cpu"))
    for text in strings.texts:
        body += _message(_STRING_TABLE, text.encode(errors="replace"))
    return gzip.compress(bytes(body), mtime=0)


def _locations(path: Path) -> Iterator[Path]:
    """A path's frames leaf first, each with what is inlined into it."""
    end = len(path)
    for at in range(len(path) - 1, -1, -1):
        if not path[at].inlined or at == 0:
            yield path[at:end]
            end = at


class _Strings:
    """The table of strings; the first one is empty by definition."""

    def __init__(self) -> None:
        self._places = {"": 0}

    def at(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def texts(self) -> Iterable[str]:
        return self._places


def _value_type(strings: _Strings, name: str, unit: str) -> bytes:
    return _integer(1, strings.at(name)) + _integer(2, strings.at(unit))


def _sample(
    strings: _Strings, ids: Sequence[int], values: Sequence[int], labels: Mapping[str, str]
) -> bytes:
    """Sample: location ids leaf first, values, labels with a text each."""
    made = _message(1, b"".join(map(_number, ids))) + _message(2, b"".join(map(_number, values)))
    for key, text in labels.items():
        made += _message(3, _integer(1, strings.at(key)) + _integer(2, strings.at(text)))
    return made


def _number(value: int) -> bytes:
    """A variable-length integer: seven bits a byte, lowest first."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _integer(field: int, value: int) -> bytes:
    return _number(field << 3) + _number(max(0, value))


def _message(field: int, content: bytes) -> bytes:
    return _number(field << 3 | 2) + _number(len(content)) + content
