# SPDX-License-Identifier: GPL-2.0-only
"""A planned process for the tests of plan files and streams."""

import subprocess
from collections.abc import Iterator

import pytest

from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.process.target import Target, open_target
from tlstax.probes.definitions import load_definitions


@pytest.fixture(scope="session")
def tls_target() -> Iterator[Target]:
    """A process with libssl mapped that does nothing, for all tests of the room."""
    code = "import ssl, sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield open_target(process.pid)


@pytest.fixture(scope="session")
def tls_plan(tls_target: Target) -> Plan:
    """Its plan."""
    return plan(tls_target, load_definitions())
