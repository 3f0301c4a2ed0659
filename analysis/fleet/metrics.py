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

SUMS: Final[Mapping[str, tuple[str, str]]] = {
    "ledger_s": ("recorded_ns / 1e9", ""),
    "handshake_s": ("recorded_ns / 1e9", ""),
    "served_ns": ("served_ns", "ledger"),
    "on_cpu_ns": ("on_cpu_ns", "ledger"),
    "runnable_ns": ("runnable_ns", "ledger"),
    "tls_ns": ("(handshake_cpu_ns + record_crypto_ns)", "ledger"),
    "handshake_ns": ("handshake_cpu_ns", "ledger"),
    "sign_ns": ("sign_cpu_ns", "ledger"),
    "records_ns": ("record_crypto_ns", "ledger"),
    "connections": ("connection_count", "ledger"),
    "commands": ("command_count", "ledger"),
    "handshakes": ("handshake_count", "handshake"),
    "signed": ("(handshake_count - failed_count - resumed_count)", "handshake"),
    "resumed": ("resumed_count", "handshake"),
    "judged": ("(full_count + resumed_count)", "handshake"),
    "failed": ("failed_count", "handshake"),
}
"""A sum by its name: the columns, and by which observed time they are scaled. `ledger_s` and
`handshake_s` are the recorded time of the intervals in which that was observed at all. `signed` are
successful handshakes that are not known to be resumed: not every library tells."""
_OBSERVED: Final = {"ledger_s": "ledger", "handshake_s": "handshake"}


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
    """With less to divide by, there is no value."""
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
           "records_ns", "commands", 1.0, 500, True, float(np.log(1.3))),
    Metric("handshake_cpu_ns", "CPU time per handshake", "ns",
           "handshake_ns", "handshakes", 1.0, 20, True, _FACTOR, ("sign_ns", "resumed_share")),
    Metric("handshake_rate", "handshakes per second", "per_second",
           "handshakes", "handshake_s", 1.0, 1, True, float(np.log(1.5)),
           ("commands_per_connection",), True),
    Metric("handshake_cpus", "CPUs in handshakes", "cpus",
           "handshake_ns", "ledger_s", 1e-9, 1, True, float(np.log(1.5)),
           ("handshake_cpu_ns", "handshake_rate", "sign_ns", "resumed_share",
            "commands_per_connection"), True),
    Metric("tls_cpus", "CPUs in TLS", "cpus",
           "tls_ns", "ledger_s", 1e-9, 1, True, float(np.log(1.5)),
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


def values(metric: Metric, sums: Mapping[str, Floats]) -> Floats:
    """The metric of each row of sums; NaN where there is too little to divide by."""
    below = sums[metric.below]
    enough = below >= metric.least_below
    found: Floats = np.full(below.shape, np.nan)
    np.divide(sums[metric.above] * metric.scale, below, out=found, where=enough)
    return found


def sum_sql(names: tuple[str, ...]) -> str:
    """The scaled sums as SQL expressions over `scaled_sql`, named."""
    return ", ".join(f"SUM({name}) AS {name}" for name in names)


def scaled_sql(names: tuple[str, ...], condition: str) -> str:
    """The rows of `interval` that meet a condition, scaled, as an SQL query."""
    scales = ", ".join(
        f"CASE WHEN {kind}_observed_ns > 0 THEN CAST(recorded_ns AS DOUBLE) "
        f"/ CAST({kind}_observed_ns AS DOUBLE) ELSE 0 END AS {kind}_scale"
        for kind in ("ledger", "handshake")
    )
    scaled = ", ".join(f"{_scaled(name)} AS {name}" for name in names)
    return (
        f"SELECT host, start_wall_ns, {scaled} FROM (SELECT *, {scales} FROM interval "
        f"WHERE {condition}) observed"
    )


def _scaled(name: str) -> str:
    expression, kind = SUMS[name]
    if kind:
        return f"{expression} * {kind}_scale"
    seen = f"{_OBSERVED[name]}_scale > 0"
    return f"CASE WHEN {seen} THEN CAST({expression} AS DOUBLE) ELSE 0 END"


def needed(metrics: tuple[Metric, ...]) -> tuple[str, ...]:
    """The sums that these metrics are made of."""
    return tuple(dict.fromkeys(name for one in metrics for name in (one.above, one.below)))
