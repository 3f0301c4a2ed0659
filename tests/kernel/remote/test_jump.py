# SPDX-License-Identifier: GPL-2.0-only
"""Recording by way of a jump host, which the user's ssh configuration names (ProxyJump)."""

import signal
import subprocess
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Handshake
from tlstax.tests.kernel.recorder_runs import HANDSHAKES, OK, Leftover, rows_of, serve
from tlstax.tests.kernel.remote.remote_host import INSIDE, PORT, RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, children, said

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]


def test_a_host_behind_another_one_is_recorded(
    attach: Attach, box: RemoteHost, capture: Path, leftover: Leftover,
    recorded_server: "subprocess.Popen[bytes]",
) -> None:  # fmt: skip
    """Options of ssh that forbid to forward anything must not end its way through the jump host."""
    process = attach("--ssh", f"box{INSIDE}")
    commands = [command.split("\0") for _, command in children(process.pid)]
    assert any(f"[127.0.0.1]:{PORT}" in words and "-W" in words for words in commands), commands
    serve(recorded_server)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    assert [row.outcome for row in rows_of(capture, Handshake)] == ["success"] * HANDSHAKES
