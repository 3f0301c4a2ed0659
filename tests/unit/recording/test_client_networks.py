# SPDX-License-Identifier: GPL-2.0-only
"""The network of a handshake's client: as text, and how many bits of it may be asked for."""

import argparse
import ipaddress
import socket

import pytest

from tlstax.collectors.commands.options import DEFAULT_BITS6, networks
from tlstax.collectors.host.recording_facts import PRIVACY, recording_facts
from tlstax.collectors.recording.handshake_rows import NO_BITS, handshake_row
from tlstax.collectors.recording.programs.ledger_layout import HandshakeRecord, Network

BITS = 24, 48


def record(family: int, address: str = "0.0.0.0", is_server: int = 1) -> HandshakeRecord:
    made = HandshakeRecord(is_server=is_server)
    packed = ipaddress.ip_address(address).packed.ljust(16, b"\0")
    made.network = Network(family, (type(made.network.address))(*packed))
    return made


@pytest.mark.parametrize(
    ("family", "address", "expected"),
    [
        (socket.AF_INET, "192.0.2.0", "192.0.2.0/24"),
        (socket.AF_INET6, "2001:db8:7::", "2001:db8:7::/48"),
        (socket.AF_UNIX, "0.0.0.0", "unix"),
        (0, "0.0.0.0", "unknown"),
    ],
)
def test_a_network_is_a_prefix(family: int, address: str, expected: str) -> None:
    assert handshake_row(1, 1, record(family, address), BITS).client_network == expected


def test_no_row_has_one_unless_asked_for() -> None:
    assert handshake_row(1, 1, record(socket.AF_INET, "192.0.2.0"), NO_BITS).client_network == ""


def test_the_other_end_of_a_servers_own_connection_is_no_client() -> None:
    asked = record(socket.AF_INET, "192.0.2.0", is_server=0)
    assert handshake_row(1, 1, asked, BITS).client_network == ""


def test_the_option_has_bounds() -> None:
    assert (networks("24"), networks("32,128")) == ((24, DEFAULT_BITS6), (32, 128))
    for text in ("", "0", "33", "24,", "24,129", "24,0", ",48", "-1", "24.5", "24,48,56", "²4"):
        with pytest.raises(argparse.ArgumentTypeError):
            networks(text)


def test_a_capture_says_what_it_holds_of_addresses() -> None:
    for further, text in (({}, PRIVACY), ({"client_networks": "24,48"}, "client_networks")):
        (privacy,) = (
            row for row in recording_facts("native", "flow", **further) if row[0] == "privacy"
        )
        assert privacy.value.startswith(PRIVACY)
        assert text in privacy.value
