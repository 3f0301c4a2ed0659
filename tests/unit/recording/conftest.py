# SPDX-License-Identifier: GPL-2.0-only
"""A planned process for the tests of plan files and streams."""

import subprocess
from collections.abc import Iterator

import pytest

from tlstax.collectors.placement.function_sites import plan_functions
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.target import Target, open_target
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.probes.definitions import load_definitions
from tlstax.tests.unit.recording.streams import two_windows


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


@pytest.fixture(scope="module")
def plan_text(tls_target: Target, tls_plan: Plan) -> str:
    functions = plan_functions(tls_target, load_definitions(), ("cipher",))
    return plan_file_text(tls_target, tls_plan, Safety(), functions)


@pytest.fixture(scope="module")
def parts(plan_text: str) -> list[tuple[str, bytes]]:
    """A recording of two windows of a second, in which one thread computes."""
    return two_windows(plan_text)
