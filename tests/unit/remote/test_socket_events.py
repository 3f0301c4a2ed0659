# SPDX-License-Identifier: GPL-2.0-only
"""What another host's events of sockets come from is what its recorder found, or nothing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tlstax.collectors.host.socket_events import SocketSource
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.remote.remote_plan import RemotePlan


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("tracepoints", SocketSource.TRACEPOINTS),
        ("functions", SocketSource.FUNCTIONS),
        ("none", SocketSource.NONE),
        ("made up", SocketSource.NONE),
        (None, SocketSource.NONE),
    ],
)
def test_nothing_is_guessed(tmp_path: Path, said: str | None, found: SocketSource) -> None:
    if said is not None:
        (tmp_path / "socket-events").write_text(said)
    target: Any = SimpleNamespace(proc=tmp_path / "proc")
    plan: Any = None
    assert RemotePlan(target, plan, Safety(), ()).sockets == found
