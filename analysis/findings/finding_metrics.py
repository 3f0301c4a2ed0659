# SPDX-License-Identifier: GPL-2.0-only
"""The metrics that findings are judged by: their names, and how each follows from a capture.

Shares are of the time that the server spent on connections (`served`), times are per what their
label says. What is missing in a capture is a metric without a value, and no rule holds on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.classify.wait_causes import WaitTimes
from tlstax.analysis.findings import client_waits, flow_commands, throughout, window_metrics
from tlstax.analysis.findings.client_metrics import add_client
from tlstax.analysis.findings.flow_commands import Windows
from tlstax.analysis.findings.host_metrics import add_cost, add_host, add_replica, add_threads
from tlstax.analysis.findings.library_metrics import add_texts
from tlstax.analysis.findings.metric_labels import COMPUTED, PER_CONNECTION, PER_HANDSHAKE
from tlstax.analysis.findings.outcome_metrics import add_outcomes
from tlstax.analysis.findings.signature_metrics import add_signatures, signatures_of
from tlstax.analysis.findings.window_metrics import (
    CHECKING_PHASES,
    CONNECTING_PHASES,
    RECORD_CRYPTO,
    SAVED_PHASES,
    Blocks,
    Metric,
    Metrics,
    exact,
    ratio,
)
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.units import LEAST_WINDOWS, Floats
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES

_WAITS: Final = (
    "commit", "table_lock", "adaptive_hash", "disk_read", "row_lock", "name_lookup",
    "authentication", "library_lock", "allocator", "latch", "other_servers",
)  # fmt: skip
"""Kinds of waits that have metrics of their own."""


class Awaited(NamedTuple):
    """Waits for the client while connecting: of all units, then of each."""

    per_connection_ns: Floats
    share: Floats
    """Of the served time."""


@dataclass(frozen=True)
class Judged:
    """The metrics of one group, and what turns shares into times."""

    metrics: Metrics
    operation: str
    served_per_operation_ns: float
    block_count: int
    needed_ns: float = 0.0
    """How long a recording like this one must be at least for the rules; 0 if it is long enough."""
    awaited: Awaited | None = None
    uncounted: tuple[str, ...] = ()
    """Metrics that the level of the recording cannot count."""
    interval_ns: float = 0.0
    """How long it must be for intervals instead of ranges; 0 if it is, or if rounds are units."""


def gather(
    part: Group,
    tables: Tables,
    windows: Windows,
    waits: Mapping[int, WaitTimes],
    client_counts: Mapping[int, Counts],
) -> Judged:
    """Every metric of a group."""
    blocks = window_metrics.fill(part, tables, windows, waits)
    served = blocks.sums(*blocks.matching(lambda phase, state: True))
    operation, operations = _operations(part, blocks)
    found: Metrics = {}
    _add_ledger(found, blocks, served, operations)
    _add_connections(found, blocks)
    add_outcomes(found, blocks, served)
    add_texts(found, part, tables, blocks)
    _add_waits(found, blocks)
    add_host(found, blocks)
    add_replica(found, blocks)
    add_threads(found, blocks)
    _add_computing(found, blocks)
    _add_records(found, blocks)
    _add_locks(found, blocks, served)
    add_cost(found, blocks)
    if part.arm == "plaintext":
        count = float(blocks.sums("ended:handshake")[0])
        found["plaintext_handshakes_count"] = exact(count)
        found["plaintext_handshake_share"] = found["handshake_share"]
    add_client(found, part, tables, client_counts)
    per_ns = float(served[0] / operations[0]) if operations[0] else 0.0
    needed_ns = throughout.needed_ns(part, tables)
    interval_ns = 0.0 if part.arm else throughout.needed_ns(part, tables, LEAST_WINDOWS)
    awaited, uncounted = _awaited(blocks, served), flow_commands.uncounted(part, tables)
    judged = (found, operation, per_ns, blocks.count, needed_ns, awaited, uncounted)
    return Judged(*judged, interval_ns)


def _awaited(blocks: Blocks, served: Floats) -> Awaited:
    time_ns = client_waits.awaited_ns(blocks)
    connections = window_metrics.connections_of(blocks)
    return Awaited(ratio(time_ns, connections), np.minimum(1.0, ratio(time_ns, served)))


def _operations(part: Group, blocks: Blocks) -> tuple[str, Floats]:
    """What one operation is, and how many: the driver's, else commands, or connections."""
    if part.runs:
        return part.operation, np.array([float(part.operation_count)])
    commands, connects = blocks.sums("ended:command"), blocks.sums("ended:connect")
    if connects[0] * 3 >= commands[0]:
        return "connection", connects
    return "command", commands


