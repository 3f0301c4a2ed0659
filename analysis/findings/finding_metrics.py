# SPDX-License-Identifier: GPL-2.0-only
"""The metrics that findings are judged by: their names, and how each follows from a capture.

Shares are of the time that the server spent on connections (`served`), times are per what their
label says. What is missing in a capture is a metric without a value, and no rule holds on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tlstax.analysis.classify.composition import Counts
from tlstax.analysis.classify.wait_causes import WaitTimes
from tlstax.analysis.findings import window_metrics
from tlstax.analysis.findings.client_metrics import add_client
from tlstax.analysis.findings.metric_labels import COMPUTED, PER_CONNECTION, PER_HANDSHAKE
from tlstax.analysis.findings.window_metrics import (
    CONNECTING_PHASES,
    RECORD_CRYPTO,
    SAVED_PHASES,
    Blocks,
    Metric,
    Metrics,
    exact,
    growth,
    ratio,
)
from tlstax.analysis.rows.ledger import Totals
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES


@dataclass(frozen=True)
class Judged:
    """The metrics of one group, and what turns shares into times."""

    metrics: Metrics
    operation: str
    served_per_operation_ns: float
    block_count: int


def gather(
    part: Group,
    tables: Tables,
    sums: Mapping[int, Totals],
    counts: Mapping[int, Counts],
    waits: Mapping[int, WaitTimes],
    client_counts: Mapping[int, Counts],
) -> Judged:
    """Every metric of a group."""
    blocks = window_metrics.fill(part, tables, sums, counts, waits)
    served = blocks.sums(*blocks.matching(lambda phase, state: True))
    operation, operations = _operations(part, blocks)
    found: Metrics = {}
    _add_ledger(found, blocks, served, operations)
    _add_connections(found, blocks)
    _add_texts(found, part, tables, blocks)
    _add_waits(found, blocks)
    _add_records(found, part, tables, blocks)
    _add_locks(found, part, tables, blocks, served)
    _add_cost(found, blocks)
    if part.arm == "plaintext":
        count = float(blocks.sums("ended:handshake")[0])
        found["plaintext_handshakes_count"] = exact(count)
        found["plaintext_handshake_share"] = found["handshake_share"]
    if tables.clients is not None:
        add_client(found, part, tables, client_counts)
    per_ns = float(served[0] / operations[0]) if operations[0] else 0.0
    return Judged(found, operation, per_ns, blocks.count)


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
    connections = np.maximum(blocks.sums("ended:connect"), blocks.sums("ended:handshake"))
    for name, series in _parts(blocks).items():
        time_ns = blocks.sums(*series)
        per = operations
        if name in PER_HANDSHAKE:
            per = blocks.sums("ended:handshake")
        elif name in PER_CONNECTION:
            per = connections
        with_queue = time_ns
        if name in COMPUTED:
            with_queue = time_ns + ratio(time_ns, computed) * queued
        found[f"{name}_share"] = blocks.metric(ratio(with_queue, served))
        whole = time_ns if len(per) == len(time_ns) else time_ns[:1]
        found[f"{name}_ns"] = blocks.metric(ratio(whole, per))


def _parts(blocks: Blocks) -> dict[str, tuple[str, ...]]:
    """The series that each metric of _LEDGER is the sum of."""
    by = blocks.matching
    waits = {
        name: (f"wait:{name}",)
        for name in ("commit", "table_lock", "adaptive_hash", "disk_read", "row_lock")
    }
    return {
        "connecting": by(lambda phase, state: phase in CONNECTING_PHASES),
        "handshake": by(lambda phase, state: phase in HANDSHAKE_PHASES),
        "sign": by(lambda phase, state: (phase, state) == ("sign", "on_cpu")),
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
        "record_crypto": tuple(f"cpu:record/{name}" for name in RECORD_CRYPTO),
        "timer": ("timer",),
        "tls": (
            *by(lambda phase, state: phase in HANDSHAKE_PHASES),
            *(f"cpu:record/{name}" for name in (*RECORD_CRYPTO, "tls_protocol")),
        ),
        **waits,
    }


def _add_connections(found: Metrics, blocks: Blocks) -> None:
    connects = np.maximum(blocks.sums("ended:connect"), blocks.sums("ended:handshake"))
    found["commands_per_connection"] = blocks.metric(ratio(blocks.sums("ended:command"), connects))
    shakes = float(blocks.sums("ended:handshake")[0])
    found["handshakes_count"] = exact(shakes)
    samples = float(blocks.sums("samples")[0])
    found["samples_count"] = exact(samples)
    found["full_share"] = blocks.share("full", "resumed")


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
    shakes, connects = blocks.sums("ended:handshake"), blocks.sums("ended:connect")
    handshake = ratio(network["handshake"], shakes)
    connect = ratio(network["connect"], connects)
    found["handshake_wait_ns"] = blocks.metric(handshake)
    found["connect_wait_ns"] = blocks.metric(connect)
    own = blocks.sums(
        *blocks.matching(lambda phase, state: phase in HANDSHAKE_PHASES and state == "on_cpu")
    )
    found["handshake_wait_ratio"] = blocks.metric(ratio(network["handshake"], own))
    found["connect_wait_ratio"] = blocks.metric(ratio(connect, handshake))
    found["connecting_wait_ns"] = found["connecting_network_ns"]
    records = blocks.sums("records")
    found["timer_purity"] = blocks.metric(ratio(blocks.sums("timers"), records))
    timers = float(blocks.sums("timers")[0])
    found["timer_count"] = exact(timers)
    for name in ("idle", "steal"):
        share = ratio(blocks.sums(f"host:{name}"), blocks.sums("host:all"))
        found[f"host_{name}_share"] = blocks.metric(share)


def _add_texts(found: Metrics, part: Group, tables: Tables, blocks: Blocks) -> None:
    """Metrics that are names."""
    target = tables.targets[0] if tables.targets else None
    library = f"{target.tls_library} {target.tls_version}" if target else ""
    suites = window_metrics.names_of(
        row.cipher for row in tables.handshakes if row.window_id in part.window_ids
    )
    mode = window_metrics.last_text(tables, "Ssl_session_cache_mode").upper()
    offered = {"SERVER": "offered", "BOTH": "offered", "OFF": "not offered", "NONE": "not offered"}
    found["tls_library"] = Metric(None, text=library)
    found["cipher"] = Metric(None, text=suites)
    found["session_cache"] = Metric(None, text=offered.get(mode, "unknown"))
    found["experiment"] = Metric(None, text=part.operation)
    found["software_crypto"] = Metric(
        None,
        text="yes" if _is_software(library, suites, tables.meta.get("cpu_flags", "")) else "no",
    )
    crypto = blocks.sums(*(f"cpu:record/{name}" for name in (*RECORD_CRYPTO, "tls_protocol")))
    used = bool(crypto[0] > 0.02 * blocks.sums("time:record_write/on_cpu")[0])
    found["tls_bytes"] = Metric(None, text="yes" if used else "no")


def _is_software(library: str, suites: str, cpu_flags: str) -> bool:
    """Whether records are encrypted or hashed without crypto instructions.

    yaSSL uses none. AES-CBC suites also need SHA-1 or SHA-256 for each record, which only CPUs with
    the SHA extensions have instructions for.
    """
    if library.startswith("yaSSL"):
        return True
    flags = cpu_flags.split()
    if "aes" not in flags:
        return "CHACHA20" not in suites and bool(suites)
    modern = ("GCM", "CCM", "CHACHA20", "POLY1305")
    legacy = [name for name in suites.split(", ") if name and not any(m in name for m in modern)]
    return bool(legacy) and "sha_ni" not in flags


def _add_records(found: Metrics, part: Group, tables: Tables, blocks: Blocks) -> None:
    """Writes to the client, their size, and counters of the server that explain waits."""
    writes, commands = blocks.sums("ended:record_write"), blocks.sums("ended:command")
    found["writes_per_command"] = blocks.metric(ratio(writes, commands))
    sent, reads = growth(part, tables, "Bytes_sent"), _reading_share(part, tables)
    mean = sent / (writes[0] * reads) if sent and writes[0] and reads else None
    # A counter has no interval; it is read once a second, which is accurate to 10 % here.
    found["bytes_per_write"] = (
        Metric(None) if mean is None else Metric(mean, 0.9 * mean, 1.1 * mean)
    )
    for name, counter in (
        ("row_lock_waits", "Innodb_row_lock_waits"),
        ("flushes_count", "Innodb_os_log_fsyncs"),
    ):
        value = growth(part, tables, counter)
        found[name] = Metric(None) if value is None else exact(value)


def _add_locks(found: Metrics, part: Group, tables: Tables, blocks: Blocks, served: Floats) -> None:
    """Waits in the server's own lock function, and for rows if a build hides InnoDB's names.

    Stacks cannot distinguish them: the server's counter of the time in row locks (ms) does. Futex
    waits of commands without a class count as row locks only if that counter shows so much time.
    """
    row_ns = (growth(part, tables, "Innodb_row_lock_time") or 0.0) * 1e6
    named = ("wait:commit", "wait:table_lock", "wait:adaptive_hash", "wait:row_lock")
    locks = blocks.sums(*blocks.matching(lambda phase, state: state == "blocked_lock"))
    locks = np.maximum(0.0, locks - blocks.sums("locked:named"))
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
    for name, time_ns in (("row_lock", rows), ("table_lock", tables_wait)):
        found[f"{name}_share"] = blocks.metric(ratio(time_ns, served))
        found[f"{name}_ns"] = blocks.metric(ratio(time_ns, blocks.sums("ended:command")))


def _reading_share(part: Group, tables: Tables) -> float:
    """The part of the recording between the first and the last reading of the counters."""
    if part.runs:
        return 1.0  # read just before and just after each run
    times = [row.time_ns for row in tables.status if row.name == "Bytes_sent"]
    whole_ns = window_metrics.within(tables.windows, part.window_ids)
    return (max(times) - min(times)) / whole_ns if len(times) > 1 and whole_ns else 0.0


def _add_cost(found: Metrics, blocks: Blocks) -> None:
    target = np.maximum(blocks.sums("cost:target"), blocks.sums("cost:floor"))
    inside = ("cost:probe_ns", "cost:function_ns", "cost:scheduler_ns", "cost:sample_ns")
    found["observer_share"] = blocks.metric(ratio(blocks.sums(*inside), target))
    found["probe_share"] = blocks.metric(ratio(blocks.sums(*inside[:2]), target))
