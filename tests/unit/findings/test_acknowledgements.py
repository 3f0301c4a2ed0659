# SPDX-License-Identifier: GPL-2.0-only
"""Delayed acknowledgements on open connections: each piece of the evidence is needed."""

import pytest

from tlstax.analysis.document import explain
from tlstax.analysis.findings.socket_series import add_sockets
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.schema import Metric
from tlstax.tests.unit.findings.loads import MODES, MS, SECONDS, S, found, load, sentence

NAME = "delayed_acknowledgements"
REPLIES = 100
CLIENTS = 4


def stalled(
    mode: str,
    *,
    parts: float = 2.0,
    delayed: float = 1.0,
    quiet: tuple[int, int, int] = (48, 52, 0),
    holding: float | None = None,
    command_ns: int = MS // 10,
) -> Tables:
    """Four connections, each of which executes 25 commands a second.

    `holding`: the share of clients on this host that hold back what they wrote; None: none here.
    """
    rows = load(mode, {("command", "on_cpu"): REPLIES * command_ns}, {"command": REPLIES})
    lengths = {w.window_id: w.end_ns - w.start_ns for w in rows.windows}
    rows.system = [
        row._replace(delayed_ack_count=round(delayed * REPLIES * lengths[row.window_id] / S))
        for row in rows.system
    ]
    values = {
        "open_count": CLIENTS,
        "waiting_sent_count": REPLIES,
        "waiting_received_count": parts * REPLIES,
        **dict(zip(("quiet_short_count", "quiet_timer_count", "quiet_longer_count"), quiet,
                   strict=True)),
    }  # fmt: skip
    if holding is not None:
        values |= {"client_count": CLIENTS, "client_holding_count": holding * CLIENTS}
    rows.metrics = [
        Metric((second + 1) * S, S, "sockets", "connections", name, value)
        for second in SECONDS
        for name, value in values.items()
        if value or name == "open_count"
    ]
    return rows


@MODES
@pytest.mark.parametrize("holding", [None, 1.0])
def test_commands_in_parts_that_wait_for_an_acknowledgement_are_named(
    mode: str, holding: float | None
) -> None:
    rows = stalled(mode, holding=holding)
    assert found(rows)[0] == NAME
    text = sentence(rows, NAME)
    assert "in 2 segments each" in text
    assert "40.0 ms for each command" in text


@MODES
def test_its_size_is_the_wait_and_no_part_of_the_servers_time(mode: str) -> None:
    """4 s of waiting in a second beside 10 ms of work; a command waits 40 ms."""
    line = next(one for one in explain.explain(stalled(mode)).findings if one.id == NAME)
    assert line.size.value_ns == pytest.approx(40 * MS, rel=0.01)
    assert line.share.value == pytest.approx(4.0 / 4.01, rel=0.01)


@MODES
@pytest.mark.parametrize(
    "change",
    [
        {"parts": 1.0},
        {"parts": 1.5},
        {"delayed": 0.5},
        {"delayed": 0.0},
        {"quiet": (100, 0, 0)},
        {"quiet": (80, 20, 0)},
        {"quiet": (20, 20, 60)},
        {"quiet": (38, 38, 24)},
        {"holding": 0.0},
        {"command_ns": 500 * MS},
    ],
    ids=str,
)
def test_nothing_is_said_without_one_piece_of_the_evidence(
    mode: str, change: dict[str, object]
) -> None:
    assert NAME not in found(stalled(mode, **change))  # type: ignore[arg-type]


@MODES
def test_without_the_counters_of_sockets_nothing_is_said(mode: str) -> None:
    rows = stalled(mode)
    rows.metrics = []
    assert NAME not in found(rows)


@MODES
def test_without_the_kernels_count_nothing_is_said(mode: str) -> None:
    rows = stalled(mode)
    rows.system = [row._replace(delayed_ack_count=None) for row in rows.system]
    assert NAME not in found(rows)


@MODES
@pytest.mark.parametrize("later_s", [-60, 60])
def test_readings_outside_of_the_windows_do_not_count(mode: str, later_s: int) -> None:
    rows = stalled(mode)
    rows.metrics = [row._replace(time_ns=row.time_ns + later_s * S) for row in rows.metrics]
    added: list[str] = []
    block_of = {window.window_id: 0 for window in rows.windows}
    add_sockets(lambda name, block, value: added.append(name), block_of, block_of, rows)
    assert {*added} == {"dense:time"}
    assert NAME not in found(rows)