def _add_ledger(found: Metrics, blocks: Blocks, served: Floats, operations: Floats) -> None:
    """Times and shares of what the ledger knows, or splits by samples or stacks of waits.

    The share of CPU time includes its part of the waiting for a CPU, because all CPU time causes
    that wait: with two CPUs for client and server an expensive cipher appears as a queue.
    """
    computed = blocks.sums(*blocks.matching(lambda phase, state: state == "on_cpu"))
    queued = blocks.sums(*blocks.matching(lambda phase, state: state == "runnable"))
    shakes = window_metrics.handshakes_of(blocks)
    connections = window_metrics.connections_of(blocks)
    signs = signatures_of(blocks)
    for name, series in _parts(blocks).items():
        time_ns = blocks.sums(*series)
        per = operations
        if name in PER_HANDSHAKE:
            per = shakes
        if name == "sign":
            time_ns, per = signs.time_ns, signs.signed
        if name in PER_CONNECTION:
            per = connections
        if name == "timer":
            # A block in which no handshake ended is split like all of them together.
            part = ratio(blocks.sums("waited:timer"), blocks.sums("waited"))
            time_ns = time_ns * np.nan_to_num(np.where(np.isnan(part), part[0], part))
        if name == "connecting_network":
            time_ns = np.maximum(0.0, time_ns - client_waits.not_client(blocks))
        if name in ("commit", "other_servers"):
            time_ns = time_ns + _followed(blocks, name)
        with_queue = time_ns
        if name in COMPUTED:
            with_queue = time_ns + ratio(time_ns, computed) * queued
        # Counts of all the time over a sample of the time can exceed the whole by chance.
        found[f"{name}_share"] = blocks.metric(np.minimum(1.0, ratio(with_queue, served)))
        whole = time_ns if len(per) == len(time_ns) else time_ns[:1]
        found[f"{name}_ns"] = blocks.metric(ratio(whole, per))


def _followed(blocks: Blocks, name: str) -> Floats:
    """What waits for the leader of a group of commits adds to the disk, or to other servers.

    Only the leader's stack tells what for, so they are split as leaders and single commits are.
    """
    others, disk = blocks.sums("wait:other_servers"), blocks.sums("wait:commit")
    part = np.nan_to_num(ratio(others, others + disk))
    return (part if name == "other_servers" else 1.0 - part) * blocks.sums("wait:group_commit")


def _parts(blocks: Blocks) -> dict[str, tuple[str, ...]]:
    """The series that each metric of _LEDGER is the sum of."""
    by = blocks.matching
    waits = {name: (f"wait:{name}",) for name in _WAITS}
    return {
        "connecting": by(lambda phase, state: phase in CONNECTING_PHASES),
        "handshake": by(lambda phase, state: phase in HANDSHAKE_PHASES),
        "sign": by(lambda phase, state: (phase, state) == ("sign", "on_cpu")),
        "checking": by(lambda phase, state: phase in CHECKING_PHASES and state == "on_cpu"),
        "unchecked": by(
            lambda phase, state: (
                phase in HANDSHAKE_PHASES and phase not in CHECKING_PHASES and state == "on_cpu"
            )
        ),
        "resumable": by(lambda phase, state: phase in SAVED_PHASES and state == "on_cpu"),
        "connecting_network": by(
            lambda phase, state: phase in CONNECTING_PHASES and state == "blocked_network"
        ),
        "handshake_network": by(
            lambda phase, state: phase in HANDSHAKE_PHASES and state == "blocked_network"
        ),
        "runnable": by(lambda phase, state: state == "runnable"),
        "on_cpu": by(lambda phase, state: state == "on_cpu"),
        "sending": by(lambda phase, state: (phase, state) == ("record_write", "on_cpu")),
        "tde": by(lambda phase, state: phase == "tde"),
        "disk": by(lambda phase, state: state == "blocked_disk"),
        "fetch": ("cpu:elsewhere/provider_fetch", "cpu:record/provider_fetch"),
        "password": ("work:password",),
        "threads": ("work:thread",),
        "record_crypto": tuple(f"cpu:record/{name}" for name in RECORD_CRYPTO),
        "timer": by(lambda phase, state: phase in HANDSHAKE_PHASES and state == "blocked_network"),
        "library_wait": client_waits.in_libraries(blocks),
        "tls": (
            *by(lambda phase, state: phase in HANDSHAKE_PHASES),
            *(f"cpu:record/{name}" for name in (*RECORD_CRYPTO, "tls_protocol")),
        ),
        **waits,
    }


