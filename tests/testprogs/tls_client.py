# SPDX-License-Identifier: GPL-2.0-only
"""A client that connects to a MySQL-family server by TLS, is refused, and leaves, COUNT times.

tls_client.py openssl|gnutls PORT CA_FILE COUNT

It waits for a line on standard input first, so that it can be recorded from its first connection,
and prints the wall time of its own handshakes as JSON. `openssl` is Python's ssl module, `gnutls`
the C library through ctypes.
"""

import ctypes
import json
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from typing import Protocol

CAPABILITIES = 0x200 | 0x800 | 0x8000  # protocol 4.1, TLS, secure connection
GNUTLS_AGAIN = -28
GNUTLS_CLIENT, GNUTLS_CRD_CERTIFICATE, GNUTLS_PEM, GNUTLS_SHUT_WR = 2, 1, 1, 1


class Session(Protocol):
    """A TLS session on a connected socket."""

    def handshake(self) -> None: ...
    def send(self, data: bytes) -> None: ...
    def receive(self) -> bytes: ...
    def close(self) -> None: ...


class PythonSession:
    """Python's own."""

    def __init__(self, connection: socket.socket, ca_file: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(ca_file)
        self._connection = context.wrap_socket(connection, do_handshake_on_connect=False)

    def handshake(self) -> None:
        self._connection.do_handshake()

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def receive(self) -> bytes:
        return self._connection.recv(4096)

    def close(self) -> None:
        self._connection.close()


class GnutlsSession:
    """GnuTLS, which checks the server's certificate within the handshake."""

    def __init__(self, connection: socket.socket, ca_file: str) -> None:
        self._library = library = ctypes.CDLL("libgnutls.so.30")
        self._connection = connection
        self._session, self._credentials = ctypes.c_void_p(), ctypes.c_void_p()
        credentials = ctypes.byref(self._credentials)
        self._check(library.gnutls_certificate_allocate_credentials(credentials))
        found = library.gnutls_certificate_set_x509_trust_file(
            self._credentials, ca_file.encode(), GNUTLS_PEM
        )
        assert found == 1
        self._check(library.gnutls_init(ctypes.byref(self._session), GNUTLS_CLIENT))
        self._check(library.gnutls_set_default_priority(self._session))
        self._check(
            library.gnutls_credentials_set(self._session, GNUTLS_CRD_CERTIFICATE, self._credentials)
        )
        library.gnutls_session_set_verify_cert(self._session, None, 0)
        descriptor = connection.fileno()
        library.gnutls_transport_set_int2(self._session, descriptor, descriptor)

    def handshake(self) -> None:
        self._check(self._library.gnutls_handshake(self._session))

    def send(self, data: bytes) -> None:
        sent = self._library.gnutls_record_send(self._session, data, len(data))
        assert sent == len(data)

    def receive(self) -> bytes:
        room = ctypes.create_string_buffer(4096)
        length = GNUTLS_AGAIN  # once for each session ticket
        while length == GNUTLS_AGAIN:
            length = self._library.gnutls_record_recv(self._session, room, len(room))
        assert length > 0, length
        return room.raw[:length]

    def close(self) -> None:
        self._library.gnutls_bye(self._session, GNUTLS_SHUT_WR)
        self._library.gnutls_deinit(self._session)
        self._library.gnutls_certificate_free_credentials(self._credentials)
        self._connection.close()

    @staticmethod
    def _check(result: int) -> None:
        assert result == 0, result


def packet(number: int, payload: bytes) -> bytes:
    """A packet of the client/server protocol."""
    return struct.pack("<I", len(payload))[:3] + bytes((number,)) + payload


def connect(port: int, make: Callable[[socket.socket], Session]) -> int:
    """One connection; the wall time of its handshake in ns."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert connection.recv(4096)
        request = struct.pack("<IIB23x", CAPABILITIES, 1 << 24, 45)
        connection.sendall(packet(1, request))
        session = make(connection)
        started_ns = time.monotonic_ns()
        session.handshake()
        took_ns = time.monotonic_ns() - started_ns
        session.send(packet(2, request + b"nobody\0\0"))
        assert session.receive()
        session.close()
    return took_ns


def main() -> None:
    """Wait for the line, connect, tell."""
    library, port, ca_file, count = sys.argv[1:]
    if library == "gnutls":
        ctypes.CDLL("libgnutls.so.30")  # mapped before anybody looks
    sys.stdin.readline()

    def make(connection: socket.socket) -> Session:
        if library == "gnutls":
            return GnutlsSession(connection, ca_file)
        return PythonSession(connection, ca_file)

    times_ns = [connect(int(port), make) for _ in range(int(count))]
    print(json.dumps({"handshake_ns": times_ns}))


if __name__ == "__main__":
    main()
