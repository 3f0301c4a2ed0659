# SPDX-License-Identifier: GPL-2.0-only
"""The console of rich on which text from a capture can do nothing to the terminal."""

from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tlstax.collectors.capture.printable import harmless, with_controls


class SafeConsole(Console):
    """Prints harmless text, see `printable`; colours are the only control sequences."""

    def __init__(self, stream: TextIO, **options: Any) -> None:
        """`options`: further ones of rich's Console."""
        super().__init__(
            file=with_controls(stream), highlight=False, emoji=False, markup=False, **options
        )

    def on_broken_pipe(self) -> None:
        """Rich would end the process; let the command end as with any other output."""
        raise BrokenPipeError

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is printed, with harmless text."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(harmless(segment.text), segment.style)
