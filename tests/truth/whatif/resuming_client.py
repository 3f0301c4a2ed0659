# SPDX-License-Identifier: GPL-2.0-only
"""A client that connects, asks one query and leaves, and resumes a share of its TLS sessions.

It speaks the client/server protocol as far as that takes, because no client library of this host
resumes sessions. Waits for a line on standard input, then runs; prints what it did as JSON.
"""

import hashlib
import json
import socket
import ssl
import sys
import time
from configparser import ConfigParser
from pathlib import Path

SSL, SECURE, PLUGIN_AUTH, PROTOCOL_41 = 0x800, 0x8000, 0x80000, 0x200
CAPABILITIES = PROTOCOL_41 | SECURE | PLUGIN_AUTH | SSL
QUERY, QUIT = b"\x03", b"\x01"


class Connection:
    """One connection: greeting, TLS, authentication."""

    def __init__(self, port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> None:
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket = plain
        greeting, _ = self.read()
        self.salt = _salt(greeting)
        head = CAPABILITIES.to_bytes(4, "little") + (1 << 24).to_bytes(4, "little") + b"\x2d"
        self._head = head + bytes(23)
        self.write(self._head, 1)
        self.tls = context.wrap_socket(plain, session=session)
        self._socket = self.tls

    def log_in(self, user: str, password: str) -> None:
        """mysql_native_password."""
        once = hashlib.sha1(password.encode()).digest()
        twice = hashlib.sha1(once).digest()
        mixed = hashlib.sha1(self.salt + twice).digest()
        proof = bytes(a ^ b for a, b in zip(once, mixed, strict=True))
        text = user.encode() + b"\0" + bytes([len(proof)]) + proof + b"mysql_native_password\0"
        self.write(self._head + text, 2)
        answer, _ = self.read()
        if answer[:1] != b"\0":
            raise RuntimeError(f"refused: {answer!r}")

    def query(self, text: bytes) -> None:
        """A query with one row as its result."""
        self.write(QUERY + text, 0)
        ends = 0
        while ends < 2:
            packet, _ = self.read()
            ends += packet[:1] == b"\xfe" and len(packet) < 9

    def leave(self) -> None:
        """Say so, and close."""
        self.write(QUIT, 0)
        self._socket.close()

    def read(self) -> tuple[bytes, int]:
        """One packet."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head[:3], "little")), head[3]

    def write(self, payload: bytes, number: int) -> None:
        """One packet."""
        self._socket.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise RuntimeError("the server closed the connection")
            data += part
        return data


def _salt(greeting: bytes) -> bytes:
    start = greeting.index(b"\0", 1) + 1 + 4
    first = greeting[start : start + 8]
    second = start + 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10
    return first + greeting[second : second + 12]


def main() -> None:
    """Arguments: port, option file of sysbench, folder of certificates, seconds, share."""
    port, options, folder = int(sys.argv[1]), ConfigParser(), Path(sys.argv[3])
    options.read_string("[all]\n" + Path(sys.argv[2]).read_text())
    values = dict(options["all"])
    seconds, share = float(sys.argv[4]), float(sys.argv[5])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "cacert.pem")
    context.load_cert_chain(folder / "client-cert.pem", folder / "client-key.pem")
    print("ready", flush=True)
    sys.stdin.readline()
    took_ns: list[int] = []
    session, reused, debt = None, 0, 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start_ns = time.monotonic_ns()
        debt += share
        wanted = session if debt >= 1 else None
        debt -= 1 if wanted else 0
        connection = Connection(port, context, wanted)
        connection.log_in(values["mysql-user"], values["mysql-password"])
        connection.query(b"SELECT 1")
        reused += bool(connection.tls.session_reused)
        session = connection.tls.session
        connection.leave()
        took_ns.append(time.monotonic_ns() - start_ns)
    took_ns.sort()
    print(
        json.dumps(
            {
                "operations": len(took_ns),
                "mean_ns": round(sum(took_ns) / len(took_ns)),
                "p95_ns": took_ns[int(0.95 * len(took_ns))],
                "max_ns": took_ns[-1],
                "reused": reused,
                "cpu_ns": time.process_time_ns(),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
