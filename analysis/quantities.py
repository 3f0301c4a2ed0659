# SPDX-License-Identifier: GPL-2.0-only
"""How numbers are written in reports: three significant digits, a unit, never a bare number.

Renderers compute nothing; they call these functions on numbers of the document. The charts use
the same rules in assets/format.js; tests/e2e/browser holds the two together.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tlstax.analysis.model.tables import (
    Measure,
)
from tlstax.analysis.statistics.medians import has_interval

NO_BREAK = "\u00a0"
"""Between a number and its unit, so that no line breaks there."""
MINUS = "−"
ABSENT = "–"
"""Stands for a number that was not measured."""
NOTHING = 0.005
"""Less than half of the last digit of the smallest unit: rounding noise, written as 0."""

_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_BYTE_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def process(pid: int, own_pid: int, later: Sequence[int] = ()) -> str:
    """A process: its pid, also in its own pid namespace, and the pids of its `later` starts."""
    inside = f" ({own_pid} in its own namespace)" if own_pid not in (0, pid) else ""
    then = f", then {', '.join(map(str, later))}" if later else ""
    return f"pid{NO_BREAK}{pid}{inside}{then}"


def _decimals(magnitude: float) -> int:
    """Decimals that leave three significant digits of a `magnitude` >= 1."""
    if magnitude >= 99.95:
        return 0
    return 1 if magnitude >= 9.995 else 2


def _fixed(value: float, decimals: int) -> str:
    """`value` with thousands separators and a true minus sign; never a negative zero."""
    text = f"{abs(value):,.{decimals}f}"
    is_zero = not any(digit in "123456789" for digit in text)
    return text if value >= 0 or is_zero else MINUS + text


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The largest of `units` in which `value`, rounded to three digits, is at least 1."""
    for scale, name in units:
        if abs(value) >= scale * 0.9995:
            return scale, name
    return units[-1]


def time(value_ns: float | None) -> str:
    """A duration given in nanoseconds: "381 µs", "2.81 ms"."""
    return _scaled(value_ns, _TIME_UNITS)


def per_byte(value_ns: float | None) -> str:
    """Time for each byte: "0.38 ns/B"."""
    text = time(value_ns)
    return text if text == ABSENT else f"{text}/B"


def size_range(low_bytes: int, high_bytes: int) -> str:
    """Sizes of one power of two, "128 B to 256 B": from the first on, less than the second."""
    if high_bytes <= 0:
        return "no bytes"
    return f"{_whole_size(low_bytes)} to {_whole_size(high_bytes + 1)}"


def _whole_size(value_bytes: int) -> str:
    """A size in the largest unit of which it is a whole number."""
    for scale, name in _BYTE_UNITS:
        if value_bytes >= scale and value_bytes % int(scale) == 0:
            return f"{value_bytes // int(scale):,}{NO_BREAK}{name}"
    return size(value_bytes)


def size(value_bytes: float | None) -> str:
    """A size given in bytes, in binary units: "28.8 MiB"."""
    return _scaled(value_bytes, _BYTE_UNITS)


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None or not math.isfinite(value):
        return ABSENT
    if abs(value) < NOTHING:
        return f"0{NO_BREAK}{units[-1][1]}"
    scale, name = _unit(value, units)
    scaled = value / scale
    decimals = _decimals(abs(scaled))
    if scale == 1.0 and float(value).is_integer():
        decimals = 0
    return f"{_fixed(scaled, decimals)}{NO_BREAK}{name}"


def time_change(value_ns: float | None) -> str:
    """A difference of durations, always with its sign: "+2.43 ms"."""
    text = time(value_ns)
    return f"+{text}" if value_ns is not None and value_ns >= NOTHING else text


def time_interval(
    value_ns: float, low_ns: float | None, high_ns: float | None, unit_count: int | None = None
) -> str:
    """Bounds in the unit and digits of the value: "[2.40, 2.46] ms", of few units "... ms of 4"."""
    if low_ns is None or high_ns is None:
        return ""
    widest = max(abs(value_ns), abs(low_ns), abs(high_ns))
    if widest < NOTHING:
        return ""
    scale, name = _unit(widest, _TIME_UNITS)
    decimals = _decimals(widest / scale)
    low, high = (_fixed(bound / scale, decimals) for bound in (low_ns, high_ns))
    return f"[{low}, {high}]{NO_BREAK}{name}{_of_few(unit_count)}"


