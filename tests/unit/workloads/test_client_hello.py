# SPDX-License-Identifier: GPL-2.0-only
"""Key shares of a ClientHello as it is on the wire, and what a recipe makes of them."""

import socket
import ssl
import struct

import pytest

from tlstax.workloads import client_hello
from tlstax.workloads.client_hello import ClientHello
from tlstax.workloads.matrix import offers

SSL_REQUEST = b"\x20\0\0\1" + struct.pack("<IIB", 0x0A00 | 0x0800, 1 << 24, 45) + bytes(23)


def hello_of(shares: bytes) -> bytes:
    """A record with these entries of the extension key_share, behind one of another kind."""
    extension = struct.pack(">HHH", 51, len(shares) + 2, len(shares)) + shares
    extensions = struct.pack(">HHB", 23, 1, 0) + extension
    body = b"\x03\x03" + bytes(32) + b"\x02id" + struct.pack(">HH", 2, 0x1301) + b"\x01\0"
    body += struct.pack(">H", len(extensions)) + extensions
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake


def share(group: int, length: int) -> bytes:
    return struct.pack(">HH", group, length) + bytes(length)


def test_key_shares_are_named_in_their_order() -> None:
    hello = client_hello.parse(hello_of(share(4588, 1216) + share(29, 32) + share(0x2A2A, 1)))
    assert hello.key_shares == ("X25519MLKEM768", "X25519", "0x2a2a")
    assert hello.size_bytes > 1216


@pytest.mark.parametrize("record", [b"", b"\x15\x03\x03\0\2\2\x28", b"\x16\x03\x03\0\1\2"])
def test_other_records_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match="no ClientHello"):
        client_hello.parse(record)


def test_the_listener_sees_what_a_real_library_offers() -> None:
    context = ssl.create_default_context()
    context.set_ecdh_curve("prime256v1")

    def connect(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            greeting = connection.recv(200)
            assert greeting[4] == 10  # version of the protocol
            connection.sendall(SSL_REQUEST)
            with pytest.raises(OSError, match=r"EOF|reset|closed"):  # the listener hangs up
                context.wrap_socket(connection, server_hostname="localhost")

    hello = client_hello.see(connect)
    assert hello is not None
    assert hello.key_shares == ("secp256r1",)


@pytest.mark.parametrize("sent", [b"", SSL_REQUEST, SSL_REQUEST + b"\x15\x03\x03\0\2\2\x28"])
def test_a_client_that_sends_none_is_told(sent: bytes) -> None:
    def connect(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(sent)

    assert client_hello.see(connect) is None


def test_other_key_shares_than_asked_are_an_objection() -> None:
    two, one = ("X25519MLKEM768", "X25519"), ("X25519",)
    assert offers.objection(ClientHello(1533, two), two) is None
    assert offers.objection(ClientHello(517, one), two) == (
        "its client's ClientHello has 517 bytes, key shares X25519, "
        "and X25519MLKEM768 X25519 are asked for"
    )
    assert "sent no ClientHello" in (offers.objection(None, one) or "")
