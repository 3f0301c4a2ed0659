# SPDX-License-Identifier: GPL-2.0-only
"""Hands on what clients send in a way that hurts; what the server sends goes on at once.

    relay.py PORT SERVER_PORT split FIRST_BYTES
    relay.py PORT SERVER_PORT pause MILLISECONDS
    relay.py PORT SERVER_PORT late MILLISECONDS
    relay.py PORT SERVER_PORT halting MILLISECONDS

`split`: in two parts, with Nagle's algorithm: the second part waits until the server's kernel,
which delays it, has acknowledged the first. `pause`: what finishes a handshake (of TLS 1.3, it
begins with a record ChangeCipherSpec) goes on after a while, and all else at once. `late`: each
piece goes on whole after a while, as from a client that thinks. `halting`: in two parts, each of
which goes out at once, with a while between them, as from a client that composes slowly.

Runs alone (python3 -I); says "ready" once it listens.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable

CHUNK_BYTES = 1 << 18
CHANGE_CIPHER_SPEC = 20
"""Type of a TLS record."""
Forward = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def main(port: int, server_port: int, manner: str, amount: float) -> None:
    """Serve until killed."""
    open_connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server_port)
        nodelay(writer, on=True)
        nodelay(far_writer, on=manner != "split")
        up = MANNERS[manner](amount)
        for forward, source, sink in ((up, reader, far_writer), (whole, far_reader, writer)):
            task = asyncio.create_task(carry(forward, source, sink))
            open_connections.add(task)
            task.add_done_callback(open_connections.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


def nodelay(writer: asyncio.StreamWriter, *, on: bool) -> None:
    """Whether small segments go out at once. asyncio turns that on by itself."""
    own = writer.get_extra_info("socket")
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(on))


async def carry(
    forward: Forward, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One direction until its end."""
    try:
        await forward(reader, writer)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything as it comes."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


def split(first_bytes: float) -> Forward:
    """Each piece in two."""
    first = int(first_bytes)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            nodelay(writer, on=False)
            writer.write(data[:first])
            await asyncio.sleep(0)
            writer.write(data[first:])
            await writer.drain()

    return forward


def pause(pause_ms: float) -> Forward:
    """The end of a handshake late, everything else as it comes."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if data[0] == CHANGE_CIPHER_SPEC:
                await asyncio.sleep(pause_ms / 1000)
            writer.write(data)
            await writer.drain()

    return forward


def late(pause_ms: float) -> Forward:
    """Each piece after a while."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await asyncio.sleep(pause_ms / 1000)
            writer.write(data)
            await writer.drain()

    return forward


def halting(pause_ms: float) -> Forward:
    """Each piece in two, with a while between them."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            half = len(data) // 2
            writer.write(data[:half])
            await asyncio.sleep(pause_ms / 1000)
            writer.write(data[half:])
            await writer.drain()

    return forward


MANNERS = {"split": split, "pause": pause, "late": late, "halting": halting}

if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
