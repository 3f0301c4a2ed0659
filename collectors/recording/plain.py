# SPDX-License-Identifier: GPL-2.0-only
"""A recording of sources only, without the native engine."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import BUSY_SECONDS, CaptureWriter
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.recording_facts import recording_facts
from tlstax.collectors.process.target_fate import ExitWatch, ended_error
from tlstax.collectors.recording.source_set import SourceSet

_PATIENCE_S: Final = 0.05


class PlainRecording:
    """A recording without the native engine, for hosts that do not allow it."""

    def __init__(self, pid: int, capture: Path, sources: SourceSet, overwrite: bool) -> None:
        self.pid = pid
        self.capture = capture
        self.ending = ""
        self._sources = sources
        self._watch = ExitWatch(pid)
        try:
            self._writer = CaptureWriter.create(capture, overwrite)
        except BaseException:
            self._watch.close()
            raise
        try:
            self._writer.add(self._facts())
            self._writer.add(sources.start())
            self._writer.take_place()
            self._writer.set_patience(_PATIENCE_S)
        except BaseException:
            sources.stop()
            self._writer.discard()
            self._watch.close()
            raise

    def _facts(self) -> Iterable[schema.Row]:
        yield from recording_facts("none", "sample")
        exe = ""
        with contextlib.suppress(OSError):  # of another user, or a kernel thread
            exe = os.readlink(f"/proc/{self.pid}/exe")
        yield schema.Target(
            1, self.pid, exe, "", "unknown", "unknown", "unknown", "unknown", "none"
        )

    def wake_on(self, fd: int) -> None:
        """Make `poll` return at once when `fd` is readable."""
        self._watch.wake_on(fd)

    def poll(self, seconds: float) -> None:
        """Wait, and store what the sources have."""
        ended, _ = self._watch.wait(int(seconds * 1000))
        if ended:
            self.ending = "it exited or was killed"
        self._writer.add(self._sources.poll(monotonic_ns()))
        self._writer.commit_if_free()  # who reads the capture meanwhile delays its rows only

    def ended(self) -> TlstaxError:
        """The error that says how the target ended, and that the capture is complete until then."""
        return ended_error(self.pid, self.ending, self.capture)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._writer.set_patience(BUSY_SECONDS)
            self._writer.add(self._sources.stop())
            self._writer.add(schema.Meta("end_monotonic_ns", str(monotonic_ns())))
            self._writer.commit()
        finally:
            self._writer.close()
            self._watch.close()
