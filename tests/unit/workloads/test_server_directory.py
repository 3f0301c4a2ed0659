# SPDX-License-Identifier: GPL-2.0-only
"""Which processes still run."""

import os
import socket
import subprocess
import sys

from tlstax.workloads.servers.server_directory import is_running, process_start_ticks


def test_a_killed_server_does_not_run_when_its_clients_hear_of_it() -> None:
    ours, its = socket.socketpair()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, pass_fds=[its.fileno()]) as process, ours:
        its.close()
        ticks = process_start_ticks(process.pid)
        assert is_running(process.pid, ticks)
        assert not is_running(process.pid, (ticks or 0) + 1), "another process of this number"
        process.kill()
        assert ours.recv(1) == b""
        assert not is_running(process.pid, ticks), "it waits for us, its parent, to look"
    assert not is_running(process.pid, ticks)
    assert is_running(os.getpid(), process_start_ticks(os.getpid()))