def _of_few(unit_count: int | None) -> str:
    """The count of units that are too few for an interval."""
    return "" if has_interval(unit_count) else f"{NO_BREAK}of{NO_BREAK}{unit_count}"


def share(value: float | None) -> str:
    """A share of 1 in per cent; near 0 and 1 with two decimals, as the last ones count there."""
    if value is None or not math.isfinite(value):
        return ABSENT
    percent = value * 100
    exact = percent == round(percent) and (percent in (0, 100))
    decimals = 0 if exact else 2 if abs(percent) < 0.95 or percent >= 99 else 1
    return f"{_fixed(percent, decimals)}{NO_BREAK}%"


def share_interval(low: float | None, high: float | None, unit_count: int | None = None) -> str:
    """The bounds of a share: "[20.4, 23.7] %"."""
    if low is None or high is None:
        return ""
    low_text, high_text = (share(bound).removesuffix(f"{NO_BREAK}%") for bound in (low, high))
    return f"[{low_text}, {high_text}]{NO_BREAK}%{_of_few(unit_count)}"


def count(value: float | None) -> str:
    """A count: "18,234"; a mean of counts keeps two decimals."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return _fixed(value, 0 if float(value).is_integer() else 2)


def three_digits(value: float | None) -> str:
    """A number without a unit, or whose unit its column names: "6,173", "57.3", "1.57"."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return _fixed(value, _decimals(abs(value)))


def ratio(value: float | None) -> str:
    """How many times as much: "7.38 ×"; with two significant digits where it is little."""
    if value is not None and 0 < value < 0.0995:
        return f"{value:.2g}{NO_BREAK}×"
    text = three_digits(value)
    return text if text == ABSENT else f"{text}{NO_BREAK}×"


def number_interval(low: float | None, high: float | None, unit_count: int | None = None) -> str:
    """The bounds of a number without unit: "[6,173, 6,204]"."""
    known = low is not None and high is not None
    return f"[{three_digits(low)}, {three_digits(high)}]{_of_few(unit_count)}" if known else ""


def ratio_interval(low: float | None, high: float | None, unit_count: int | None = None) -> str:
    """The bounds of a ratio: "[7.31 ×, 7.46 ×]"."""
    known = low is not None and high is not None
    return f"[{ratio(low)}, {ratio(high)}]{_of_few(unit_count)}" if known else ""


def evidence(line: Mapping[str, Any]) -> str:
    """The value of a finding's evidence in its unit."""
    value = line["value"]
    if line["unit"] == "text" or value is None:
        return line["text"] or ABSENT
    text = {"ns": time, "share": share, "bytes": size, "count": count, "ratio": ratio}
    return ("≥ " if line["at_least"] else "") + text[line["unit"]](value)


def evidence_interval(line: Mapping[str, Any]) -> str:
    """Its interval, or nothing."""
    low, high = line["low"], line["high"]
    if low is None or high is None or line["value"] is None:
        return ""
    if line["unit"] == "ns":
        return time_interval(line["value"], low, high, line["unit_count"])
    if line["unit"] == "share":
        return share_interval(low, high, line["unit_count"])
    decimals = _decimals(max(abs(low), abs(high)))
    of_few = _of_few(line["unit_count"])
    return f"[{_fixed(low, decimals)}, {_fixed(high, decimals)}]{of_few}"


def offset(value_bytes: int | None) -> str:
    """An offset in a binary: "0x34a20"."""
    return ABSENT if value_bytes is None else f"{value_bytes:#x}"


def fraction(value: float | None) -> str:
    """A ratio close to 1, where the third decimal counts: "1.004"."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return _fixed(value, 3)


def rate(value: float | None) -> str:
    """A number per second, to three digits: "6,173 /s"."""
    text = three_digits(value)
    return text if text == ABSENT else f"{text}{NO_BREAK}/s"


def reading(value: float | None, unit: str) -> str:
    """A value of a series in its unit: "6,173 /s", "1.20 MiB/s", "1.57 CPUs"."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit == "share":
        return share(value)
    if unit == "time_ns":
        return time(value)
    if unit == "bytes_per_second":
        return f"{size(value)}/s"
    if unit == "per_second":
        return rate(value)
    name = {"cpus": f"{NO_BREAK}CPUs"}.get(unit, "")
    return f"{_fixed(value, _decimals(abs(value)))}{name}"


