# SPDX-License-Identifier: GPL-2.0-only
"""What a handshake's time is made of."""

from tlstax.analysis.rows import handshakes
from tlstax.analysis.rows.coverage import cover
from tlstax.analysis.rows.tables import Group
from tlstax.analysis.rows.window_units import WindowUnits
from tlstax.analysis.statistics import units
from tlstax.collectors.capture.schema import Handshake

GROUP = Group("all", "", "", "", (), frozenset({1}))
ALONE = WindowUnits({1: 0}, units.rounds(1))


def test_a_handshake_is_split_into_what_the_server_did_and_waited_for() -> None:
    row = Handshake(
        1, 1, 5, 0, 1000, 500, 100, 390, 10, 300, 40, 60, 0, 0, 3, 2, "success", "TLSv1.3", "A",
        "X25519", 1,
    )  # fmt: skip
    table = handshakes.summarize(GROUP, [row], cover([], ()), ALONE)
    assert {part.name: part.mean.value_ns for part in table.parts} == {
        "sign": 300,
        "keygen": 40,
        "derive": 60,
        "other_cpu": 100,
        "runnable": 100,
        "blocked_network": 390,
        "blocked_other": 10,
    }
    assert table.resumptions == {"resumed": 1}
    assert (table.call_count, table.network_wait_count) == (3, 2)


def test_operations_that_were_not_recorded_are_no_part() -> None:
    """They are in the rest; of handshakes with them and without, those with them are split."""
    known = Handshake(
        1, 1, 5, 0, 1000, -1, -1, -1, -1, 300, 40, 60, 80, 20, 3, 2, "success", "TLSv1.3", "A",
        "X25519", 1,
    )  # fmt: skip
    unknown = known._replace(
        handshake_id=2, end_ns=1200, keygen_ns=-1, derive_ns=-1, verify_ns=-1, certificate_ns=-1
    )

    def split(*rows: Handshake) -> dict[str, float]:
        table = handshakes.summarize(GROUP, rows, cover([], ()), ALONE)
        return {part.name: part.mean.value_ns for part in table.parts}

    whole = {"keygen": 40, "derive": 60, "verify": 80, "certificate": 20}
    assert split(unknown) == {"sign": 300, "rest": 900}
    assert split(unknown, known) == {"sign": 300, **whole, "rest": 500}
    table = handshakes.summarize(GROUP, [unknown, known], cover([], ()), ALONE)
    assert (table.parts_count, table.count) == (1, 2)
