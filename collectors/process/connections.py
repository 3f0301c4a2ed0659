# SPDX-License-Identifier: GPL-2.0-only
"""The TCP connections of a process's clients, by the kernel's own socket diagnosis.

It asks as ss(8) does (sock_diag(7), INET_DIAG_INFO), in the network namespace of the process.
Layout of the messages: linux/inet_diag.h, linux/tcp.h (struct tcp_info).
"""

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_SOCK_DIAG, _CLONE_NEWNET = 4, 0x40000000
_BY_FAMILY, _DUMP, _DONE, _ERROR = 20, 0x301, 3, 2
_INFO, _MEMORY_BYTES = 2, 1 << 18
_ESTABLISHED, _LISTEN = 1 << 1, 1 << 10
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI")
_ID: Final = struct.Struct("!HH32x4xQ")
_MESSAGE_BYTES: Final = 72
_AT_ID, _AT_INODE = 4, 68
_ATTRIBUTE: Final = struct.Struct("=HH")
_TCP_INFO: Final = struct.Struct("=44xI4xI44xI32xIIIIII")
"""last_data_sent and last_data_recv (ms), total_retrans, segs_out, segs_in, notsent_bytes,
min_rtt (us), data_segs_in, data_segs_out."""
_NO_RTT: Final = 0xFFFFFFFF
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Connection(NamedTuple):
    """One TCP connection at a reading."""

    cookie: int
    """The kernel's number of the socket, never reused."""
    sent_ms: int
    """Since data were last sent."""
    received_ms: int
    """Since data last came."""
    retransmit_count: int
    out_count: int
    """Segments, with and without data."""
    unsent_bytes: int
    """Written, but not sent yet."""
    data_in_count: int
    data_out_count: int
    least_rtt_us: int = 0
    """The least round trip of the last minutes; 0: none was measured."""


class Connections:
    """The connections of a process's clients. Raises OSError where they cannot be read."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        process = proc / str(pid)
        self._socket = diagnosis(process / "ns/net")
        own = _inodes(process / "fd")
        heard = [_listener(message) for message in self._messages(_LISTEN)]
        self.ports = sorted({port for port, inode in heard if inode in own})
        """TCP ports that the process listens on."""

    def served(self) -> list[Connection]:
        """The process's own ends."""
        asked = (message for port in self.ports for message in self._messages(source=port))
        return [one for message in asked if (one := connection_of(message)) is not None]

    def clients(self) -> list[Connection]:
        """The other ends that are in the same network namespace."""
        asked = (message for port in self.ports for message in self._messages(destination=port))
        return [one for message in asked if (one := connection_of(message)) is not None]

    def close(self) -> None:
        """Close the socket that asks."""
        self._socket.close()

    def _messages(
        self, states: int = _ESTABLISHED, source: int = 0, destination: int = 0
    ) -> Iterator[bytes]:
        """The answers about sockets in these states with these ports (0: any)."""
        for family in (socket.AF_INET, socket.AF_INET6):
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), states)
            body += _ID.pack(source, destination, 0)
            head = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0)
            self._socket.send(head + body)
            yield from _answers(self._socket)


def diagnosis(namespace: Path) -> socket.socket:
    """A socket that asks in a network namespace. Raises OSError.

    A thread of its own enters the namespace: a socket stays in the one that it was made in.
    """
    made: list[socket.socket | OSError] = []

    def work() -> None:
        try:
            descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
            try:
                same = os.fstat(descriptor).st_ino == Path("/proc/thread-self/ns/net").stat().st_ino
                # os.setns came with Python 3.12.
                if not same and _LIBC.setns(descriptor, _CLONE_NEWNET):
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code), str(namespace))
            finally:
                os.close(descriptor)
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
            one = socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG)
            one.settimeout(1.0)
            made.append(one)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _answers(asked: socket.socket) -> Iterator[bytes]:
    """The bodies of all answers to a request. Raises OSError."""
    while True:
        data = asked.recv(_MEMORY_BYTES)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, at)
            body = data[at + _HEADER.size : at + length]
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -int.from_bytes(body[:4], "little", signed=True)
                raise OSError(code, os.strerror(code))
            yield body
            at += length + 3 & ~3


def _listener(message: bytes) -> tuple[int, int]:
    """Port and inode of a listening socket."""
    port, _, _ = _ID.unpack_from(message, _AT_ID)
    return port, int(struct.unpack_from("=I", message, _AT_INODE)[0])


def connection_of(message: bytes) -> Connection | None:
    """What an answer tells of a connection; None without the counters (kernels before 4.6)."""
    _, _, cookie = _ID.unpack_from(message, _AT_ID)
    at = _MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        content = message[at + _ATTRIBUTE.size : at + length]
        if kind == _INFO and len(content) >= _TCP_INFO.size:
            sent, received, again, out, _, unsent, rtt_us, data_in, data_out = (
                _TCP_INFO.unpack_from(content)
            )
            rtt_us = 0 if rtt_us == _NO_RTT else rtt_us
            return Connection(cookie, sent, received, again, out, unsent, data_in, data_out, rtt_us)
        at += max(length, _ATTRIBUTE.size) + 3 & ~3
    return None


def _inodes(folder: Path) -> set[int]:
    """The sockets that a process has open."""
    found = set()
    for entry in folder.iterdir():
        try:
            name = os.readlink(entry)
        except FileNotFoundError:  # closed meanwhile
            continue
        if name.startswith("socket:["):
            found.add(int(name[8:-1]))
    return found
