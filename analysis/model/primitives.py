# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a report, part four: the TLS library's own functions (`attach --functions`)."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class PrimitiveTiming:
    """Duration of a call; null where it is not measured."""

    verdict: Annotated[str, "measured, not measurable or counted only"]
    reason: Annotated[str, "why it is not measured; '' where it is"]
    per_call_ns: Annotated[
        float | None, "mean, with what it calls, less the probes' calibrated cost"
    ]
    own_per_call_ns: Annotated[float | None, "part of it outside the other functions of this table"]
    per_byte_ns: Annotated[float | None, "the same divided by its bytes"]


@dataclass(frozen=True)
class PrimitiveSize:
    """Calls of one function with sizes of one power of two."""

    low_bytes: Annotated[int, "least bytes of a call; 0 to 0: none, or unknown"]
    high_bytes: Annotated[int, "most bytes of a call"]
    call_count: Annotated[int, "calls, exact"]
    mean_bytes: Annotated[float | None, "mean bytes of a call; null = unknown"]
    timing: Annotated[PrimitiveTiming, "duration of a call"]


@dataclass(frozen=True)
class PrimitiveLine:
    """One function."""

    name: Annotated[str, "id of the primitive in probes/libraries"]
    category: Annotated[str, "cipher, digest, asymmetric, kdf or rng"]
    unit: Annotated[str, "what one call works on: record, block or call"]
    function: Annotated[str, "symbol"]
    object: Annotated[str, "file that holds it"]
    size_source: Annotated[str, "where the bytes of a call are read; '' = not read"]
    call_count: Annotated[int, "calls, exact"]
    per_command: Annotated[float | None, "calls in commands, their records and idle / commands"]
    per_handshake: Annotated[float | None, "calls in handshakes / handshakes"]
    size_bytes: Annotated[int, "bytes of all calls"]
    mean_bytes: Annotated[float | None, "mean bytes of a call; null = unknown"]
    timing: Annotated[PrimitiveTiming, "duration of a call, over all sizes"]
    probe_ns: Annotated[float, "calls x calibrated cost of its probes"]
    phases: Annotated[dict[str, int], "calls by phase, in vocabulary order"]
    sizes: Annotated[list[PrimitiveSize], "by size, smallest first"]


@dataclass(frozen=True)
class PrimitiveTable:
    """The functions that were counted in one arm."""

    name: Annotated[str, "stable id: driver/scenario/arm, or all"]
    label: Annotated[str, "for people"]
    sentence: Annotated[str, "what counting them cost; shown first"]
    command_count: Annotated[int, "commands that ended"]
    handshake_count: Annotated[int, "handshake records"]
    probe_ns: Annotated[float, "calibrated cost of all probes of functions"]
    server_cpu_ns: Annotated[int, "CPU time of all threads of the server, including the probes"]
    probe_share: Annotated[float | None, "probe_ns / server_cpu_ns"]
    lines: Annotated[list[PrimitiveLine], "by category, most calls first"]
