# SPDX-License-Identifier: GPL-2.0-only
"""The shape of the answers about many hosts: `tlstax fleet top`, `compare`, `explain`, `whatif`."""

from dataclasses import dataclass, field
from typing import Annotated, Final

from tlstax.analysis.model.tables import PValue

FLEET_VERSION: Final = 1

Bound = Annotated[
    float | None, "bound: of the 95 % interval over hosts, or the range of fewer than 8; or null"
]
HostCount = Annotated[int, "hosts behind it: the unit of every interval here"]
Report = Annotated[str, "link to the host's own report, or ''"]


@dataclass(frozen=True)
class FleetScope:
    """What was asked about."""

    data: Annotated[str, "folder of the data set"]
    tier: Annotated[str, "length of the intervals that were read: 10s, 1m or 1h"]
    engine: Annotated[str, "duckdb, clickhouse or spark"]
    start: Annotated[str, "from, UTC, ISO 8601"]
    end: Annotated[str, "to, exclusive"]
    host_count: HostCount
    left_out: Annotated[
        list[str],
        "files that were not read, and why; hosts with intervals of a longer tier only",
    ]


@dataclass(frozen=True)
class Figure:
    """A number with its bounds over hosts."""

    value: Annotated[float | None, "estimate; null: no host has a value"]
    low: Bound = None
    high: Bound = None
    host_count: HostCount = 0


@dataclass(frozen=True)
class MetricFacts:
    """What is ranked or compared."""

    name: Annotated[str, "id of the metric"]
    label: Annotated[str, "what it is"]
    unit: Annotated[str, "share, ns, per_second, cpus or count"]


@dataclass(frozen=True)
class HostLine:
    """A host in a ranking."""

    host: Annotated[str, "host"]
    cluster: Annotated[str, "cluster, or ''"]
    server: Annotated[str, "server and version"]
    tls_library: Annotated[str, "TLS library with its version"]
    value: Annotated[float, "value of the metric"]
    is_outlier: Annotated[
        bool,
        "further above the other hosts than three times their middle half, and than a change that "
        "counts",
    ]
    report: Report = ""
    low: Annotated[
        float | None,
        "lower end of the 95 % interval where record crypto is estimated by CPU samples, or null",
    ] = None
    high: Annotated[float | None, "its upper end, or null"] = None


@dataclass(frozen=True)
class HostRange:
    """How many hosts have a value in a range."""

    low: Annotated[float, "from, inclusive"]
    high: Annotated[float, "to, exclusive; the last one inclusive"]
    host_count: HostCount


@dataclass(frozen=True)
class FindingLine:
    """A finding, and the hosts that have it."""

    finding: Annotated[str, "id of the rule, see findings.md"]
    host_count: HostCount
    share: Annotated[Figure, "median of its share of the time of connections"]
    hosts: Annotated[list[str], "those with the largest share, at most 5"]


@dataclass(frozen=True)
class QuantileFigure:
    """A quantile of all values of a group together."""

    q: Annotated[float, "0..1"]
    figure: Annotated[Figure, "in ns"]


@dataclass(frozen=True)
class LatencyLine:
    """Wall times of a phase in a group of hosts."""

    group: Annotated[str, "value of the fact that hosts are grouped by"]
    phase: Annotated[str, "phase, or handshake_wall"]
    host_count: HostCount
    count: Annotated[float, "values, scaled to the recorded time"]
    quantiles: Annotated[list[QuantileFigure], "p50, p95 and p99"]


@dataclass(frozen=True)
class FleetTop:
    """Which hosts have most of something."""

    version: Annotated[int, "version of this object"]
    title: Annotated[str, "the question"]
    scope: FleetScope
    sentence: Annotated[str, "the answer in one sentence"]
    metric: MetricFacts
    fleet: Annotated[Figure, "median of the hosts"]
    total: Annotated[float | None, "sum over hosts, of metrics in CPUs or per second; else null"]
    hosts: Annotated[list[HostLine], "the first ones"]
    outliers: Annotated[list[HostLine], "hosts far above the others, at most 50"]
    ranges: Annotated[list[HostRange], "all hosts by their value"]
    findings: Annotated[list[FindingLine], "findings by number of hosts"]
    latencies: Annotated[list[LatencyLine], "by group of hosts, if asked for"] = field(
        default_factory=list
    )


