# SPDX-License-Identifier: GPL-2.0-only
"""What a client offers in its first TLS message: groups, key shares, size.

A listener greets as a MySQL server with TLS does, reads the request for TLS and the ClientHello,
and hangs up. So it sees the bytes that the client's library sends, before any server has a say.
"""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# IANA TLS Supported Groups, spelled as OpenSSL does.
GROUPS: Final = {
    23: "secp256r1",
    24: "secp384r1",
    25: "secp521r1",
    29: "X25519",
    30: "X448",
    256: "ffdhe2048",
    257: "ffdhe3072",
    512: "MLKEM512",
    513: "MLKEM768",
    514: "MLKEM1024",
    4587: "SecP256r1MLKEM768",
    4588: "X25519MLKEM768",
    4589: "SecP384r1MLKEM1024",
}
KEY_SHARE: Final = 51
HANDSHAKE: Final = 22
CLIENT_HELLO: Final = 1
PATIENCE_S: Final = 10.0
# Protocol 10, a MariaDB version; all capabilities of a connection with TLS and a plugin's name.
SALT: Final = b"abcdefgh", b"ijklmnopqrst\0"
CAPABILITIES: Final = 0x000FFFFF & ~0x20  # no compression
GREETING: Final = (
    b"\x0a11.8.0-MariaDB\0"
    + struct.pack("<I", 1)
    + SALT[0]
    + b"\0"
    + struct.pack("<HBHHB", CAPABILITIES & 0xFFFF, 45, 2, CAPABILITIES >> 16, 21)
    + bytes(10)
    + SALT[1]
    + b"mysql_native_password\0"
)


@dataclass(frozen=True)
class ClientHello:
    """One message."""

    size_bytes: int  # with the header of its record
    key_shares: tuple[str, ...]  # groups, in the client's order

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes, key shares {' '.join(self.key_shares) or 'none'}"


def see(connect: Callable[[int], None]) -> ClientHello | None:
    """Call `connect` with a port of 127.0.0.1; the ClientHello that arrives there first, or None.

    `connect` must end by itself when the listener hangs up.
    """
    seen: list[ClientHello] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def answer() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    seen.append(_read(connection))
            except (OSError, EOFError, ValueError):
                return

        thread = threading.Thread(target=answer)
        thread.start()
        connect(listener.getsockname()[1])
        thread.join()
    return seen[0] if seen else None


def _read(connection: socket.socket) -> ClientHello:
    connection.sendall(len(GREETING).to_bytes(3, "little") + b"\0" + GREETING)
    request_header = _receive(connection, 4)
    _receive(connection, int.from_bytes(request_header[:3], "little"))
    header = _receive(connection, 5)
    return parse(header + _receive(connection, int.from_bytes(header[3:], "big")))


def _receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def parse(record: bytes) -> ClientHello:
    """A TLS record that holds a whole ClientHello; ValueError if it is another."""
    if len(record) < 6 or (record[0], record[5]) != (HANDSHAKE, CLIENT_HELLO):
        raise ValueError("this is no ClientHello")
    at = 5 + 4 + 2 + 32  # headers, version, random
    at += 1 + record[at]  # session id
    at += 2 + int.from_bytes(record[at : at + 2], "big")  # suites
    at += 1 + record[at]  # compression
    end = at + 2 + int.from_bytes(record[at : at + 2], "big")
    at += 2
    shares: tuple[str, ...] = ()
    while at + 4 <= end:
        kind, length = struct.unpack_from(">HH", record, at)
        if kind == KEY_SHARE:
            shares = _shares(record[at + 6 : at + 4 + length])
        at += 4 + length
    return ClientHello(len(record), shares)


def _shares(entries: bytes) -> tuple[str, ...]:
    found, at = [], 0
    while at + 4 <= len(entries):
        group, length = struct.unpack_from(">HH", entries, at)
        found.append(GROUPS.get(group, f"0x{group:04x}"))
        at += 4 + length
    return tuple(found)
