# SPDX-License-Identifier: GPL-2.0-only
"""What lies between clients and server: delays bytes, or hands them on in the way that hurts.

    between.py PORT SERVER_PORT delay SECONDS      each way, as a long line does
    between.py PORT SERVER_PORT split SIZE         what clients send goes on in two parts, the first
                                                   of SIZE bytes, and Nagle's algorithm holds the
                                                   second back until the server's kernel, which
                                                   delays it, acknowledges the first

Runs alone (python3 -I); says "ready" once it listens.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable

CHUNK_BYTES = 1 << 18
Forward = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def main(port: int, server_port: int, manner: str, value: str) -> None:
    """Serve until killed."""
    open_connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server_port)
        nodelay(writer, on=True)
        nodelay(far_writer, on=manner != "split")
        up = split(int(value)) if manner == "split" else delayed(float(value))
        down = delayed(float(value) if manner == "delay" else 0.0)
        for forward, source, sink in ((up, reader, far_writer), (down, far_reader, writer)):
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


def delayed(seconds: float) -> Forward:
    """Everything later, in order, with nothing in the way of what comes behind it."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(CHUNK_BYTES):
            if seconds:
                loop.call_later(seconds, writer.write, data)
            else:
                writer.write(data)
                await writer.drain()
        await asyncio.sleep(seconds)

    return forward


def split(first_bytes: int) -> Forward:
    """Each piece in two."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            writer.write(data[:first_bytes])
            await asyncio.sleep(0)
            writer.write(data[first_bytes:])
            await writer.drain()

    return forward


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
