# SPDX-License-Identifier: GPL-2.0-only
"""An LDAP directory that knows nobody, and takes its time to say so.

    directory.py PORT MILLISECONDS

It answers each request to bind (RFC 4511, 4.2) with invalidCredentials. Runs alone (python3 -I);
says "ready" once it listens.
"""

import asyncio
import sys

SEQUENCE, UNBIND = 0x30, 0x42
INVALID_CREDENTIALS = 49


async def main(port: int, delay_s: float) -> None:
    """Serve until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (body := await message(reader)) is not None:
                number, kind = body[: 2 + body[1]], body[2 + body[1]]
                if kind == UNBIND:
                    break
                await asyncio.sleep(delay_s)
                writer.write(refusal(number))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


async def message(reader: asyncio.StreamReader) -> bytes | None:
    """The contents of a message, its number (an INTEGER) first; None at the end."""
    head = await reader.read(1)
    if head != bytes([SEQUENCE]):
        return None
    length = (await reader.readexactly(1))[0]
    if length & 0x80:
        length = int.from_bytes(await reader.readexactly(length & 0x7F), "big")
    return await reader.readexactly(length)


def refusal(number: bytes) -> bytes:
    """A BindResponse: its code, and neither a name nor a text."""
    body = number + bytes([0x61, 7, 0x0A, 1, INVALID_CREDENTIALS, 4, 0, 4, 0])
    return bytes([SEQUENCE, len(body)]) + body


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000))
