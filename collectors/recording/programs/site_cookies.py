# SPDX-License-Identifier: GPL-2.0-only
"""What a hit of a probe means to the programs: its attach cookie, and how often it is crossed."""

from typing import Final

from tlstax.collectors.placement.model import Site
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.ledger_layout import Action
from tlstax.probes.model import DETAIL_PHASES

_DENSE_ACTIONS: Final = (
    *("await_command", "await_receive", "phase_open", "phase_close", "phase_send", "wait", "call"),
)
_CONNECTION_ACTIONS: Final = (
    *("base_connect", "base_idle", "base_disconnect", "base_park", "base_pool"),
    *("handshake_bound", "command_reads"),
)


def cookie_of(number: int, site: Site) -> int:
    """The attach cookie of a site of the plan."""
    return layout.cookie(
        Action[site.action.upper()],
        _phase(site),
        number,
        site.only_in == "handshake",
        site.blocking,
        site.success == "zero",
        site.stack_bytes,
        site.register,
        site.state,
        site.role,
        site.side,
        site.condition,
        site.stray,
        site.unseen_exits,
        _is_at_call(site),
    )


def _is_at_call(site: Site) -> bool:
    """Whether an entry on arm64 is at a call, where x30 does not hold the return address yet.

    A function that calls has saved x30 before, so the stack depth there is another.
    """
    return site.event == "enter" and site.instruction.startswith("bl") and site.stack_bytes == -8


def _phase(site: Site) -> str | None:
    if site.action in ("handshake_bound", "handshake_call"):
        return "handshake"
    return site.phase or None


def lowest_level(site: Site) -> str:
    """The lowest level of a recording at which the site is probed.

    `ledger` is `flow` and all above it: every command crosses it. Others are crossed at most once
    per connection; those of `connection` tell a handshake nothing, and those of `handshake` are all
    of its operations but the signature.
    """
    if site.action in _DENSE_ACTIONS or (site.action == "phase" and not site.only_in):
        return "ledger"
    if site.action in _CONNECTION_ACTIONS:
        return "connection"
    return "handshake" if site.phase in DETAIL_PHASES else "signature"