@dataclass(frozen=True)
class MetricChange:
    """A metric on two sides: times, or groups of hosts."""

    metric: MetricFacts
    before: Annotated[float | None, "median of the hosts"]
    after: Annotated[float | None, "median of the hosts"]
    change: Annotated[Figure, "factor after / before; of shares the difference"]
    is_factor: Annotated[bool, "whether the change is a factor"]
    verdict: Annotated[str, "more, less, no difference seen, or no interval"]
    p_value: PValue = None
    is_counting: Annotated[bool, "whether it is larger than what counts for the metric"] = False


@dataclass(frozen=True)
class HostChange:
    """A host that changed: where there are eight or more, beyond what all have in common."""

    host: Annotated[str, "host"]
    cluster: Annotated[str, "cluster, or ''"]
    before: Annotated[float, "median of its periods"]
    after: Annotated[float, "median of its periods"]
    change: Annotated[float, "factor, of shares difference, less the change of all hosts"]
    low: Annotated[float, "bound of its 95 % interval over periods"]
    high: Annotated[float, "bound of its 95 % interval over periods"]
    report: Report = ""


@dataclass(frozen=True)
class ChangeGroup:
    """Hosts or clients that changed in the same way."""

    kind: Annotated[str, "facts (another version), metric or network"]
    sentence: Annotated[str, "what changed, and where"]
    summary: Annotated[str, "the same in a few words"]
    cause: Annotated[str, "what such a change may come from"]
    metric: Annotated[str, "metric that the hosts are named for; '' for facts"]
    host_count: HostCount
    hosts: Annotated[list[str], "all of them"]
    changes: Annotated[list[MetricChange], "of these hosts, marked by false-discovery rate"]
    lines: Annotated[list[HostChange], "the largest changes, at most 50"]


@dataclass(frozen=True)
class FleetComparison:
    """What changed between two times, or differs between two groups."""

    version: Annotated[int, "version of this object"]
    title: Annotated[str, "the question"]
    scope: FleetScope
    before: Annotated[str, "the first side, for people"]
    after: Annotated[str, "the second side"]
    sentence: Annotated[str, "the answer in one sentence"]
    note: Annotated[str, "how differences were judged"]
    metrics: Annotated[list[MetricChange], "of all hosts"]
    groups: Annotated[list[ChangeGroup], "who changed otherwise than all hosts"]


@dataclass(frozen=True)
class PeerLine:
    """A metric of a host among its peers."""

    metric: MetricFacts
    value: Annotated[float | None, "of the host; null: too little was seen"]
    peers: Annotated[Figure, "median of its peers"]
    rank: Annotated[int, "place of the host among those with a value, the largest first; 0 = none"]
    is_outlier: Annotated[
        bool,
        "further from its peers than three times their middle half, and than a change that counts",
    ]


@dataclass(frozen=True)
class PhaseLine:
    """Time of threads that serve connections in one phase, per second of recorded time."""

    phase: Annotated[str, "phase"]
    on_cpu_ns: Annotated[float, "on a CPU, per second"]
    waiting_ns: Annotated[float, "ready or blocked, per second"]


@dataclass(frozen=True)
class HandshakeLine:
    """Handshakes of one kind."""

    outcome: Annotated[str, "success, failure or abandoned"]
    tls_version: Annotated[str, "version"]
    cipher: Annotated[str, "cipher suite"]
    group_name: Annotated[str, "key exchange group"]
    resumption: Annotated[str, "full, resumed or unknown"]
    count: Annotated[int, "handshakes that were seen"]
    mean_ns: Annotated[float | None, "mean wall time; null: not successful"]


@dataclass(frozen=True)
class HostVersion:
    """Facts of a host from a time on."""

    start: Annotated[str, "since when, UTC"]
    facts: Annotated[dict[str, str], "facts by name; later ones hold only what changed"]


