# SPDX-License-Identifier: GPL-2.0-only
"""Findings: every rule fires on its cause, on nothing less, and never on noise."""

import random
from dataclasses import replace

import pytest

from tlstax.analysis.classify import wait_causes
from tlstax.analysis.document import explain
from tlstax.analysis.findings import finding_metrics
from tlstax.analysis.findings.flow_commands import Windows
from tlstax.analysis.findings.metric_labels import LABELS
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.schema import (
    Effect,
    Frame,
    Handshake,
    Ledger,
    OffcpuStack,
    PhaseCount,
    Run,
    SampleStack,
    Stack,
    Status,
    Target,
    Thread,
    Window,
)

S = 1_000_000_000
MS = 1_000_000
ALL = tables.Group("all", "", "", "", (), frozenset())


# ---- captures ----


def capture(**more: object) -> tables.Tables:
    """Eight windows of a second; one connection thread."""
    rows = tables.Tables(
        targets=[Target(1, 9, "mariadbd", "", "mariadb", "11", "OpenSSL", "3.0.19", "shared")],
        windows=[Window(at, None, at * S, (at + 1) * S) for at in range(1, 9)],
        threads=[Thread(1, 9, "one", "connection", 0, None)],
    )
    return replace(rows, **more)  # type: ignore[arg-type]


def times(cells: dict[tuple[str, str], int], windows: range = range(1, 9)) -> list[Ledger]:
    return [
        Ledger(window, 1, phase, state, time_ns)
        for window in windows
        for (phase, state), time_ns in cells.items()
    ]


def counts(cells: dict[str, int]) -> list[PhaseCount]:
    return [PhaseCount(w, phase, count) for w in range(1, 9) for phase, count in cells.items()]


def found(rows: tables.Tables) -> list[str]:
    return [finding.id for finding in explain.explain(rows).findings]


BUSY = {("command", "on_cpu"): 300 * MS, ("record_write", "on_cpu"): 100 * MS}
COMMANDS = counts({"command": 10_000})


def test_a_starved_server_is_found_and_a_busy_one_is_not() -> None:
    starved = BUSY | {("command", "runnable"): 900 * MS}
    assert found(capture(ledger=times(starved), phase_counts=COMMANDS)) == ["run_queue"]
    busy = BUSY | {("command", "runnable"): 100 * MS}
    assert found(capture(ledger=times(busy), phase_counts=COMMANDS)) == []


def test_one_bad_window_is_no_cause() -> None:
    rows = times(BUSY) + times({("command", "runnable"): 5 * S}, range(1, 2))
    assert found(capture(ledger=rows, phase_counts=COMMANDS)) == []


def test_few_windows_are_no_proof() -> None:
    starved = BUSY | {("command", "runnable"): 900 * MS}
    rows = capture(ledger=times(starved), phase_counts=COMMANDS)
    rows.windows = rows.windows[:3]
    made = explain.explain(rows)
    assert made.findings == []
    assert "record longer" in made.findings_note


def handshakes(wait_ns: int, sign_ns: int, cpu_ns: int, resumed: int | None) -> list[Handshake]:
    return [
        Handshake(
            number, number % 8 + 1, 9, number % 8 * S, number % 8 * S + wait_ns + cpu_ns, cpu_ns, 0,
            wait_ns, 0, sign_ns, 0, 0, 0, 0, 2, 1, "success", "TLSv1.3", "TLS_AES_256_GCM_SHA384",
            "X25519", resumed,
        )
        for number in range(400)
    ]  # fmt: skip


def connecting(
    *, sign: int = 50_000, wait: int = 500_000, other_wait: int = 300_000, commands: int = 1
) -> tables.Tables:
    """Fifty connections a window; times in ns for each."""
    per = {
        ("sign", "on_cpu"): sign,
        ("handshake", "on_cpu"): 800_000,
        ("handshake", "blocked_network"): wait,
        ("connect", "blocked_network"): other_wait,
        ("connect", "on_cpu"): 100_000,
        ("command", "on_cpu"): 50_000 * commands,
    }
    return capture(
        ledger=times({key: 50 * value for key, value in per.items()}),
        phase_counts=counts(
            {"connect": 50, "handshake": 50, "command": 50 * commands + 50, "disconnect": 50}
        ),
        handshakes=handshakes(wait, sign, 800_000 + sign, 0),
        status=[Status(at * S, None, "Ssl_session_cache_mode", "SERVER") for at in range(1, 9)],
    )


