# SPDX-License-Identifier: GPL-2.0-only
"""What is exact all the time, or read all the time, over the same time as the ledger's sums.

With a budget the ledger is kept in dense windows. Handshakes are recorded between them as well, and
the counters of host and server run on. Each window belongs to the block of the dense window that
is nearest to it. A count of all windows is scaled to the time of the dense ones before it is
divided by what they measured; a counter of the server grows in a dense window as it does at that
time.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Final

from tlstax.analysis.rows.closure_counts import spans
from tlstax.analysis.rows.coverage import HANDSHAKE_LEVELS
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.analysis.rows.window_units import without_fragments
from tlstax.analysis.statistics.units import LEAST_RANGE
from tlstax.collectors.capture.schema import Status, Window
from tlstax.collectors.capture.vocabulary import HANDSHAKE_SUB_PHASES, LEDGER_LEVELS

Add = Callable[[str, int, float], None]
"""Adds a value to the sum of a name in a block."""
TIMERS_NS: Final = ((39_500_000, 53_000_000), (199_000_000, 213_000_000))
"""Waits of a whole handshake that hold one delayed acknowledgement (40 ms) or one retransmission
(200 ms at least), the timer's tick of up to 4 ms, and some milliseconds of the client's own work.
"""
FLIGHTS: Final = 2
"""Most messages of a client in a handshake, each sent at once (RFC 8446, 2; RFC 5246, 7.3). A
server that waits for the client more often has received one of them in parts.
"""
OLD_VERSIONS: Final = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1")
"""Versions that RFC 8996 and RFC 7568 forbid."""
NEWEST: Final = {"yaSSL": "TLSv1.1"}
"""The newest version of libraries without a current one: each of their handshakes has it at most.
Which one is not recorded there.
"""
MODERN: Final = ("GCM", "CCM", "CHACHA20", "POLY1305")
"""In the names of cipher suites that need no digest beside the cipher."""
SIGNED: Final = ("ECDHE-", "DHE-", "TLS_", "TLS13-")
"""How names of suites begin in whose handshakes the server signs: ephemeral keys, and TLS 1.3."""
COUNTERS: Final = (
    "Bytes_sent",
    "Innodb_row_lock_time",
    "Innodb_row_lock_waits",
    "Innodb_os_log_fsyncs",
)


def blocks_of(
    part: Group, windows: Iterable[Window], block_of: Mapping[int, int]
) -> dict[int, int]:
    """The block of every window of a group: its own, or that of the nearest dense window."""
    mine = sorted((w for w in windows if w.window_id in part.window_ids), key=_middle)
    dense = [window for window in mine if window.window_id in block_of]
    if not dense:
        return {}
    middles = [_middle(window) for window in dense]
    found = {}
    for window in mine:
        at = bisect_left(middles, _middle(window))
        near = min(dense[max(0, at - 1) : at + 1], key=lambda one: _distance(one, window))
        found[window.window_id] = block_of[near.window_id]
    return found


def _middle(window: Window) -> float:
    return (window.start_ns + window.end_ns) / 2


def _distance(one: Window, other: Window) -> tuple[bool, float]:
    return (one.run_id != other.run_id, abs(_middle(one) - _middle(other)))


def needed_ns(part: Group, tables: Tables, least: int = LEAST_RANGE) -> float:
    """The length of a recording that has `least` dense windows, as often; 0 if this one has them.

    Fragments do not count.
    """
    mine = [window for window in tables.windows if window.window_id in part.window_ids]
    dense = len(without_fragments([one for one in mine if one.level in LEDGER_LEVELS]))
    if dense >= least:
        return 0.0
    whole_ns = sum(window.end_ns - window.start_ns for window in mine)
    return whole_ns / max(dense, 1) * least


def add_timers(add: Add, everywhere: Mapping[int, int], tables: Tables) -> None:
    """Handshakes whose wait has the length of a TCP timer; in how many a message came in parts.

    The sum of the waits, by which the ledger's are split, is that of all handshakes, as there.
    The wait of one that was not followed is at most its wall time without its operations, as far
    as these were measured.
    """
    for row in tables.handshakes:
        block = everywhere.get(row.window_id)
        if block is None:
            continue
        wait_ns = row.blocked_network_ns
        if row.on_cpu_ns < 0:
            operations = (max(0, getattr(row, f"{name}_ns")) for name in HANDSHAKE_SUB_PHASES)
            wait_ns = max(0, row.end_ns - row.start_ns - sum(operations))
        is_timer = any(low <= wait_ns <= high for low, high in TIMERS_NS)
        add("waited", block, wait_ns)
        if is_timer:
            add("waited:timer", block, wait_ns)
        if row.outcome != "success":
            continue
        add("records", block, 1)
        if is_timer:
            add("timers", block, 1)
            if row.on_cpu_ns >= 0:
                place = "parts" if row.network_wait_count > FLIGHTS else "whole"
                add(f"timers:{place}", block, 1)


def add_outcomes(add: Add, everywhere: Mapping[int, int], tables: Tables) -> None:
    """Handshakes by outcome with their wall times, and those that agreed on an old version."""
    library = tables.targets[0].tls_library if tables.targets else ""
    newest = NEWEST.get(library, "")
    for row in tables.handshakes:
        block = everywhere.get(row.window_id)
        if block is None:
            continue
        add(f"outcome:{row.outcome}", block, 1)
        add(f"wall:{row.outcome}", block, row.end_ns - row.start_ns)
        if row.outcome == "failure":
            # It signs after it has agreed on version, cipher and group, and with its certificate
            # (RFC 8446, 2; RFC 5246, 7.3).
            add(f"failed:{'signed' if row.sign_ns > 0 else 'hello'}", block, 1)
        version = newest if row.tls_version == "unknown" else row.tls_version
        if row.outcome == "success" and version:
            age = "old" if version in OLD_VERSIONS else "current"
            add(f"version:{age}", block, 1)
            add(f"version:{'1.2' if version == 'TLSv1.2' else 'other'}", block, 1)
        if row.outcome == "success" and row.cipher != "unknown":
            is_cbc = "AES" in row.cipher and not is_modern(row.cipher)
            add(f"cipher:{'cbc' if is_cbc else 'other'}", block, 1)


def is_signed(cipher: str) -> bool:
    """Whether the server signs in a handshake with this suite: not with RSA key exchange."""
    return cipher.startswith(SIGNED)


def is_modern(cipher: str) -> bool:
    """Whether a suite encrypts and authenticates in one pass (RFC 5116); its name tells it."""
    return any(name in cipher for name in MODERN)


def add_host(add: Add, everywhere: Mapping[int, int], tables: Tables) -> None:
    """The host's CPUs and quotas, and the server's own CPU time, in all windows.

    Acknowledgements are those of windows in which handshakes were recorded, and refused connections
    those of windows with a ledger: each is divided by what was recorded there.
    """
    dense = {one.window_id for one in tables.windows if one.level in LEDGER_LEVELS}
    recorded = {one.window_id for one in tables.windows if one.level in HANDSHAKE_LEVELS}
    for row in tables.system:
        block = everywhere.get(row.window_id)
        if block is None:
            continue
        busy_ns = row.cpu_user_ns + row.cpu_system_ns + row.cpu_softirq_ns
        add("host:idle", block, row.cpu_idle_ns)
        add("host:steal", block, row.cpu_steal_ns)
        add("host:all", block, busy_ns + row.cpu_idle_ns + row.cpu_steal_ns)
        add("host:busy", block, busy_ns)
        add("quota:periods", block, row.quota_period_count)
        add("quota:throttled", block, row.throttled_period_count)
        if row.delayed_ack_count is not None and row.window_id in recorded:
            add("tcp:delayed", block, row.delayed_ack_count)
            add("tcp:read", block, 1)
        if row.listen_drop_count is not None and row.window_id in dense:
            add("tcp:dropped", block, row.listen_drop_count)
    for effect in tables.effects:
        block = everywhere.get(effect.window_id)
        if block is not None and effect.target_cpu_ns is not None:
            add("host:target", block, effect.target_cpu_ns)
    for window in tables.windows:
        if window.window_id in everywhere:
            add("host:time", everywhere[window.window_id], window.end_ns - window.start_ns)


def add_stolen(add: Add, block_of: Mapping[int, int], tables: Tables) -> None:
    """The time of the server's threads on CPUs, and what of it the scheduler charges to nobody."""
    for span in spans(tables):
        for window in span.windows:
            block = block_of.get(window.window_id)
            if block is None or not span.observed_ns:
                continue
            part = (window.end_ns - window.start_ns) / span.observed_ns
            add("account:stolen", block, span.row.steal_ns * part)
            add("account:on_cpu", block, (span.row.account_cpu_ns + span.row.steal_ns) * part)


