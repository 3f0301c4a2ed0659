# SPDX-License-Identifier: GPL-2.0-only
"""Names of the ledger's programs, and of how their stack walks end."""

from typing import Final

RARE_TRACEPOINTS: Final = ("on_fork", "on_exit_thread", "on_exec")
DENSE_TRACEPOINTS: Final = ("on_switch", "on_wakeup")
SOCKET_TRACEPOINTS: Final = {"on_receive": "sock_recv_length", "on_send": "sock_send_length"}
"""Programs at events of sockets, by the tracepoint of each."""
SOCKET_FUNCTIONS: Final = {
    "inet_received": "inet_recvmsg",
    "inet_sent": "inet_sendmsg",
    "inet6_received": "inet6_recvmsg",
    "inet6_sent": "inet6_sendmsg",
    "unix_received": "unix_stream_recvmsg",
    "unix_sent": "unix_stream_sendmsg",
}
"""Programs at returns of the kernel's functions instead, by the function of each."""
SOCKET_SOURCES: Final = ("none", "tracepoints", "functions")
"""What events of sockets come from, by the number in a stream."""
SAMPLER: Final = "on_sample"
"""The program that takes a sample."""

WALK_COUNTS: Final = (
    "complete",
    "no_mapping",
    "no_row",
    "unsupported",
    "unreadable",
    "too_deep",
    "by_frame_pointer",
    "not_sent",
)
WALK_ENDS: Final = WALK_COUNTS[:6]
"""Of these, exactly one for each walk."""
LOSS_KINDS: Final = {
    "no_mapping": "walk_no_mapping",
    "no_row": "walk_no_row",
    "unsupported": "walk_unsupported",
    "unreadable": "walk_unreadable",
    "too_deep": "walk_too_deep",
    "not_sent": "walk_not_sent",
}
"""Counts that are losses, by their kind in a capture."""
