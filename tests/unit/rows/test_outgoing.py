# SPDX-License-Identifier: GPL-2.0-only
"""Handshakes that a server makes as a client of another one are none of its clients'."""

from dataclasses import replace

from tlstax.analysis.document import explain
from tlstax.analysis.rows.tables import Tables, by_target
from tlstax.collectors.capture.schema import Handshake, Target
from tlstax.tests.unit.rows.test_closure import recording, verdicts
from tlstax.tests.unit.rows.test_handshake_lanes import shake


def made_by(server: str, rows: list[Handshake]) -> Tables:
    """The healthy recording of a server, with further handshakes."""
    target = Target(1, 7, "/usr/sbin/mariadbd", "", server, "", "OpenSSL", "3", "shared")
    healthy = recording()
    return by_target(replace(healthy, targets=[target], handshakes=[*healthy.handshakes, *rows]))


def test_a_server_s_own_handshakes_are_apart_and_named() -> None:
    asked = [shake(number, 10, side="client") for number in range(500)]
    found = made_by("mariadb", asked)
    assert found.outgoing == asked
    assert found.handshakes == recording().handshakes
    assert verdicts(found)["handshakes"] == verdicts(recording())["handshakes"] == "ok"
    document = explain.explain(found)
    assert document.capture.handshake_count == len(recording().handshakes)
    (gap,) = document.health.gaps
    assert gap.subject == "handshakes with other servers"
    assert gap.consequence.startswith("The server made 500 of them")


def test_a_program_that_is_no_known_server_may_be_a_client() -> None:
    asked = [shake(1, 10, side="client")]
    found = made_by("unknown", asked)
    assert found.handshakes[-1:] == asked
    assert found.outgoing == []
    assert explain.explain(found).health.gaps == []