def add_row_locks(add: Add, block_of: Mapping[int, int], part: Group, tables: Tables) -> None:
    """Waits for row locks that are under way, by the server's own count at the nearest reading."""
    levels = _levels(tables.status, "Innodb_row_lock_current_waits")
    if part.runs or not levels:
        return
    times = [time_ns for time_ns, _ in levels]
    for window in tables.windows:
        block = block_of.get(window.window_id)
        if block is None:
            continue
        at = bisect_left(times, _middle(window))
        near = min(levels[max(0, at - 1) : at + 1], key=lambda one: abs(one[0] - _middle(window)))
        add("level:row_locks", block, near[1] * (window.end_ns - window.start_ns))
        add("level:read", block, 1)


def _levels(rows: Iterable[Status], name: str) -> list[tuple[int, int]]:
    """Times of all readings with the value then; one that did not change is not in the capture."""
    times: set[int] = set()
    read: dict[int, int] = {}
    for row in rows:
        times.add(row.time_ns)
        if row.name == name and is_number(row.value):
            read[row.time_ns] = int(row.value)
    found: list[tuple[int, int]] = []
    for time_ns in sorted(times):
        if time_ns in read or found:
            found.append((time_ns, read.get(time_ns, found[-1][1] if found else 0)))
    return found


def add_counters(add: Add, block_of: Mapping[int, int], part: Group, tables: Tables) -> None:
    """How much counters of the server grew in the dense windows."""
    for name in COUNTERS:
        rates = _rates_of_runs(part, tables, name) if part.runs else None
        readings = None if part.runs else _readings(tables.status, name)
        for window in tables.windows:
            block = block_of.get(window.window_id)
            if block is None:
                continue
            rate = (rates or {}).get(window.run_id)
            if readings is not None:
                rate = _rate_at(readings, _middle(window))
            if rate is not None:
                add(f"counter:{name}", block, rate * (window.end_ns - window.start_ns))


