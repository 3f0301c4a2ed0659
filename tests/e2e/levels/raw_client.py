# SPDX-License-Identifier: GPL-2.0-only
"""A client that speaks MySQL's protocol itself, to send what no client library sends.

Packets go out as they are told: several at once, one after the other without waiting for answers,
or in pieces. Each statement is one that is answered by a single packet.
"""

import contextlib
import ctypes
import hashlib
import socket
import ssl
import struct
from typing import Final

from tlstax.workloads.servers.mariadb import PrivateServer

QUIT, QUERY, PING, PREPARE, EXECUTE, LONG_DATA, CLOSE = 1, 3, 14, 22, 23, 24, 25
LONG_PASSWORD, LOCAL_FILES, PROTOCOL_41, USE_TLS, SECURE_CONNECTION, PLUGIN_AUTH = (
    1,
    1 << 7,
    1 << 9,
    1 << 11,
    1 << 15,
    1 << 19,
)
ERROR, SWITCH, FILE, MORE = 0xFF, 0xFE, 0xFB, 0x01
PACKET_MOST_BYTES: Final = 0xFFFFFF
FULL_AUTHENTICATION: Final = b"\4"
PATIENCE_S: Final = 60
YASSL_CIPHERS: Final = "AES256-SHA:AES128-SHA:@SECLEVEL=0"
UNSAFE_LEGACY_SERVER_CONNECT: Final = 0x4
SSL_KEY_UPDATE_NOT_REQUESTED: Final = 0
OBJECT_TO_SSL_BYTES: Final = 24
"""From a `_ssl._SSLSocket` to its pointer to the SSL: the object's head, and a weak reference."""


def scramble(password: bytes, nonce: bytes) -> bytes:
    """The answer of mysql_native_password."""
    first = hashlib.sha1(password).digest()
    second = hashlib.sha1(nonce + hashlib.sha1(first).digest()).digest()
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def scramble_sha2(password: bytes, nonce: bytes) -> bytes:
    """That of caching_sha2_password."""
    first = hashlib.sha256(password).digest()
    second = hashlib.sha256(hashlib.sha256(first).digest() + nonce)
    return bytes(a ^ b for a, b in zip(first, second.digest(), strict=True))


def packet(content: bytes, number: int = 0) -> bytes:
    """A packet of the protocol. What is as long as one can be goes on in another one."""
    first, rest = content[:PACKET_MOST_BYTES], content[PACKET_MOST_BYTES:]
    done = struct.pack("<I", len(first))[:3] + bytes((number,)) + first
    return done if len(first) < PACKET_MOST_BYTES else done + packet(rest, number + 1)


def query(text: str) -> bytes:
    """A statement."""
    return packet(bytes((QUERY,)) + text.encode())


class RawClient:
    """One authenticated connection."""

    def __init__(self, server: PrivateServer, context: ssl.SSLContext | None) -> None:
        self._account = server.account()
        self._socket = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._login(context)

    def _login(self, context: ssl.SSLContext | None) -> None:
        number, greeting = self._read()
        at = greeting.index(0, 1) + 5
        self.connection_id = int.from_bytes(greeting[at - 4 : at], "little")
        nonce = greeting[at : at + 8]
        at += 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10
        nonce += greeting[at : at + 12]
        plugin = greeting[at + 13 :].split(b"\0")[0] or b"mysql_native_password"
        flags = LONG_PASSWORD | LOCAL_FILES | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH
        if context:
            flags |= USE_TLS
        head = struct.pack("<IIB23x", flags, 1 << 24, 33)
        if context:
            number += 1
            self._socket.sendall(packet(head, number))
            self._socket = context.wrap_socket(self._socket)
        answer = self._answer(plugin, nonce)
        content = head + self._account.user.encode() + b"\0" + bytes((len(answer),)) + answer
        self._socket.sendall(packet(content + plugin + b"\0", number + 1))
        self._authenticate(nonce)

    def _answer(self, plugin: bytes, nonce: bytes) -> bytes:
        is_sha2 = plugin == b"caching_sha2_password"
        return (scramble_sha2 if is_sha2 else scramble)(self._account.password.encode(), nonce)

    def _authenticate(self, nonce: bytes) -> None:
        """Whatever else the server asks before it is content."""
        while True:
            number, said = self._read()
            assert said[0] != ERROR, said
            if said[0] == SWITCH:
                plugin, _, rest = said[1:].partition(b"\0")
                nonce = rest[:20]
                self._socket.sendall(packet(self._answer(plugin, nonce), number + 1))
            elif said == bytes((MORE,)) + FULL_AUTHENTICATION:  # caching_sha2_password, over TLS
                self._socket.sendall(packet(self._account.password.encode() + b"\0", number + 1))
            elif said[0] != MORE:
                return

    def _receive(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            part = self._socket.recv(count - len(got))
            assert part, "the server hung up"
            got += part
        return got

    def _read(self) -> tuple[int, bytes]:
        head = self._receive(4)
        return head[3], self._receive(int.from_bytes(head[:3], "little"))

    def send(self, content: bytes) -> None:
        """In one record, or one segment."""
        self._socket.sendall(content)

    def await_answers(self, count: int) -> None:
        """Of one packet each."""
        for _ in range(count):
            _, said = self._read()
            assert said[0] != ERROR, said

    def ask(self, text: str) -> None:
        """A statement that is answered by one packet."""
        self.send(query(text))
        self.await_answers(1)

    def begin_file(self, table: str) -> None:
        """A statement that reads a file of this client, which is sent in packets from number 2."""
        self.send(query(f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table}"))
        _, said = self._read()
        assert said[0] == FILE, said

    def prepare(self, text: str) -> int:
        """A statement with one parameter and no columns; its number."""
        self.send(packet(bytes((PREPARE,)) + text.encode()))
        _, said = self._read()
        assert said[0] == 0, said
        self.await_answers(2)  # the parameter, and the end of them
        return int.from_bytes(said[1:5], "little")

    def update_key(self) -> None:
        """Have TLS 1.3 announce a new key before what is sent next."""
        library = ctypes.CDLL("libssl.so.3")
        connection = getattr(self._socket, "_sslobj")  # noqa: B009
        own = ctypes.c_void_p.from_address(id(connection) + OBJECT_TO_SSL_BYTES)
        assert library.SSL_key_update(own, SSL_KEY_UPDATE_NOT_REQUESTED) == 1

    @property
    def tls_version(self) -> str | None:
        """None in plaintext."""
        return self._socket.version() if isinstance(self._socket, ssl.SSLSocket) else None

    def hang_up(self) -> None:
        """Without a goodbye of MySQL's; with that of TLS, if it is spoken."""
        if isinstance(self._socket, ssl.SSLSocket):
            with contextlib.suppress(OSError):  # the server answers as it likes
                self._socket.unwrap()
        self._socket.close()

    def break_off(self) -> None:
        """Without any goodbye."""
        self._socket.close()

    def close(self) -> None:
        """Say goodbye."""
        self.send(packet(bytes((QUIT,))))
        self._socket.close()


def tls_context(*, yassl: bool = False) -> ssl.SSLContext:
    """Of a client that takes what the server has, also TLS 1.0."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.options |= UNSAFE_LEGACY_SERVER_CONNECT
    context.set_ciphers(YASSL_CIPHERS if yassl else "DEFAULT:@SECLEVEL=0")
    return context