@dataclass(frozen=True)
class HostFinding:
    """A finding of one recording."""

    finding: Annotated[str, "id of the rule"]
    sentence: Annotated[str, "the finding"]
    share: Annotated[float, "share of the time of connections"]
    recorded_at: Annotated[str, "hour of the recording, UTC"]


@dataclass(frozen=True)
class NetworkLine:
    """TLS handshakes of the clients of one network with the host."""

    network: Annotated[str, "first bits of their addresses; unix, unknown, or others"]
    count: Annotated[int, "handshakes that were seen, with any outcome"]
    full_count: Annotated[int, "successful ones that were not resumed"]
    resumed_count: Annotated[int, "successful ones that were resumed"]
    failed_count: Annotated[int, "those that failed or were abandoned"]
    never_resumes: Annotated[bool, "none of 20 or more was resumed"]


@dataclass(frozen=True)
class FleetExplanation:
    """One host among its peers."""

    version: Annotated[int, "version of this object"]
    title: Annotated[str, "the question"]
    scope: FleetScope
    host: Annotated[str, "host"]
    peers: Annotated[str, "who its peers are"]
    sentence: Annotated[str, "the answer in one sentence"]
    report: Report
    versions: Annotated[list[HostVersion], "facts in order of time"]
    metrics: Annotated[list[PeerLine], "every metric"]
    findings: Annotated[list[HostFinding], "newest first"]
    phases: Annotated[list[PhaseLine], "most time first"]
    handshakes: Annotated[list[HandshakeLine], "most frequent first"]
    latencies: Annotated[list[LatencyLine], "by phase"]
    networks: Annotated[
        list[NetworkLine], "most handshakes first; empty where no address was recorded"
    ]


@dataclass(frozen=True)
class Saving:
    """CPUs that a change saves (below 0: that it costs), with bounds that cover every model."""

    value: Annotated[float, "middle of the bounds"]
    low: Annotated[float, "bound"]
    high: Annotated[float, "bound"]


@dataclass(frozen=True)
class HostSaving:
    """What a host would save."""

    host: Annotated[str, "host"]
    cluster: Annotated[str, "cluster, or ''"]
    tls_library: Annotated[str, "TLS library with its version"]
    key: Annotated[str, "kind of the present key, by the time of a signature; '' = not needed"]
    now: Annotated[float, "CPU time of connections now, in CPUs"]
    saved: Saving
    report: Report = ""


@dataclass(frozen=True)
class LeftHosts:
    """Hosts of which nothing is predicted."""

    reason: Annotated[str, "why"]
    host_count: Annotated[int, "hosts"]
    cpus: Annotated[float, "CPU time of their connections now, in CPUs"]
    hosts: Annotated[list[str], "those with most of it, at most 5"]


@dataclass(frozen=True)
class FleetForecast:
    """What a change of every host would save."""

    version: Annotated[int, "version of this object"]
    title: Annotated[str, "the question"]
    scope: FleetScope
    sentence: Annotated[str, "the answer in one sentence"]
    wishes: Annotated[list[str], "what is to change"]
    predicted_count: Annotated[int, "hosts that are predicted"]
    unchanged_count: Annotated[int, "hosts that have it already: they save nothing"]
    now: Annotated[float, "CPU time of connections on both now, in CPUs"]
    saved: Annotated[Saving | None, "sum over the predicted hosts; null: there is none"]
    over_hosts: Annotated[
        Saving | None,
        "the same for as many other hosts like these, by resampling; null: fewer than 8",
    ]
    half_width_share: Annotated[
        float | None, "half of the bounds of the sum, as a share of the CPU time after the change"
    ]
    is_wide: Annotated[bool, "this share is above 20 %: no prediction to act on"]
    per_host: Annotated[Figure, "median of the predicted hosts, in CPUs"]
    hosts: Annotated[list[HostSaving], "the first ones, those that change most"]
    left: Annotated[list[LeftHosts], "hosts that are not predicted, by reason"]
    assumptions: Annotated[list[str], "what was taken for granted"]