def _rates_of_runs(part: Group, tables: Tables, name: str) -> dict[int | None, float]:
    """Growth per ns of each run, whose counters are read before and after it."""
    values: dict[int | None, list[int]] = defaultdict(list)
    for row in tables.status:
        if row.name == name and is_number(row.value):
            values[row.run_id].append(int(row.value))
    lengths: dict[int | None, int] = defaultdict(int)
    for window in tables.windows:
        if window.window_id in part.window_ids:
            lengths[window.run_id] += window.end_ns - window.start_ns
    return {
        run: (max(values[run]) - min(values[run])) / length_ns
        for run, length_ns in lengths.items()
        if len(values.get(run, ())) > 1 and length_ns
    }


def _readings(rows: Iterable[Status], name: str) -> tuple[list[int], list[int]] | None:
    """Times and growth so far; a counter that was set back does not grow."""
    found = _levels(rows, name)
    if len(found) < 2:
        return None
    times, values = zip(*found, strict=True)
    grown = accumulate((max(0, after - before) for before, after in pairwise(values)), initial=0)
    return list(times), list(grown)


def _rate_at(readings: tuple[list[int], list[int]], time_ns: float) -> float:
    """Growth per ns at a time, by the two readings around it, or the nearest two."""
    times, grown = readings
    at = min(max(bisect_left(times, time_ns), 1), len(times) - 1)
    return (grown[at] - grown[at - 1]) / (times[at] - times[at - 1])


def is_number(text: str) -> bool:
    """Whether a value of the server is a plain number."""
    return text.isascii() and text.isdigit() and len(text) < 20
