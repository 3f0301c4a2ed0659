# SPDX-License-Identifier: GPL-2.0-only
"""What is recorded beside the native engine: each source fills the same capture, on one clock.

A source that is missing, dies or says what nobody understands is stopped and named in the capture;
the others and the engine go on. Sources are polled from the recorder's own loop and must not
block: whatever takes time runs in a process of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns

_ABSENT = (ExitCode.HOST, ExitCode.TARGET)
"""How a source fails to start that this host or this process has nothing for."""
INTERVAL_NS = 1_000_000_000
"""How often a source is polled."""


class Source(Protocol):
    """One kind of evidence beside the ledger."""

    name: str
    warning: str
    """What is wrong with it though it works, once it was started; '' if nothing."""

    def start(self) -> str:
        """Begin; what answers, with its version. Raises TlstaxError if it cannot be had."""

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """What there is since the last poll. Raises TlstaxError when the source is gone."""

    def stop(self) -> Iterable[schema.Row]:
        """End, and what was left. Never fails for what poll has reported; may be called twice.

        May give rows and then raise: they are kept.
        """


@runtime_checkable
class Halting(Protocol):
    """A source that can end at an instant and be read later."""

    def halt(self) -> None:
        """Record no more; `stop` gives what there is. Never fails."""


@runtime_checkable
class Part(Protocol):
    """One of several sources that one name stands for, of which those that are here serve."""

    part_of: str
    """That name; '' if it was asked for by its own."""


class SourceSet:
    """The sources of one recording, each of which may fail alone."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._running: dict[str, schema.Collector] = {}
        self._due_ns = 0
        self.failures: list[str] = []
        """One sentence for each source that did not last, for the end of the run."""
        self.warnings: list[str] = []
        """One sentence for each source that works, but not as well as it could, or that is not here
        and that nobody asked for by name."""

    def start(self) -> list[schema.Row]:
        """Start all of them; the rows that say which of them run."""
        rows: list[schema.Row] = []
        absent: list[tuple[Source, str]] = []
        for number, source in enumerate(self._sources, start=1):
            now_ns = monotonic_ns()
            row = schema.Collector(number, source.name, "", "running", now_ns, now_ns, 0, "")
            try:
                version = source.start()
                self._running[source.name] = row._replace(version=version, note=source.warning)
                rows.append(self._running[source.name])
                if source.warning:
                    self.warnings.append(f"{source.name}: {source.warning}")
            except TlstaxError as error:
                rows.append(_ended(row, "missing", error))
                if error.exit_code in _ABSENT:
                    absent.append((source, f"{source.name}: {error}"))
                else:
                    self.failures.append(f"{source.name}: {error}")
        served = {_whole(source) for source in self._alive()} - {""}
        for source, text in absent:
            (self.warnings if _whole(source) in served else self.failures).append(text)
        self._due_ns = monotonic_ns() + INTERVAL_NS
        return rows

    def poll(self, now_ns: int) -> list[schema.Row]:
        """The rows of every source, once per interval."""
        rows: list[schema.Row] = []
        if now_ns < self._due_ns:
            return rows
        self._due_ns += INTERVAL_NS * (1 + (now_ns - self._due_ns) // INTERVAL_NS)
        for source in self._alive():
            try:
                self._keep(source, list(source.poll(now_ns)), rows)
            except TlstaxError as error:
                rows += self._end(source, "failed", error)
        return rows

    def stop(self) -> list[schema.Row]:
        """End them all; the rows that they still had, and how each of them ended."""
        rows: list[schema.Row] = []
        for source in self._alive():  # all at one time: reading what one has may take long
            if isinstance(source, Halting):
                source.halt()
        for source in self._alive():
            rows += self._end(source, "finished")
        return rows

    def _alive(self) -> list[Source]:
        return [source for source in self._sources if source.name in self._running]

    def _keep(self, source: Source, new: list[schema.Row], rows: list[schema.Row]) -> None:
        rows += new
        row = self._running[source.name]
        self._running[source.name] = row._replace(rows_count=row.rows_count + len(new))

    def _end(
        self, source: Source, state: str, cause: TlstaxError | None = None
    ) -> list[schema.Row]:
        rows: list[schema.Row] = []
        try:
            for last in source.stop():
                self._keep(source, [last], rows)
        except TlstaxError as error:
            cause = cause or error
        row = self._running.pop(source.name)
        if cause is None:
            rows.append(row._replace(state=state, end_ns=monotonic_ns()))
        else:
            self.failures.append(f"{row.name}: {cause}")
            rows.append(_ended(row, "failed", cause))
        return rows


def _whole(source: Source) -> str:
    """The name that stands for it and others; '' if it stands for itself."""
    return source.part_of if isinstance(source, Part) else ""


def _ended(row: schema.Collector, state: str, error: TlstaxError) -> schema.Collector:
    return row._replace(state=state, end_ns=monotonic_ns(), note=str(error))
