# SPDX-License-Identifier: GPL-2.0-only
"""A name server that answers late, and that it knows no such name.

    resolver.py ADDRESS DELAY_MS

Runs alone (python3 -I) until killed; says "ready" once it listens.
"""

import asyncio
import sys
from typing import cast

REPLY_NO_SUCH_NAME = b"\x81\x83"
"""Flags: an answer, recursion wanted and done, NXDOMAIN (RFC 1035, 4.1.1)."""
HEADER_BYTES = 12
NO_RECORDS = bytes(6)


class Late(asyncio.DatagramProtocol):
    """Each question comes back after a while with the answer that there is no such name."""

    def __init__(self, delay_s: float) -> None:
        """`delay_s`: from a question to its answer."""
        self._delay_s = delay_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what answers are sent with."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """The question and nothing else, in an answer."""
        if len(data) <= HEADER_BYTES:
            return
        end = data.index(0, HEADER_BYTES) + 5  # the name, then its type and class
        answer = data[:2] + REPLY_NO_SUCH_NAME + b"\0\1" + NO_RECORDS + data[HEADER_BYTES:end]
        loop = asyncio.get_running_loop()
        loop.call_later(self._delay_s, lambda: self._transport.sendto(answer, addr))


async def main(address: str, delay_s: float) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Late(delay_s), local_addr=(address, 53))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]) / 1000))
