# SPDX-License-Identifier: GPL-2.0-only
"""`--functions` over ssh: calls of another host's process, counted exactly, with nothing left."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.capture.schema import Loss, Meta, Primitive, PrimitiveCalls, Probe
from tlstax.probes.model import CATEGORIES
from tlstax.tests.kernel.recorder_runs import OK, USAGE, Leftover, Process, Started, rows_of
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, await_attached, said
from tlstax.tests.safe_programs import safe_programs

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
ROUNDS, UNIT_US, BOOKS = 50, 10, 11  # lines that the program prints
KINDS = ",".join(CATEGORIES)


@pytest.fixture
def program_of_functions(repository: Path, started: Started) -> Process:
    """tests/testprogs/functions.c, which says how often it called what."""
    if safe_programs():
        pytest.skip("--functions is refused on preemptible kernels since Linux 6.13")
    return started(repository / "tests/testprogs/bin/functions", ROUNDS, UNIT_US)


def run(program: Process) -> dict[str, dict[str, Any]]:
    """Let it call all of its functions; its books."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b"g")
    lines = [json.loads(program.stdout.readline()) for _ in range(BOOKS)]
    return {line["name"]: line for line in lines[:-1]}


def test_every_call_is_counted(
    starting: Attach, program_of_functions: Process, capture: Path, box: RemoteHost,
    leftover: Leftover,
) -> None:  # fmt: skip
    process = starting(program_of_functions.pid, "--functions", KINDS, "--sample-hz", 0)
    before = await_attached(process)
    assert "without --for" in before, "who does not limit it is told what it costs"
    books = run(program_of_functions)
    process.terminate()
    said(process, OK)
    box.await_nothing_left(GONE_SECONDS)
    assert leftover() == set()
    rows = {row.primitive_id: row for row in rows_of(capture, Primitive)}
    calls, sizes = Counter[str](), Counter[str]()
    for row in rows_of(capture, PrimitiveCalls):
        calls[rows[row.primitive_id].name] += row.call_count
        sizes[rows[row.primitive_id].name] += row.size_bytes
    assert calls == {name: book["calls"] for name, book in books.items()}
    assert sizes["fn_sized"] == books["fn_sized"]["bytes"]
    assert all(row.pair_ns > 0 for row in rows.values()), "measured on that host"
    assert [row.kind for row in rows_of(capture, Loss) if row.kind == "function_map_full"] == []
    probes = [row for row in rows_of(capture, Probe) if row.boundary in books]
    assert probes
    assert not any(row.stepped for row in probes), "these are found safe by trial only"
    meta = {row.key: row.value for row in rows_of(capture, Meta)}
    assert meta["functions"] == KINDS.replace(",", ", ")
    assert meta["missing_functions"] == "fn_absent"


def test_a_function_that_nobody_knows(
    starting: Attach, program_of_functions: Process, box: RemoteHost, capture: Path
) -> None:
    text = said(starting(program_of_functions.pid, "--functions", "no_such_one"), USAGE)
    assert "no_such_one" in text
    assert "Traceback" not in text
    box.await_nothing_left(GONE_SECONDS)
    assert not capture.exists()


def test_a_hazard_that_refuses_them(
    starting: Attach, started: Started, repository: Path, box: RemoteHost, capture: Path
) -> None:
    """In words, before anything is asked to be recorded."""
    if not safe_programs():
        pytest.skip("this kernel lacks the hazard that --functions is refused for (private-stacks)")
    program = started(repository / "tests/testprogs/bin/functions", ROUNDS, UNIT_US)
    text = said(starting(program.pid, "--functions", KINDS), 3)
    assert "--functions is not safe here: preflight found private-stacks" in text
    box.await_nothing_left(GONE_SECONDS)
    assert not capture.exists()
