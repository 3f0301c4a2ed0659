# SPDX-License-Identifier: GPL-2.0-only
"""A client that connects to a MySQL-family server by TLS, is refused, and leaves, COUNT times.

waiting_client.py HOST PORT VERSION COUNT WAIT_MS

It waits so long before whatever it sends, as if it were far away; VERSION is TLSv1_2 or TLSv1_3.
Over a link without a delay its server waits as often and as long as over one with that round trip.
"""

import socket
import ssl
import struct
import sys
import time

CAPABILITIES = 0x200 | 0x800 | 0x8000  # protocol 4.1, TLS, secure connection
REQUEST = struct.pack("<IIB23x", CAPABILITIES, 1 << 24, 45)
BYTES = 1 << 16


def packet(number: int, payload: bytes) -> bytes:
    """A packet of the client/server protocol."""
    return struct.pack("<I", len(payload))[:3] + bytes((number,)) + payload


class Client:
    """One connection."""

    def __init__(self, context: ssl.SSLContext, address: tuple[str, int], wait_s: float) -> None:
        self._wait_s = wait_s
        time.sleep(wait_s)  # the round trip of the connection itself
        self._connection = socket.create_connection(address)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._arrived, self._leaving)

    def run(self) -> None:
        """Greeting, handshake, a log-in that is refused."""
        assert self._connection.recv(BYTES)
        before = packet(1, REQUEST)
        while True:
            try:
                self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._send(before)
                before = b""
                self._receive()
            else:
                break
        self._session.write(packet(2, REQUEST + b"nobody\0\0"))
        self._send(b"")
        self._receive()
        self._connection.close()

    def _send(self, before: bytes) -> None:
        time.sleep(self._wait_s)
        self._connection.sendall(before + self._leaving.read())

    def _receive(self) -> None:
        data = self._connection.recv(BYTES)
        assert data
        self._arrived.write(data)


def main() -> None:
    """Connect."""
    host, port, version, count, wait_ms = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    for _ in range(int(count)):
        Client(context, (host, int(port)), float(wait_ms) / 1000).run()


if __name__ == "__main__":
    main()
