# SPDX-License-Identifier: GPL-2.0-only
"""Stacks that are recorded over ssh."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tlstax.collectors.capture.schema import Meta, SampleStack, Stack
from tlstax.tests.kernel.recorder_runs import OK, rows_of, serve
from tlstax.tests.kernel.remote.sessions import Attach, said

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]
EXIT = 60  # exit(2) of a thread, as captures of all machines number it


def test_stacks_are_walked_by_tables_made_here(
    attach: Attach, capture: Path, recorded_server: "subprocess.Popen[bytes]"
) -> None:
    process = attach("--sample-hz", "999")
    serve(recorded_server)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said(process, OK)
    meta = {row.key: row.value for row in rows_of(capture, Meta)}
    walked, whole = int(meta["stack_walk_count"]), int(meta["stack_whole_count"])
    # A thread that exits has given its memory back: its stack cannot be read any more.
    depths = {row.stack_id: len(row.frame_ids.split()) for row in rows_of(capture, Stack)}
    exiting = sum(
        row.sample_count
        for row in rows_of(capture, SampleStack)
        if row.syscall == EXIT and depths.get(row.user_stack_id or 0) == 1
    )
    assert walked > 0
    assert whole + exiting >= 0.99 * walked, "libssl and libcrypto have no frame pointers"