def _add_connections(found: Metrics, blocks: Blocks) -> None:
    connects = window_metrics.connections_of(blocks)
    commands, ends = blocks.sums("ended:command"), blocks.sums("ended:disconnect")
    # The last command of a connection is mostly the one that ends it (COM_QUIT): no query. It has
    # no reply, so that more replies than the other commands show that clients end without it.
    unanswered = commands - blocks.sums("ended:record_write")
    # Whose handshake fails or is given up executes none, and could not be kept open.
    made = np.maximum(0.0, connects - blocks.sums("dense:failure", "dense:abandoned"))
    quits = np.minimum(np.maximum(0.0, ends - connects + made), made)
    quits = np.where(unanswered < 0, quits, np.minimum(quits, unanswered))
    found["commands_per_connection"] = blocks.metric(ratio(commands - quits, made))
    found["handshakes_count"] = exact(
        max(float(blocks.sums(name)[0]) for name in ("all:handshake", "all:records"))
    )
    found["samples_count"] = exact(float(blocks.sums("samples")[0]))
    found["full_share"] = blocks.share("full", "resumed")
    found["births_per_connection"] = blocks.metric(ratio(blocks.sums("births"), connects))
    unshaken = 1.0 - ratio(window_metrics.handshakes_of(blocks), blocks.sums("ended:connect"))
    found["unshaken_share"] = blocks.metric(np.maximum(0.0, unshaken))


def _add_waits(found: Metrics, blocks: Blocks) -> None:
    """Waits for the client in the handshake and outside of it; timers; the host."""
    network = {
        place: blocks.sums(
            *blocks.matching(
                lambda phase, state, phases=phases: (  # type: ignore[misc]
                    phase in phases and state == "blocked_network"
                )
            )
        )
        for place, phases in (("handshake", HANDSHAKE_PHASES), ("connect", ("connect",)))
    }
    shakes, connects = window_metrics.handshakes_of(blocks), blocks.sums("ended:connect")
    handshake = ratio(network["handshake"], shakes)
    network["connect"] = np.maximum(0.0, network["connect"] - client_waits.not_client(blocks))
    connect = ratio(network["connect"], connects)
    found["handshake_wait_ns"] = blocks.metric(handshake)
    found["connect_wait_ns"] = blocks.metric(connect)
    own = blocks.sums(
        *blocks.matching(lambda phase, state: phase in HANDSHAKE_PHASES and state == "on_cpu")
    )
    found["handshake_wait_ratio"] = blocks.metric(ratio(network["handshake"], own))
    found["connect_wait_ratio"] = blocks.metric(ratio(connect, handshake))
    found["connecting_wait_ns"] = found["connecting_network_ns"]
    client_waits.add_round_trips(found, blocks, np.maximum(connects, shakes))
    records = blocks.sums("records")
    found["timer_purity"] = blocks.metric(ratio(blocks.sums("timers"), records))
    found["timer_in_parts"] = blocks.share("timers:parts", "timers:whole")
    timers = float(blocks.sums("timers")[0])
    found["timer_count"] = exact(timers)
    acks = ratio(blocks.sums("tcp:delayed"), blocks.sums("records"))
    stalls = ratio(blocks.sums("timers"), records)
    is_read = blocks.sums("tcp:read")[0] > 0
    found["timer_acks"] = blocks.metric(ratio(acks, stalls)) if is_read else Metric(None)


def _add_records(found: Metrics, blocks: Blocks) -> None:
    """Writes to the client, their size, and counters of the server that explain waits."""
    writes, commands = blocks.sums("ended:record_write"), blocks.sums("ended:command")
    # Level flow counts no sends: there is no boundary of records.
    per_command = blocks.metric(ratio(writes, commands))
    found["writes_per_command"] = per_command if writes[0] else Metric(None)
    sent = blocks.sums("counter:Bytes_sent")
    found["bytes_per_write"] = blocks.metric(ratio(sent, writes)) if sent[0] else Metric(None)
    for name, counter in (
        ("row_lock_waits", "Innodb_row_lock_waits"),
        ("flushes_count", "Innodb_os_log_fsyncs"),
    ):
        value = float(blocks.sums(f"counter:{counter}")[0])
        found[name] = exact(value) if value else Metric(None)