def amount(value: float, name: str) -> str:
    """A number whose unit is in its name, such as `waited_ns total`."""
    if name.endswith("count"):
        return count(value)
    if re.search(r"_ns\b", name):
        return time(value)
    return size(value) if re.search(r"bytes\b", name) else count(value)


def quantile(q: float) -> str:
    """The usual name of a quantile: "p95", "max"."""
    return "max" if q >= 1 else f"p{q * 100:g}"


_UNIT_AFTER_NUMBER = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|%|×|B|[KMG]iB|Hz)\b|%)")
_NAMES = {
    "cpu_count": "CPUs",
    "cpu_flags": "CPU features",
    "cpu_model": "CPU",
    "sample_hz": "samples per second and CPU",
    "tlstax_version": "version of tlstax",
    "kdf_rng": "key derivation, random",
    "on_cpu": "on CPU",
    "off_cpu": "off CPU",
    "tls": "TLS",
    "tls_protocol": "TLS protocol",
    "tde": "encryption at rest",
}


def library(name: str, version: str) -> str:
    """A TLS library with its version: "OpenSSL 3.0.19". Older captures repeat its name in it."""
    if version == "unknown":
        return name
    is_named = any(version.startswith(word) for word in name.split()[:1])
    return version if is_named else f"{name} {version}".strip()


def moment(text: str) -> str:
    """A time of the document, ISO 8601 in UTC, for people: "2026-11-21 06:44:19 UTC"."""
    return text.replace("T", NO_BREAK).replace("+00:00", f"{NO_BREAK}UTC")


def typeset(text: str) -> str:
    """A sentence in which no line breaks between a number and its unit."""
    return _UNIT_AFTER_NUMBER.sub(NO_BREAK, text)


def name(identifier: str) -> str:
    """An identifier for people: "blocked_network" becomes "blocked network"."""
    return _NAMES.get(identifier) or identifier.replace("_", " ")


def plain(text: str) -> str:
    """The same with plain spaces: sentences of the document have them, `typeset` undoes it."""
    return text.replace(NO_BREAK, " ")


def time_text(value_ns: float | None) -> str:
    """`time` in a sentence of the document."""
    return plain(time(value_ns))


def change_text(value_ns: float | None) -> str:
    """`time_change` in a sentence."""
    return plain(time_change(value_ns))


def measure_text(measure: Measure) -> str:
    """A difference with its interval, or the range of few units."""
    if measure.low_ns is None or measure.high_ns is None:
        return f"{change_text(measure.value_ns)}, no interval"
    low, high = change_text(measure.low_ns), change_text(measure.high_ns)
    bounds = "95 %" if has_interval(measure.unit_count) else f"range of {measure.unit_count}"
    return f"{change_text(measure.value_ns)}, {bounds} {low} to {high}"


def unseen_text(measure: Measure) -> str:
    """A difference that was not seen, and the smallest that would have been."""
    smallest = measure.smallest_ns
    would = f"; {time_text(smallest)} would have been seen" if smallest is not None else ""
    return f"{measure_text(measure)}{would}"


def number_text(value: float) -> str:
    """A number in a sentence: whole from 10 on, else with one decimal unless it is 0."""
    return _fixed(value, 0 if abs(value) >= 10 else 1).removesuffix(".0")


def bytes_text(value: float) -> str:
    """A mean number of bytes in a sentence, whole: "1,011 bytes"."""
    return f"{_fixed(value, 0)} bytes"


def share_text(value: float) -> str:
    """A share in a sentence, rounded: one decimal below 10 %, else none; tables have `share`."""
    percent = value * 100
    return f"{_fixed(percent, 1 if abs(percent) < 9.95 else 0)} %"


def factor_text(ratio: float) -> str:
    """What follows "takes": 12 times as long, 3.4 times as long, 27 % longer, 10 % less time."""
    if ratio >= 1.995:
        return f"{_fixed(ratio, 0 if ratio >= 9.95 else 1)} times as long"
    if ratio >= 1:
        return f"{share_text(ratio - 1)} longer"
    return f"{share_text(1 - ratio)} less time"


def listed(items: Sequence[str]) -> str:
    """Items as prose: one, two and three."""
    return " and ".join((", ".join(items[:-1]), items[-1])) if len(items) > 1 else "".join(items)
