# SPDX-License-Identifier: GPL-2.0-only
"""What hosts are ranked and compared by: ratios of sums over the table `interval`.

Sums are scaled by recorded time / observed time of each interval, so that a host whose recorder
looked part of the time counts like one that was watched all the time.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.statistics.units import Floats


class Sum(NamedTuple):
    """A sum over the intervals in which something was observed."""

    parts: tuple[tuple[str, str, float], ...]
    """Columns, by which observed time they are scaled ('' = they are not), and times what."""
    when: str
    """Only intervals in which this was observed count: else a ratio divides by what its other sum
    has not seen."""


def _of(column: str, scaled_by: str, when: str = "", times: float = 1.0) -> Sum:
    return Sum(((column, scaled_by, times),), when or scaled_by)


def _of_handshakes(when: str, **columns: float) -> Sum:
    return Sum(tuple((name, "handshake", times) for name, times in columns.items()), when)


SUMS: Final[Mapping[str, Sum]] = {
    "ledger_s": _of("recorded_ns", "", "ledger", 1e-9),
    "handshake_s": _of("recorded_ns", "", "handshake", 1e-9),
    "record_s": _of("recorded_ns", "", "record", 1e-9),
    "served_ns": _of("served_ns", "ledger"),
    "on_cpu_ns": _of("on_cpu_ns", "ledger", "record"),
    "runnable_ns": _of("runnable_ns", "ledger"),
    "tls_ns": Sum(
        (("handshake_cpu_ns", "ledger", 1.0), ("record_crypto_ns", "record", 1.0)), "record"
    ),
    "handshake_ns": _of("handshake_cpu_ns", "ledger"),
    "sign_ns": _of("sign_cpu_ns", "ledger"),
    "records_ns": _of("record_crypto_ns", "record"),
    "connections": _of("connection_count", "ledger"),
    "commands": _of("command_count", "ledger"),
    "encrypted": _of("command_count", "ledger", "record"),
    "handshakes": _of("handshake_count", "handshake"),
    "timed": _of("handshake_count", "handshake", "ledger"),
    "signed": _of_handshakes("ledger", handshake_count=1, failed_count=-1, resumed_count=-1),
    "resumed": _of("resumed_count", "handshake"),
    "judged": _of_handshakes("handshake", full_count=1, resumed_count=1),
    "failed": _of("failed_count", "handshake"),
}
"""`ledger_s` and its like are the recorded time of the intervals in which that was observed.
`signed` are successful handshakes that are not known to be resumed: not every library tells;
`timed` and `encrypted` are what the CPU time that is divided by them belongs to."""
SEEN: Final = "_seen"
"""Suffix of the same sum as it was observed, not scaled."""


class Metric(NamedTuple):
    """One figure of a host."""

    name: str
    label: str
    unit: str
    """share, ns, per_second, cpus or count, as in `quantities`."""
    above: str
    below: str
    scale: float
    least_below: float
    """With less to divide by, as it was observed, there is no value."""
    is_log: bool
    """Changes are factors; else differences."""
    least_change: float
    """Smaller differences between hosts, or of a host, are not worth a name."""
    follows: tuple[str, ...] = ()
    """Metrics whose change explains a change of this one."""
    is_load: bool = False
    """It changes with the load of the day: no host is named for it unless asked for."""


_FACTOR: Final = float(np.log(1.15))
METRICS: Final = (
    Metric("sign_ns", "CPU time of a signature", "ns",
           "sign_ns", "signed", 1.0, 20, True, _FACTOR),
    Metric("resumed_share", "resumed handshakes", "share",
           "resumed", "judged", 1.0, 20, False, 0.05),
    Metric("failed_share", "failed handshakes", "share",
           "failed", "handshakes", 1.0, 20, False, 0.02),
    Metric("commands_per_connection", "commands per connection", "count",
           "commands", "connections", 1.0, 20, True, float(np.log(1.5))),
    Metric("record_crypto_ns", "record crypto per command", "ns",
           "records_ns", "encrypted", 1.0, 500, True, float(np.log(1.3))),
    Metric("handshake_cpu_ns", "CPU time per handshake", "ns",
           "handshake_ns", "timed", 1.0, 20, True, _FACTOR, ("sign_ns", "resumed_share")),
    Metric("handshake_rate", "handshakes per second", "per_second",
           "handshakes", "handshake_s", 1.0, 1, True, float(np.log(1.5)),
           ("commands_per_connection",), True),
    Metric("handshake_cpus", "CPUs in handshakes", "cpus",
           "handshake_ns", "ledger_s", 1e-9, 1, True, float(np.log(1.5)),
           ("handshake_cpu_ns", "handshake_rate", "sign_ns", "resumed_share",
            "commands_per_connection"), True),
    Metric("tls_cpus", "CPUs in TLS", "cpus",
           "tls_ns", "record_s", 1e-9, 1, True, float(np.log(1.5)),
           ("handshake_cpus", "record_crypto_ns", "handshake_cpu_ns", "handshake_rate", "sign_ns",
            "resumed_share", "commands_per_connection"), True),
    Metric("tls_share", "TLS share of CPU time", "share",
           "tls_ns", "on_cpu_ns", 1.0, 1e8, False, 0.05,
           ("tls_cpus", "handshake_cpus", "record_crypto_ns", "handshake_cpu_ns", "handshake_rate",
            "sign_ns", "resumed_share", "commands_per_connection")),
    Metric("waiting_share", "time waiting for a CPU", "share",
           "runnable_ns", "served_ns", 1.0, 1e8, False, 0.05,
           ("tls_cpus", "handshake_cpus", "handshake_cpu_ns", "handshake_rate", "sign_ns",
            "resumed_share", "commands_per_connection", "record_crypto_ns", "tls_share"), True),
)  # fmt: skip
"""Causes before their consequences."""
BY_NAME: Final = {metric.name: metric for metric in METRICS}


def of_name(name: str) -> Metric:
    """A metric. Raises TlstaxError (USAGE) where there is none of that name."""
    if name not in BY_NAME:
        raise TlstaxError(
            f"there is no metric {name}",
            f"there are {', '.join(BY_NAME)}",
            "Choose one of these",
            ExitCode.USAGE,
        )
    return BY_NAME[name]


def seen(name: str) -> str:
    """The name of a sum as it was observed, not scaled: its own where it is not scaled at all."""
    return f"{name}{SEEN}" if any(scaled_by for _, scaled_by, _ in SUMS[name].parts) else name


def values(metric: Metric, sums: Mapping[str, Floats]) -> Floats:
    """The metric of each row of sums; NaN where too little was observed, or a sum is damaged."""
    below = sums[metric.below]
    enough = sums[seen(metric.below)] >= metric.least_below
    found: Floats = np.full(below.shape, np.nan)
    with np.errstate(all="ignore"):
        np.divide(sums[metric.above] * metric.scale, below, out=found, where=enough)
    return np.where(np.isfinite(found), found, np.nan)


def needed(metrics: tuple[Metric, ...]) -> tuple[str, ...]:
    """The sums that these metrics are made of."""
    return tuple(
        dict.fromkeys(name for one in metrics for name in (one.above, one.below, seen(one.below)))
    )
