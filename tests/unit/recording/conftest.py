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
from tlstax.tests.unit.recording.streams import (
    COMMAND_ON_CPU,
    SECOND,
    calls,
    lost,
    slot,
    struct,
    window,
)


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
    raw = plan_text.encode()
    start = struct(
        "start", pid=4711, sample_hz=99, cpus_count=1, online_count=1, level=b"record", multi=1
    )
    stack = struct("stack", id=3, depth=2) + (0xFFFFFFFF81000010).to_bytes(8, "little") * 2
    sample = struct("sample", phase=12, syscall=-1, user_stack=-1, kernel_stack=3, count=5)
    name = struct("kernel_name", address=0xFFFFFFFF81000010, offset_bytes=16, name=b"do_work")
    return [
        ("START", start),
        *(("PLAN", raw[at : at + 65536]) for at in range(0, len(raw), 65536)),
        ("FUNCTION", struct("function", function=0, pair_ns=900, inside_ns=200)),
        ("SLOT", slot(7, {COMMAND_ON_CPU: SECOND}, SECOND)),
        ("FUNCTION_SUM", calls(7)),
        ("FUNCTION_TIME", struct("function_time", function=0, size_class=9, bucket=3, count=7)),
        ("FUNCTION_LOSS", lost(2)),
        window(0, SECOND),
        ("SLOT", slot(7, {COMMAND_ON_CPU: 2 * SECOND}, 2 * SECOND)),
        ("STACK", stack),
        ("SAMPLE", sample),
        window(1, 2 * SECOND),
        ("SLOT", slot(7, {COMMAND_ON_CPU: 3 * SECOND}, 3 * SECOND)),
        ("FUNCTION_SUM", calls(12)),
        ("FUNCTION_TIME", struct("function_time", function=0, size_class=9, bucket=3, count=11)),
        ("FUNCTION_LOSS", lost(5)),
        window(2, 3 * SECOND),
        ("KERNEL_NAME", name),
        ("END", struct("end", time_ns=3 * SECOND, windows_count=2, ending=b"it was running")),
    ]