def _add_computing(found: Metrics, blocks: Blocks) -> None:
    """The parts of the server's CPU time in handshakes, for comparison with each other."""
    shakes = window_metrics.handshakes_of(blocks)
    fetched = ratio(blocks.sums("cpu:handshake/provider_fetch"), shakes)
    found["fetch_handshake_ns"] = blocks.metric(fetched)
    signs = signatures_of(blocks)
    add_signatures(found, blocks, signs)
    # Both by unit: what slows the host down in one round slows them both down.
    found["fetch_excess_ns"] = blocks.metric(fetched - ratio(signs.time_ns, signs.handshakes))
    found["handshake_own_ns"] = blocks.metric(
        ratio(
            blocks.sums(
                *blocks.matching(
                    lambda phase, state: phase in HANDSHAKE_PHASES and state == "on_cpu"
                )
            ),
            shakes,
        )
    )
    tls = blocks.sums(
        *blocks.matching(lambda phase, state: phase in HANDSHAKE_PHASES and state == "on_cpu"),
        *(f"cpu:record/{name}" for name in (*RECORD_CRYPTO, "tls_protocol")),
    )
    computed = blocks.sums(*blocks.matching(lambda phase, state: state == "on_cpu"))
    fetch = blocks.sums("cpu:elsewhere/provider_fetch", "cpu:record/provider_fetch")
    found["fetch_cpu_share"] = blocks.metric(ratio(fetch, computed))
    found["sign_cpu_share"] = blocks.metric(ratio(blocks.sums("time:sign/on_cpu"), computed))
    found["tls_cpu_share"] = blocks.metric(ratio(tls, computed))


def _add_locks(found: Metrics, blocks: Blocks, served: Floats) -> None:
    """Waits in the server's own lock function, and for rows if a build hides InnoDB's names.

    Stacks cannot distinguish them: the server's counter of the time in row locks (ms) does. Futex
    waits of commands without a class count as row locks only if that counter shows so much time.
    """
    row_ns = float(blocks.sums("counter:Innodb_row_lock_time")[0]) * 1e6
    under_way = blocks.sums("unfinished:blocked_lock", "unfinished:blocked_futex")
    if under_way[0]:  # the counter grows when a wait ends
        row_ns = max(row_ns, float(blocks.sums("level:row_locks")[0]))
    classes = (
        *("commit", "group_commit", "table_lock", "adaptive_hash", "row_lock", "latch"),
        "other_servers",
    )
    named = (f"wait:{kind}" for kind in classes)
    locks = blocks.sums(*blocks.matching(lambda phase, state: state == "blocked_lock"))
    locks = np.maximum(0.0, locks - blocks.sums("locked:named"))
    if not blocks.sums("level:read")[0]:  # no stack and no counter tells what it was
        locks = np.maximum(0.0, locks - blocks.sums("unfinished:blocked_lock"))
    futexes = blocks.sums("time:command/blocked_futex")
    futexes = np.maximum(0.0, futexes - np.maximum(0.0, blocks.sums(*named) - locks))
    rows = blocks.sums("wait:row_lock")
    tables_wait = blocks.sums("wait:table_lock")
    if row_ns >= 0.5 * locks[0] > 0:
        rows = rows + locks
    else:
        tables_wait = tables_wait + locks
        if row_ns >= 0.5 * futexes[0] > 0:
            rows = rows + futexes
    commands = blocks.sums("ended:command", "unfinished")
    for name, time_ns in (("row_lock", rows), ("table_lock", tables_wait)):
        found[f"{name}_share"] = blocks.metric(ratio(time_ns, served))
        mean = blocks.metric(ratio(time_ns, commands))
        found[f"{name}_ns"] = replace(mean, at_least=bool(under_way[0]))
    longest = [blocks.longest_ns.get(state, 0) for state in ("blocked_lock", "blocked_futex")]
    least = replace(exact(max(longest)), at_least=True)
    found["unfinished_ns"] = least if least.value else Metric(None)
