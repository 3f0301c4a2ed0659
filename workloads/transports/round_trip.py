# SPDX-License-Identifier: GPL-2.0-only
"""Measure a round trip with ICMP echoes, from within a network namespace.

tlstax starts this file as a program of its own (standard library only, no tlstax import):

    ip netns exec NAMESPACE python3 round_trip.py ADDRESS COUNT PATIENCE_S

Prints a JSON list: the nanoseconds of each echo that was answered. The first echo, which finds out
where the address lives, is not among them.
"""

import json
import os
import select
import socket
import struct
import sys
import time

ECHO_REQUEST, ECHO_REPLY = 8, 0
HEADER = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence number
PAYLOAD = bytes(56)
PAUSE_S = 0.002  # between two echoes
MASK = 0xFFFF


def checksum(data: bytes) -> int:
    """The Internet checksum of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > MASK:
        total = (total & MASK) + (total >> 16)
    return ~total & MASK


def echo_ns(raw: socket.socket, address: str, number: int, patience_s: float) -> int | None:
    """Nanoseconds until this echo came back; None if it did not."""
    identifier = os.getpid() & MASK
    unsigned = HEADER.pack(ECHO_REQUEST, 0, 0, identifier, number)
    header = HEADER.pack(ECHO_REQUEST, 0, checksum(unsigned + PAYLOAD), identifier, number)
    sent_ns = time.monotonic_ns()
    raw.sendto(header + PAYLOAD, (address, 0))
    deadline = time.monotonic() + patience_s
    while (left_s := deadline - time.monotonic()) > 0:
        if not select.select([raw], [], [], left_s)[0]:
            break
        packet, (sender, _) = raw.recvfrom(2048)
        came_ns = time.monotonic_ns()
        start = (packet[0] & 0xF) * 4  # behind the IP header
        kind, _, _, other, sequence = HEADER.unpack_from(packet, start)
        if (kind, other, sequence, sender) == (ECHO_REPLY, identifier, number, address):
            return came_ns - sent_ns
    return None


def main() -> int:
    """Measure and print."""
    address, count, patience_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    times = []
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        echo_ns(raw, address, 0, patience_s)
        for number in range(1, count + 1):
            time.sleep(PAUSE_S)
            if (took_ns := echo_ns(raw, address, number, patience_s)) is not None:
                times.append(took_ns)
    print(json.dumps(times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
