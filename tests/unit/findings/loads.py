# SPDX-License-Identifier: GPL-2.0-only
"""Loads of twelve seconds, computed, as they are recorded in each mode.

All modes have the same load. `always` keeps the ledger all the time (--budget none), `budget` for
a tenth of it, with handshakes recorded between, and `flow` all the time without the boundaries of
records: reading, executing and answering are one phase there.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.schema import (
    Effect,
    Frame,
    Handshake,
    Ledger,
    PhaseCount,
    SampleStack,
    Stack,
    System,
    Target,
    Thread,
    Window,
)
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

S = 1_000_000_000
MS = 1_000_000
PARTS = {
    "always": ((S, "full"),),
    "budget": ((S // 10, "full"), (S, "connection")),
    "flow": ((S, "flow"),),
}
"""A second of each mode: where its windows end, and their levels."""
SECONDS = range(1, 13)
PER_SECOND = 50
Cells = Mapping[tuple[str, str], int]
RECORDS = ("record_read", "record_write")
TOLD = {"record_read": 9_000_001, "record_write": 9_000_002}
"""Frames by which a sample in a command tells that it reads or answers."""


def load(mode: str, cells: Cells, ended: Mapping[str, int], **more: object) -> tables.Tables:
    """Twelve seconds of a steady load; `cells` (ns) and `ended` are per second of time."""
    rows = tables.Tables(
        targets=[Target(1, 9, "mariadbd", "", "mariadb", "11", "OpenSSL", "3.0.19", "shared")],
        threads=[Thread(1, 9, "one", "connection", 0, None)],
    )
    number = 0
    for second in SECONDS:
        at = second * S
        parts = PARTS[mode]
        begin = 0
        for end, level in parts:
            number += 1
            length = end - begin
            rows.windows.append(Window(number, None, at + begin, at + end, 1, level))
            rows.system.append(System(number, length, 0, 0, 0, length, 0, 0))
            rows.effects.append(Effect(number, length // 2, 0, 0, 0))
            if level != "connection":
                rows.ledger += [
                    Ledger(number, 1, phase, state, ns * length // S)
                    for (phase, state), ns in cells.items()
                ]
            rows.phase_counts += [
                PhaseCount(number, phase, count * length // S)
                for phase, count in ended.items()
                if level != "connection" or phase in ("handshake", "connect")
            ]
            begin = end
    return replace(rows, **more)  # type: ignore[arg-type]


def dense(rows: tables.Tables) -> list[Window]:
    return [window for window in rows.windows if window.level in ("full", "flow")]


def shakes(
    rows: tables.Tables, wait_ns: int, sign_ns: int, cpu_ns: int = MS // 2
) -> list[Handshake]:
    """Fifty a second, each in its window; parts are known of those that were followed."""
    made: list[Handshake] = []
    for window in rows.windows:
        length = window.end_ns - window.start_ns
        for at in range(PER_SECOND * length // S):
            end = window.start_ns + (at + 1) * (length // (PER_SECOND * length // S + 1))
            start = end - wait_ns - cpu_ns
            made.append(
                Handshake(
                    len(made), window.window_id, 9, start, end, cpu_ns, 0, wait_ns, 0, sign_ns,
                    0, 0, 0, 0, 2, 2, "success", "TLSv1.3", "TLS_AES_256_GCM_SHA384", "X25519", 0,
                )
            )  # fmt: skip
    return made


def storm(mode: str, *, sign: int = 40_000, wait: int = MS, other: int = MS // 2,
          queries: int = 1) -> tables.Tables:  # fmt: skip
    """Fifty connections a second."""
    per = {
        ("sign", "on_cpu"): sign,
        ("handshake", "on_cpu"): 700_000,
        ("handshake", "blocked_network"): wait,
        ("connect", "blocked_network"): other,
        ("connect", "on_cpu"): 100_000,
        ("command", "on_cpu"): 60_000 * queries,
    }
    ended = {"connect": 1, "handshake": 1, "command": queries + 1, "disconnect": 1}
    rows = load(
        mode,
        {key: PER_SECOND * value for key, value in per.items()},
        {key: PER_SECOND * value for key, value in ended.items()},
    )
    rows.handshakes = shakes(rows, wait, sign)
    return rows


def in_parts(rows: tables.Tables) -> tables.Tables:
    """Messages of clients come in two parts, so that the server waits for each twice."""
    rows.handshakes = [row._replace(network_wait_count=4) for row in rows.handshakes]
    return rows


def resumed_at_times(rows: tables.Tables, signed_of: float) -> tables.Tables:
    """One of so many sessions is new and signs; the others are resumed, evenly in between."""
    signs = [int((at + 1) / signed_of) > int(at / signed_of) for at in range(len(rows.handshakes))]
    rows.handshakes = [
        row._replace(resumed=int(not is_new), sign_ns=row.sign_ns if is_new else 0)
        for row, is_new in zip(rows.handshakes, signs, strict=True)
    ]
    rows.ledger = [
        row._replace(time_ns=round(row.time_ns / signed_of)) if row.phase == "sign" else row
        for row in rows.ledger
    ]
    return rows


def acknowledged(rows: tables.Tables, per_handshake: float) -> tables.Tables:
    lengths = {w.window_id: w.end_ns - w.start_ns for w in rows.windows}
    rows.system = [
        row._replace(
            delayed_ack_count=round(per_handshake * PER_SECOND * lengths[row.window_id] / S)
        )
        for row in rows.system
    ]
    return rows


def as_recorded(rows: tables.Tables) -> tables.Tables:
    """At level flow no row has a phase of records; stacks tell what a sample belongs to."""
    if all(window.level != "flow" for window in rows.windows):
        return rows
    by_stack = {stack.stack_id: stack.frame_ids for stack in rows.stacks}
    names = {"record_read": "SSL_read", "record_write": "SSL_write"}
    samples: list[SampleStack] = []
    told: dict[str, int] = {}
    for row in rows.samples:
        if row.phase in RECORDS:
            ids = f"{by_stack.get(row.user_stack_id or -1, '')} {TOLD[row.phase]}".strip()
            number = told.setdefault(ids, 9_000_000 + len(told))
            row = row._replace(phase="command", user_stack_id=number)
        samples.append(row)
    return replace(
        rows,
        ledger=[
            row._replace(phase="command") if row.phase in RECORDS else row for row in rows.ledger
        ],
        phase_counts=[row for row in rows.phase_counts if row.phase not in RECORDS],
        samples=samples,
        stacks=[*rows.stacks, *(Stack(number, ids) for ids, number in told.items())],
        frames=[
            *rows.frames,
            *(Frame(TOLD[at], "libssl.so.3", "", 0, names[at], 0, "dynsym", "") for at in RECORDS),
        ],
    )


def found(rows: tables.Tables) -> list[str]:
    return [finding.id for finding in explain.explain(as_recorded(rows)).findings]


def sentence(rows: tables.Tables, name: str) -> str:
    made = explain.explain(as_recorded(rows)).findings
    return next(one.sentence for one in made if one.id == name)


MODES = pytest.mark.parametrize("mode", ["always", "budget", "flow"])


def starved(mode: str, runnable: int = 900) -> tables.Tables:
    cells = {("command", "on_cpu"): 300 * MS, ("command", "runnable"): runnable * MS}
    return load(mode, cells, {"command": 1000})


def as_flow(rows: tables.Tables) -> tables.Tables:
    """The same as level `flow` records it: what a command does has one phase."""
    levels = {row.window_id: "flow" for row in rows.windows if row.level in LEDGER_LEVELS}
    windows = [row._replace(level=levels.get(row.window_id, row.level)) for row in rows.windows]
    return as_recorded(replace(rows, windows=windows))
