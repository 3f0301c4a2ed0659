# SPDX-License-Identifier: GPL-2.0-only
"""Begins TLS handshakes with a server of the MySQL family, and uses none.

    stranger.py PORT untrusting     trusts no certificate, and says so to the server
    stranger.py PORT trusting CA    trusts this CA, and checks dates, as it should
    stranger.py PORT outdated       knows TLS 1.2 with RSA certificates only
    stranger.py PORT unknown CERT KEY  has a certificate that the server does not know
    stranger.py PORT leaving        closes the connection when the server has answered
    stranger.py PORT bursting       connects many times at once, and leaves without a word

One after another until killed. Runs alone (python3 -I); says "ready" after the first one.
"""

import socket
import ssl
import struct
import sys
import time

CLIENT_PROTOCOL_41, CLIENT_SSL, CLIENT_SECURE_CONNECTION = 1 << 9, 1 << 11, 1 << 15
SSL_REQUEST = struct.pack(
    "<IIB23x", CLIENT_PROTOCOL_41 | CLIENT_SSL | CLIENT_SECURE_CONNECTION, 1 << 24, 33
)
PAUSE_S = 0.002
"""Between connections, so that other clients are served as well."""
PATIENCE_S = 10.0
BURST, BURST_S = 100, 0.1
"""Connections of a burst; how long they last, and the time to the next one."""


def main(port: int, manner: str, files: list[str]) -> None:
    """Connect again and again."""
    context = context_of(manner, files)
    ready = False
    if manner == "bursting":
        print("ready", flush=True)
        while True:
            burst(port)
    while True:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.recv(1 << 12)  # the server's greeting
            header = struct.pack("<I", len(SSL_REQUEST) | 1 << 24)
            connection.sendall(header + SSL_REQUEST)
            if manner == "leaving":
                leave(context, connection)
            else:
                shake(context, connection)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(PAUSE_S)


def burst(port: int) -> None:
    """Many connections at once, as of clients that all start at the full minute."""
    connections = [socket.socket() for _ in range(BURST)]
    for connection in connections:
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
    time.sleep(BURST_S)
    for connection in connections:
        connection.close()
    time.sleep(BURST_S)


def context_of(manner: str, files: list[str]) -> ssl.SSLContext:
    """What the client trusts, offers and has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if manner in ("outdated", "unknown"):
        context.verify_mode = ssl.CERT_NONE
    if manner == "trusting":
        context.load_verify_locations(files[0])
    elif manner == "outdated":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384")
    elif manner == "unknown":
        context.load_cert_chain(*files)
    return context


def shake(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Handshake, and read what follows: the alert of a server that refuses, or nothing."""
    connection.settimeout(PATIENCE_S)
    try:
        with context.wrap_socket(connection) as secure:
            secure.settimeout(PAUSE_S)
            secure.recv(1)
    except (ssl.SSLError, TimeoutError, ConnectionError):
        return


def leave(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Say hello, wait for the answer, and go."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        connection.sendall(outgoing.read())
    connection.recv(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
