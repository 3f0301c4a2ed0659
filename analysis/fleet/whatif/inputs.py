# SPDX-License-Identifier: GPL-2.0-only
"""What the models need of each host: CPU time per second by phase, counts, TLS version.

Sums are scaled by recorded / observed time, as everywhere here, and divided by the recorded
seconds in which the ledger was kept. A value that was not observed is NaN or 0, as noted.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tlstax.analysis.fleet import columns, host_sums, metrics
from tlstax.analysis.fleet.columns import Row
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.host_sums import Facts, Span, Sums
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

TABLES: Final[tuple[type[Row], ...]] = (
    columns.Interval,
    columns.Host,
    columns.Ledger,
    columns.Handshake,
    columns.Stacks,
)
_METRICS: Final = tuple(
    metrics.BY_NAME[name]
    for name in (
        *("sign_ns", "resumed_share", "failed_share", "commands_per_connection"),
        *("handshake_cpu_ns", "handshake_cpus"),
    )
)
_KERNEL: Final = ("kernel_network", "kernel_other")
_NOTHING: Final = 1e-12


@dataclass(frozen=True)
class Inputs:
    """One place for each host, in the order of `hosts`."""

    hosts: list[str]
    facts: Facts
    cpu: dict[str, Floats]
    """CPU time of connections by phase, in ns per second."""
    handshakes: Floats
    """Per second, with any outcome."""
    signed: Floats
    """Per second, successful and not known to be resumed: those that made a signature."""
    seen: Floats
    """Handshakes that were observed while the ledger was kept, not scaled."""
    sign_ns: Floats
    """CPU time of the signature of a handshake that was not resumed; NaN: too few."""
    resumed_share: Floats
    """Of the successful handshakes that tell it; NaN: too few."""
    told_share: Floats
    """Share of the successful handshakes that tell whether they were resumed."""
    connections: Floats
    """Per second."""
    commands: Floats
    """Per second."""
    versions: list[str]
    """TLS version of most successful handshakes; '': none."""
    verify_ns: Floats
    """Wall time in signature checks per successful handshake."""
    kernel: tuple[Floats, Floats]
    """Least and largest share of the kernel in the CPU time of the phase handshake."""

    @property
    def handshake_cpu(self) -> Floats:
        """In ns per second, with the sub-phases."""
        total: Floats = np.sum([self.cpu[name] for name in HANDSHAKE_PHASES], axis=0)
        return total

    @property
    def served_cpu(self) -> Floats:
        """In ns per second, of all threads that serve connections."""
        total: Floats = np.sum(list(self.cpu.values()), axis=0)
        return total

    def fact(self, name: str) -> list[str]:
        """A fact of each host."""
        return [self.facts.get(host, {}).get(name, "") for host in self.hosts]


def read(engine: Engine, span: Span, known: Facts, wanted: set[str]) -> Inputs:
    """The inputs of these hosts. Hosts without any interval in the span have none."""
    sums = host_sums.kept(host_sums.over(engine, span, _METRICS), wanted)
    place = {host: row for row, host in enumerate(sums.hosts)}
    seconds = np.maximum(sums.by_name["ledger_s"], _NOTHING)
    versions, verify_ns = _handshakes(engine, span, place)
    good = sums.by_name["handshakes"] - sums.by_name["failed"]
    return Inputs(
        hosts=sums.hosts,
        facts=known,
        cpu={name: values / seconds for name, values in _ledger(engine, span, place).items()},
        handshakes=sums.by_name["timed"] / seconds,
        signed=sums.by_name["signed"] / seconds,
        seen=sums.by_name[metrics.seen("timed")],
        sign_ns=sums.of(metrics.BY_NAME["sign_ns"]),
        resumed_share=sums.of(metrics.BY_NAME["resumed_share"]),
        told_share=sums.by_name["judged"] / np.maximum(good, _NOTHING),
        connections=sums.by_name["connections"] / seconds,
        commands=sums.by_name["commands"] / seconds,
        versions=versions,
        verify_ns=verify_ns,
        kernel=_kernel_share(engine, span, sums, place),
    )


def _ledger(engine: Engine, span: Span, place: dict[str, int]) -> dict[str, Floats]:
    """CPU time of threads that serve connections, by phase, scaled to the recorded time."""
    scale = "CAST(whole.recorded_ns AS DOUBLE) / CAST(whole.ledger_observed_ns AS DOUBLE)"
    found = engine.query(
        f"SELECT ledger.host AS host, phase, SUM(CAST(ledger.on_cpu_ns AS DOUBLE) * {scale}) "
        "AS on_cpu_ns FROM ledger INNER JOIN interval whole ON ledger.host = whole.host "
        "AND ledger.start_wall_ns = whole.start_wall_ns AND ledger.source_id = whole.source_id "
        f"WHERE {span.condition_of('whole.start_wall_ns')} AND whole.ledger_observed_ns > 0 "
        "GROUP BY ledger.host, phase"
    )
    made: dict[str, Floats] = {name: np.zeros(len(place)) for name in SERVED_PHASES}
    for row in found.to_pylist():
        if row["phase"] in made and row["host"] in place:
            made[row["phase"]][place[row["host"]]] = row["on_cpu_ns"]
    return made


def _handshakes(engine: Engine, span: Span, place: dict[str, int]) -> tuple[list[str], Floats]:
    """The TLS version of most handshakes, and the mean wall time of signature checks.

    NaN where no checks were recorded.
    """
    found = engine.query(
        "SELECT host, tls_version, SUM(CAST(handshake_count AS DOUBLE)) AS shakes, "
        "SUM(CAST(handshake_count - partial_count AS DOUBLE)) AS checked, "
        f"SUM(CAST(verify_ns AS DOUBLE)) AS verify_ns FROM handshake WHERE {span.condition} "
        "AND outcome = 'success' GROUP BY host, tls_version ORDER BY host, shakes, tls_version"
    )
    versions, checked = [""] * len(place), np.zeros(len(place))
    verify_ns: Floats = np.zeros(len(place))
    for row in found.to_pylist():
        if row["host"] in place:
            at = place[row["host"]]
            versions[at] = row["tls_version"]
            checked[at] += row["checked"]
            verify_ns[at] += row["verify_ns"]
    return versions, np.where(checked > 0, verify_ns / np.maximum(checked, 1), np.nan)


def _kernel_share(
    engine: Engine, span: Span, sums: Sums, place: dict[str, int]
) -> tuple[Floats, Floats]:
    """Bounds of the kernel's share by stacks; of hosts without any, all is possible."""
    found = engine.query(
        "SELECT host, category, SUM(CAST(time_ns AS DOUBLE)) AS time_ns FROM stacks "
        f"WHERE {host_sums.in_hours(span).condition} AND kind = 'on_cpu' AND phase = 'handshake' "
        "GROUP BY host, category"
    )
    times: dict[str, Floats] = defaultdict(lambda: np.zeros(len(sums.hosts)))
    row: Any
    for row in found.to_pylist():
        if row["host"] in place:
            kind = "kernel" if row["category"] in _KERNEL else row["category"] and "told"
            times[kind][place[row["host"]]] += row["time_ns"]
    total = times["kernel"] + times["told"] + times[""]
    known = total > 0
    low = np.where(known, times["kernel"] / np.maximum(total, _NOTHING), 0.0)
    high = np.where(known, 1 - times["told"] / np.maximum(total, _NOTHING), 1.0)
    return low, high
