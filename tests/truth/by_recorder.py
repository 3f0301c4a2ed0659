# SPDX-License-Identifier: GPL-2.0-only
"""The truth program under the static recorder instead of the engine of this process."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tlstax.collectors.commands.recorder import recorder_path
from tlstax.collectors.recording.engine.ledger_layout import HandshakeRecord
from tlstax.collectors.recording.stream.replay import Replay

LAST_SWITCHES_S = 0.3  # they come after a thread was joined
WINDOW = "500ms"


def record(pid: int, plan_text: str, folder: Path, run: Callable[[], None]) -> "Recorded":
    """Record while `run` runs."""
    plan, stream = folder / "truth.plan", folder / "truth.stream"
    plan.write_text(plan_text)
    command = [str(recorder_path()), "--plan", str(plan), "--pid", str(pid), "--window", WINDOW]
    with (
        stream.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE) as recorder,
    ):
        assert recorder.stderr is not None
        assert b"attached to" in recorder.stderr.readline()
        try:
            run()
            time.sleep(LAST_SWITCHES_S)
        finally:
            recorder.terminate()
        said = recorder.stderr.read()
        assert recorder.wait(60) == 0, said
    return Recorded(stream)


class Recorded(Replay):
    """All windows of a stream as one: accounts of all threads, all handshakes."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            super().__init__(stream)
            self._all: list[HandshakeRecord] = []
            while self.next_window():
                self._all += self.window_records

    def handshake_records(self) -> list[HandshakeRecord]:
        """Those of all windows."""
        return self._all