def test_the_cause_of_dear_connections_is_named() -> None:
    assert found(connecting())[0] == "connections_not_reused"
    assert found(connecting(sign=4 * MS))[0] == "rsa_key_size"
    assert found(connecting(wait=20 * MS, other_wait=20 * MS))[0] == "round_trips"
    assert found(connecting(wait=9 * MS))[0] == "client_waits", "no client was recorded"
    assert found(connecting(wait=42 * MS))[0] == "constant_pause", "no counter of TCP was read"
    assert found(connecting(wait=42 * MS, other_wait=42 * MS))[0] == "round_trips"
    assert "no_resumption" in found(connecting(commands=12, sign=MS // 2))
    assert "connections_not_reused" not in found(connecting(commands=12, sign=MS // 2))
    assert found(connecting(commands=500)) == []


def test_resumption_that_nobody_offers_is_told_from_one_that_nobody_takes() -> None:
    rows = connecting(commands=12, sign=MS // 2)
    rows.status = [row._replace(value="OFF") for row in rows.status]
    assert "resumption_not_offered" in found(rows)
    rows.status = []
    assert "no_resumption" not in found(rows), "not known"
    rows = connecting(commands=12, sign=MS // 2)
    rows.handshakes = [row._replace(resumed=1) for row in rows.handshakes]
    assert not {"no_resumption", "resumption_not_offered"}.intersection(found(rows))


LOCKS = {
    "table_lock": "MDL_wait::timed_wait(MDL_context_owner*, timespec*)",
    "adaptive_hash": "btr_search_guess_on_hash",
    "commit": "MYSQL_BIN_LOG::trx_group_commit_leader(MYSQL_BIN_LOG::group_commit_entry*)",
    "row_lock": "lock_wait(que_thr_t*)",
    "latch": "ssux_lock_impl<true>::wr_wait(unsigned int)",
    "other_servers": "Repl_semi_sync_master::wait_after_sync(char const*, unsigned long long)",
}


@pytest.mark.parametrize(
    ("kind", "finding"),
    [*((kind, kind) for kind in LOCKS if kind != "commit"), ("commit", "commit_flush")],
)
def test_locks_and_commits_are_told_by_the_stacks_of_waits(kind: str, finding: str) -> None:
    frames = [Frame(1, "mariadbd", "", 0, LOCKS[kind], 0, "dynsym", "")]
    waits = [OffcpuStack(w, "command", "blocked_futex", 202, 1, None, 9, S) for w in range(1, 9)]
    rows = capture(
        ledger=times(BUSY | {("command", "blocked_futex"): S}),
        phase_counts=COMMANDS,
        frames=frames,
        stacks=[Stack(1, "1")],
        waits=waits,
    )
    assert found(rows) == [finding]
    rows.ledger = times(BUSY | {("command", "blocked_futex"): 20 * MS})
    assert found(rows) == []


@pytest.mark.parametrize("kind", ["table_lock", "other_servers"])
def test_what_a_commit_waits_for_is_not_always_the_disk(kind: str) -> None:
    names = [LOCKS[kind], "ha_commit_trans(THD*, bool)"]
    rows = capture(
        ledger=times(BUSY | {("command", "blocked_futex"): S}),
        phase_counts=COMMANDS,
        frames=[
            Frame(at, "mariadbd", "", 0, name, 0, "dynsym", "") for at, name in enumerate(names, 1)
        ],
        stacks=[Stack(1, "1 2")],
        waits=[OffcpuStack(w, "command", "blocked_futex", 202, 1, None, 9, S) for w in range(1, 9)],
    )
    assert found(rows) == [kind]


def test_a_latch_is_no_lock_of_a_table() -> None:
    """The server's own boundary of it is a lock, like that of a table."""
    rows = capture(
        ledger=times(BUSY | {("command", "blocked_lock"): S}),
        phase_counts=COMMANDS,
        frames=[Frame(1, "mysqld", "", 0, "sync_array_wait_event(sync_array_t*)", 0, "symtab", "")],
        stacks=[Stack(1, "1")],
        waits=[OffcpuStack(w, "command", "blocked_lock", 202, 1, None, 9, S) for w in range(1, 9)],
    )
    assert found(rows) == ["latch"]


def test_row_locks_of_builds_without_names_are_told_by_the_counter() -> None:
    cells = BUSY | {("command", "blocked_futex"): S}
    status = [Status(at * S, None, "Innodb_row_lock_time", str(1000 * at)) for at in range(1, 9)]
    assert found(capture(ledger=times(cells), phase_counts=COMMANDS, status=status)) == ["row_lock"]
    assert found(capture(ledger=times(cells), phase_counts=COMMANDS)) == [], "a futex says little"


def test_pages_from_disk_and_their_decryption() -> None:
    read = OffcpuStack(1, "command", "blocked_disk", 17, None, None, 9, S)
    waits = [read._replace(window_id=w) for w in range(1, 9)]
    rows = capture(
        ledger=times(BUSY | {("command", "blocked_disk"): S}), phase_counts=COMMANDS, waits=waits
    )
    assert found(rows) == ["disk_reads"]
    reading = rows.ledger
    rows.ledger = reading + times({("tde", "on_cpu"): 700 * MS})
    assert found(rows) == ["tde_reads"]
    often, seldom = range(2, 9), range(1, 2)
    rows.ledger = reading + times({("tde", "on_cpu"): 500 * MS}, often)
    rows.ledger += times({("tde", "on_cpu"): 50 * MS}, seldom)
    assert found(rows) == ["disk_reads"], "what is not certain hides nothing"


def sampled(category_symbol: str, object_name: str, count: int) -> dict[str, list[object]]:
    return {
        "frames": [
            Frame(1, object_name, "", 0, category_symbol, 0, "dynsym", ""),
            Frame(2, "mariadbd", "", 0, "dispatch_command", 0, "dynsym", ""),
        ],
        "stacks": [Stack(1, "1"), Stack(2, "2")],
        "samples": [
            SampleStack(w, phase, -1, stack, None, count)
            for w in range(1, 9)
            for phase, stack in (("record_write", 1), ("command", 2))
        ],
    }


def test_a_cipher_without_hardware_is_found_by_library_cipher_and_cpu() -> None:
    cells = {("record_write", "on_cpu"): 800 * MS, ("command", "on_cpu"): 200 * MS}
    rows = capture(
        ledger=times(cells),
        phase_counts=COMMANDS,
        meta={"cpu_flags": "aes sha_ni"},
        **sampled("AES_encrypt", "libcrypto.so.3", 90),
    )
    assert "cipher_without_hardware" not in found(rows)
    rows.targets = [rows.targets[0]._replace(tls_library="yaSSL", tls_version="")]
    assert "cipher_without_hardware" in found(rows)


def test_fetching_methods_is_the_tax_of_openssl_3_alone() -> None:
    cells = {("record_write", "on_cpu"): 800 * MS, ("command", "on_cpu"): 200 * MS}
    rows = capture(
        ledger=times(cells),
        phase_counts=COMMANDS,
        **sampled("EVP_CIPHER_fetch", "libcrypto.so.3", 90),
    )
    assert found(rows) == ["fetch_tax"]
    rows.targets = [rows.targets[0]._replace(tls_version="1.1.1w")]
    assert found(rows) == []


def test_tiny_records_need_the_bytes_that_were_sent() -> None:
    cells = {("record_write", "on_cpu"): 800 * MS, ("command", "on_cpu"): 200 * MS}
    ended = counts({"command": 100, "record_write": 20_000})
    more = sampled("AES_encrypt", "libcrypto.so.3", 30)
    rows = capture(ledger=times(cells), phase_counts=ended, **more)
    assert found(rows) == [], "how large they are is not known"
    for size, expected in ((900, ["tiny_records"]), (16_000, [])):
        rows.status = [
            Status(at * S, None, "Bytes_sent", str(at * 20_000 * size)) for at in range(1, 10)
        ]
        assert found(rows) == expected


def test_measuring_that_costs_too_much_leads() -> None:
    starved = BUSY | {("command", "runnable"): 900 * MS}
    for probe_ns, expected in ((500 * MS, ["profiler_costs", "run_queue"]), (MS, ["run_queue"])):
        effects = [Effect(w, S, probe_ns, 0, 0) for w in range(1, 9)]
        rows = capture(ledger=times(starved), phase_counts=COMMANDS, effects=effects)
        assert found(rows) == expected


def test_a_plaintext_arm_with_handshakes_leads() -> None:
    runs = [
        Run(at, "pooled", "x", arm, at // 2, at * S, (at + 1) * S, 1, 1, 9000, 9, 9, 9, 9, "{}")
        for at, arm in enumerate(("plaintext", "tls") * 4, start=1)
    ]
    rows = capture(ledger=times(BUSY), phase_counts=COMMANDS, runs=runs)
    rows.windows = [window._replace(run_id=window.window_id) for window in rows.windows]
    assert "plaintext_baseline" not in found(rows)
    rows.phase_counts = rows.phase_counts + counts({"handshake": 3})
    made = explain.explain(rows)
    assert made.findings[0].id == "plaintext_baseline"
    assert made.answer.sentence.startswith("The plaintext baseline was not plaintext")


def test_noise_is_no_cause() -> None:
    """Windows in which now this and now that is large, but nothing in all of them."""
    generator = random.Random(7)
    cells = [
        ("command", "runnable"), ("command", "blocked_lock"), ("command", "blocked_disk"),
        ("connect", "blocked_network"), ("tde", "on_cpu"), ("record_write", "on_cpu"),
    ]  # fmt: skip
    for _ in range(60):
        rows = times({("command", "on_cpu"): 100 * MS})
        for window in range(1, 9):
            key = generator.choice(cells)
            rows.append(Ledger(window, 1, *key, generator.randrange(S)))
        assert found(capture(ledger=rows, phase_counts=COMMANDS)) == []


def test_every_fact_of_a_label_is_gathered_from_some_capture() -> None:
    gathered: set[str] = set()
    for rows in (connecting(), capture(ledger=times(BUSY), phase_counts=COMMANDS)):
        (part,) = tables.groups(rows)
        waits = wait_causes.classify(rows.waits, None)  # type: ignore[arg-type]
        gathered |= finding_metrics.gather(
            part, rows, Windows({}, {}, {}), waits, {}
        ).metrics.keys()
    optional = {name for name in LABELS if name.startswith(("client_", "plaintext_"))}
    assert LABELS.keys() - gathered - optional == set()
