# SPDX-License-Identifier: GPL-2.0-only
"""An engine that asks again where files were compacted while it read them.

Files are chosen once and opened by each query. A compaction in between removes some, or puts rows
of a file that was chosen into another one, which then counts them twice.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tlstax import TlstaxError
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.engines.opening import open_engine
from tlstax.analysis.fleet.store.selection import Selection

_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.1
"""Before another attempt; each one is twice as long."""

Choose = Callable[[], tuple[Selection, Path]]
"""Chooses the files, and says in which folder they are."""


class RetryingEngine(Engine):
    """Each query sees files that nobody replaced meanwhile."""

    def __init__(self, name: str, choose: Choose) -> None:
        """Use `open_retrying`."""
        self.name = name
        self.left_out: list[str] = []
        """Which files were left out."""
        self._choose = choose
        self._open = ExitStack()
        self._engine: Engine | None = None
        self._begin()

    def query(self, sql: str) -> Any:
        """See Engine."""
        return self.asked(lambda engine: engine.query(sql))

    def asked(self, ask: Callable[[Engine], Any]) -> Any:
        """What this asks of the engine; it is called again where files were replaced.

        Raises TlstaxError (FAILED) where that happens again and again.
        """
        error = self.refused(FileNotFoundError("files were replaced while they were read"))
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S * 2**attempt)
                self._begin()
            try:
                found = ask(self._opened())
            except TlstaxError as refused:
                if not self._selection.is_replaced(or_grown=True):
                    raise
                error = refused
            else:
                if not self._selection.is_replaced():
                    return found
        raise error

    def close(self) -> None:
        """See Engine."""
        self._open.close()

    def _begin(self) -> None:
        self.close()
        self._engine = None
        self._selection, self._data = self._choose()
        self.left_out += [one for one in self._selection.left_out if one not in self.left_out]

    def _opened(self) -> Engine:
        """The engine, which looks at files already when it is opened."""
        if self._engine is None:
            opening = open_engine(self.name, self._selection, self._data)
            self._engine = self._open.enter_context(opening)
        return self._engine


@contextmanager
def open_retrying(name: str, choose: Choose) -> Iterator[RetryingEngine]:
    """An engine over files that are chosen anew where they are replaced.

    Raises TlstaxError as `choose` and `open_engine` do.
    """
    engine = RetryingEngine(name, choose)
    try:
        yield engine
    finally:
        engine.close()
