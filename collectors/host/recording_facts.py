# SPDX-License-Identifier: GPL-2.0-only
"""Facts that a capture holds once: its recording and the host."""

import os
import time
from collections.abc import Mapping
from typing import Final

from tlstax import __version__
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns

PRIVACY: Final = "no payload, SQL text, key, password or pointer is recorded"
_NETWORKS: Final = "; of clients' addresses the first bits are, see client_networks"


def recording_facts(engine: str, level: str, **further: object) -> list[schema.Meta]:
    """The facts of a recording that begins now on this host: times, kernel, recorder."""
    values = {
        "tlstax_version": __version__,
        "created_wall_ns": time.time_ns(),
        "monotonic_anchor_ns": monotonic_ns(),
        "hostname": os.uname().nodename,
        "kernel": os.uname().release,
        "engine": engine,
        "command_level": level,
        **further,
        "privacy": privacy(further),
    }
    return [schema.Meta(key, str(value)) for key, value in values.items()]


def privacy(facts: Mapping[str, object]) -> str:
    """What a capture with these facts never holds."""
    return PRIVACY + _NETWORKS * ("client_networks" in facts)


def new_recording_id() -> str:
    """What tells the captures of one recording of several servers from those of others."""
    return os.urandom(8).hex()
