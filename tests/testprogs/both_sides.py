# SPDX-License-Identifier: GPL-2.0-only
"""Both sides of COUNT TLS connections in one thread, through memory: `both_sides.py HOW COUNT PEM`.

HOW is `implicit` (nobody asks for a handshake; the client's first write and the server's first read
do it) or `explicit`. In TLS 1.3 the client reads the server's session tickets afterwards.
Says `ready`, waits for a line, works, says `done`, and waits for another line.
"""

import ssl
import sys
from collections.abc import Callable


def attempt(step: Callable[[], object]) -> bool:
    """Whether a step needs no more input from the other side."""
    try:
        step()
    except ssl.SSLWantReadError:
        return False
    return True


def connect(how: str, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """One connection, a question and an answer."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(down, up)
    far = server.wrap_bio(up, down, server_side=True)
    if how == "explicit":
        while not (attempt(near.do_handshake) & attempt(far.do_handshake)):
            pass
    while not (attempt(lambda: near.write(b"?")) & attempt(lambda: far.read(1))):
        pass
    far.write(b"!")
    while not attempt(lambda: near.read(1)):
        pass


def main() -> None:
    """See the module."""
    how, count, pem = sys.argv[1:]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(count)):
        connect(how, client, server)
    print("done", flush=True)
    sys.stdin.readline()


main()
