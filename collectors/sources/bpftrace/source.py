# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace programs as a source of `tlstax attach`: one bpftrace each, one window for all.

A forked child writes the programs for the process and exits, which frees its memory. Each bpftrace
attaches on its own. Output is read while they run; they print their maps at the end.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tlstax import TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.sources.bpftrace.process import (
    Run,
    find_bpftrace,
    require_tracepoints_of,
)
from tlstax.probes import programs

if TYPE_CHECKING:
    from tlstax.collectors.sources.bpftrace.program_text import Rendered

DEFAULT: Final = ("handshake", "oncpu", "offcpu")
FIRST_ID: Final = 1 << 41
"""Ids of its window, frames, stacks and handshakes begin here, above those of the engine."""


class Bpftrace:
    """Programs of probes/*.bt during the recording."""

    name = "bpftrace"

    def __init__(self, pid: int, names: Sequence[str] = DEFAULT) -> None:
        self._pid = pid
        self._names = tuple(names)
        self._runs: list[Run] = []
        self.warning = ""

    def start(self) -> str:
        """Start them all. Raises TlstaxError if bpftrace is missing, too old, or refuses."""
        tool = find_bpftrace()
        rendered = run_in_child(
            "Writing the bpftrace programs", lambda: _render(self._pid, self._names, tool.offsets)
        )
        require_tracepoints_of(rendered)
        missing = [text for one in rendered for text in one.missing]
        self.warning = "; ".join(dict.fromkeys(missing))
        self._runs = [Run(tool, one, self._pid) for one in rendered]
        try:
            for run in self._runs:
                run.spawn()
            for run in self._runs:
                run.wait_attached()
        except BaseException:
            self._close()
            raise
        return f"{tool.text}: {', '.join(self._names)}"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """No rows before the end, but all of them must still be running."""
        for run in self._runs:
            if not run.pump(0.0):
                run.finish()
        return ()

    def halt(self) -> None:
        """Let them print their counts."""
        for run in self._runs:
            run.interrupt()

    def stop(self) -> Iterable[schema.Row]:
        """End them; return their rows. The rows of the others are kept if one failed."""
        from tlstax.collectors.sources.bpftrace.rows import LEVELS, SAMPLED, Stacks, rows

        stacks = Stacks(FIRST_ID)
        failure: TlstaxError | None = None
        runs, ended = list(self._runs), list[Run]()
        try:
            self.halt()
            for run in runs:
                try:
                    yield from [*rows(run.finish(), run.rendered, run, stacks)]
                    ended.append(run)
                except TlstaxError as error:
                    failure = failure or error
        finally:
            self._close()
        if ended:
            level = "handshake" if any(run.rendered.name in LEVELS for run in ended) else "sample"
            start_ns, end_ns = min(r.start_ns for r in ended), max(r.end_ns for r in ended)
            window = (stacks.window_id, None, start_ns, end_ns, 1, level, self.name)
            yield schema.Window(*window)
            for run in ended:
                if hz := SAMPLED.search(run.rendered.text):
                    yield schema.Meta("bpftrace_sample_hz", hz[1])
        if failure is not None:
            raise failure

    def _close(self) -> None:
        runs, self._runs = self._runs, []
        for run in runs:
            run.close()


def _render(pid: int, names: Sequence[str], offsets: bool) -> "list[Rendered]":
    from tlstax.collectors.process.target import open_target
    from tlstax.collectors.sources.bpftrace.program_text import render

    target = open_target(pid)
    made = (render(programs.load(name), target, offsets) for name in names)
    # Files that were opened to write them are closed with this child.
    return [dataclasses.replace(one, libraries=()) for one in made]
