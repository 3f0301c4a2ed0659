# SPDX-License-Identifier: GPL-2.0-only
"""Clients that try a wrong password again and again.

    guesser.py PORT USER THREADS

Over TLS where the server speaks it, with the plug-in that the server asks for: dialog (PAM of
MariaDB) or caching_sha2_password, whose full authentication sends the password itself. Runs alone
(python3 -I); says "ready" when the server has refused the first one.
"""

import socket
import ssl
import struct
import sys
import threading

CLIENT_PROTOCOL_41, CLIENT_SSL, CLIENT_SECURE_CONNECTION = 1 << 9, 1 << 11, 1 << 15
CLIENT_PLUGIN_AUTH = 1 << 19
CAPABILITIES = CLIENT_PROTOCOL_41 | CLIENT_SECURE_CONNECTION | CLIENT_PLUGIN_AUTH
SWITCH, MORE, ERROR = 0xFE, 0x01, 0xFF
FULL_AUTHENTICATION = b"\x04"
SCRAMBLE_BYTES = 32
"""Of caching_sha2_password; what they are does not matter, for they are wrong."""
PASSWORD = b"guessed\0"
PATIENCE_S = 30.0
PLUGIN = "caching_sha2_password"


class Connection:
    """Packets of the protocol: a length of three bytes, a number, and so many bytes."""

    def __init__(self, port: int) -> None:
        """Connect and take the server's greeting."""
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._number = 0
        greeting = self.receive()
        version = greeting.index(b"\0", 1)
        low, high = struct.unpack_from("<H3xH", greeting, version + 14)
        self.speaks_tls = bool((low | high << 16) & CLIENT_SSL)

    def encrypt(self) -> None:
        """Go on over TLS."""
        self.send(struct.pack("<IIB23x", CAPABILITIES | CLIENT_SSL, 1 << 24, 33))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._socket = context.wrap_socket(self._socket)

    def receive(self) -> bytes:
        """The next packet; b"" when the server has left."""
        head = self._exactly(4)
        self._number = head[3] + 1 if head else 0
        return self._exactly(int.from_bytes(head[:3], "little")) if head else b""

    def send(self, body: bytes) -> None:
        """Answer with a packet."""
        head = struct.pack("<I", len(body) | self._number % 256 << 24)
        self._number += 1
        self._socket.sendall(head + body)

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self._socket.recv(count - len(found))
            if not part:
                return b""
            found += part
        return found


def attempt(port: int, user: str) -> None:
    """One connection, from the greeting to the refusal."""
    connection = Connection(port)
    try:
        capabilities = CAPABILITIES
        if connection.speaks_tls:
            connection.encrypt()
            capabilities |= CLIENT_SSL
        scramble = bytes([SCRAMBLE_BYTES]) + b"\1" * SCRAMBLE_BYTES
        connection.send(
            struct.pack("<IIB23x", capabilities, 1 << 24, 33)
            + user.encode() + b"\0" + scramble + PLUGIN.encode() + b"\0"
        )  # fmt: skip
        while (answer := connection.receive()) and answer[0] != ERROR:
            if answer[0] == SWITCH and answer[1:].startswith(PLUGIN.encode()):
                connection.send(scramble[1:])
            elif answer[0] in (SWITCH, MORE) or answer[:1] in (b"\2", b"\4"):
                connection.send(PASSWORD)
            else:
                raise AssertionError(f"the server answered {answer!r}")
    finally:
        connection.close()


def guess(port: int, user: str, refused: threading.Event) -> None:
    """Again and again, until killed."""
    while True:
        try:
            attempt(port, user)
        except (OSError, ssl.SSLError):
            continue
        refused.set()


def main(port: int, user: str, threads: int) -> None:
    """So many clients at once."""
    refused = threading.Event()
    for _ in range(threads):
        threading.Thread(target=guess, args=(port, user, refused), daemon=True).start()
    refused.wait()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
