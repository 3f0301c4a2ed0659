# SPDX-License-Identifier: GPL-2.0-only
"""A server of another host by its unit, container or pod, without its name."""

import os
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Target
from tlstax.tests.kernel.recorder_runs import OK, TARGET, MakeGroup, Process, rows_of
from tlstax.tests.kernel.remote.remote_host import RemoteHost
from tlstax.tests.kernel.remote.sessions import GONE_SECONDS, Attach, said

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
ID = f"{os.getpid():064x}"
UID = f"{os.getpid():08x}-55aa-4b1d-9d2e-0123456789ab"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"tlstax-test-{os.getpid()}.service", ["--unit", f"tlstax-test-{os.getpid()}"]),
        (f"docker-{ID}.scope", ["--container", ID]),
        (rf"machine-my\x2d{os.getpid()}.scope", ["--container", f"my-{os.getpid()}"]),
        (f"kubepods-burstable-pod{UID.replace('-', '_')}.slice", ["--pod", UID[:13].upper()]),
    ],
    ids=["unit", "container", "machine", "pod"],  # the same in each process that collects the tests
)
def test_it_is_recorded(
    starting: Attach, recorded_server: Process, put_in: MakeGroup, name: str, words: list[str],
    box: RemoteHost, capture: Path,
) -> None:  # fmt: skip
    options = [*words, "--for", "1s", "--budget", "none"]
    text = said(starting(*options), TARGET)
    assert words[1] in text
    assert "No process belongs to" in text
    box.await_nothing_left(GONE_SECONDS)
    put_in(name, recorded_server.pid)
    said(starting(*options), OK)
    box.await_nothing_left(GONE_SECONDS)
    assert [row.pid for row in rows_of(capture, Target)] == [recorded_server.pid]


def test_all_of_a_unit(
    starting: Attach, recorded_server: Process, target: Process, put_in: MakeGroup,
    box: RemoteHost, capture: Path,
) -> None:  # fmt: skip
    """Several are an error that lists them, by their names only, unless all are wanted."""
    unit = f"tlstax-all-{os.getpid()}"
    put_in(f"{unit}.service", recorded_server.pid)
    put_in(f"{unit}.scope", target.pid)
    text = said(starting("--unit", unit), TARGET)
    assert f"2 processes belong to unit {unit}" in text
    assert f"{target.pid} (truth" in text
    said(starting("--unit", unit, "--all", "--for", "1s"), OK)
    box.await_nothing_left(GONE_SECONDS)
    pids = {int(path.stem.rpartition("-")[2]) for path in capture.iterdir()}
    assert pids == {recorded_server.pid, target.pid}
