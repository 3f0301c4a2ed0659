# SPDX-License-Identifier: GPL-2.0-only
"""The sources of a recording other than the native engine: one capture, one clock.

A source that is missing, ends early or prints what cannot be parsed is stopped, which the capture
records; the others and the engine continue. Sources are polled from the recorder's loop and must
not block: slow work runs in a child process.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.clock import monotonic_ns

_ABSENT = (ExitCode.HOST, ExitCode.TARGET)
"""Exit codes of a source that this host or this process does not support."""
INTERVAL_NS = 1_000_000_000
"""How often a source is polled."""


class Source(Protocol):
    """One kind of evidence that is recorded in addition to the ledger."""

    name: str
    warning: str
    """After its start, a limitation under which it works; '' if there is none."""

    def start(self) -> str:
        """Begin; return the program and its version. Raises TlstaxError if it is unavailable."""

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """The rows since the last poll. Raises TlstaxError when the source has ended."""

    def stop(self) -> Iterable[schema.Row]:
        """End, and return the remaining rows. May be called twice.

        Does not repeat an error that `poll` has raised. Rows before an error are kept.
        """


@runtime_checkable
class Halting(Protocol):
    """A source that can stop recording now and be read later."""

    def halt(self) -> None:
        """Stop recording; `stop` returns the rows. Never fails."""


@runtime_checkable
class Part(Protocol):
    """One of several sources that share a name in `--collect`; any of them may be missing."""

    part_of: str
    """That name; '' if this source was named itself."""


class SourceSet:
    """The sources of one recording. Each may fail without the others."""

    def __init__(self, sources: Sequence[Source], declared: Iterable[schema.Row] = ()) -> None:
        """`declared`: what the capture keeps of their declarations."""
        self._sources = list(sources)
        self._declared = list(declared)
        self._running: dict[str, schema.Collector] = {}
        self._due_ns = 0
        self.failures: list[str] = []
        """One sentence for each source that failed, for the end of the run."""
        self.warnings: list[str] = []
        """One sentence for each source that works with limits, and for each that is missing but was
        not named itself."""

    def start(self) -> list[schema.Row]:
        """Start all of them; return the rows that say which of them run."""
        rows: list[schema.Row] = list(self._declared)
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
        """End all of them; return their last rows, and how each of them ended."""
        rows: list[schema.Row] = []
        for source in self._alive():  # all at the same time: reading a result may take long
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
    """The name that it shares with others; '' if it was named itself."""
    return source.part_of if isinstance(source, Part) else ""


def _ended(row: schema.Collector, state: str, error: TlstaxError) -> schema.Collector:
    return row._replace(state=state, end_ns=monotonic_ns(), note=str(error))
