# SPDX-License-Identifier: GPL-2.0-only
"""How a source declares itself: its module or folder in collectors/sources exports `SOURCE`.

`tlstax attach` and docs/sources.md take names, options, defaults and refusals from declarations;
the capture keeps what a report needs. So a new source is one module and its test. The module is
imported by every `attach`: what a source needs only when it runs is imported in `open`.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tlstax.collectors.capture.series import Panel
from tlstax.collectors.recording.source_set import Source


@dataclass(frozen=True)
class Option:
    """An option of `tlstax attach` that belongs to one source."""

    flag: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    default: Any = None

    @property
    def dest(self) -> str:
        """The key of its value in `Asked.options`."""
        return self.flag.lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class Asked:
    """What to record, and of which process."""

    pid: int
    capture: Path
    names: tuple[str, ...]
    """All that is recorded, `native` included."""
    sample_hz: int = 99
    options: Mapping[str, Any] = field(default_factory=dict)
    """The values of the options of sources, by `Option.dest`."""
    is_budgeted: bool = False
    """Whether a budget pays for what a source takes of this process's CPU time."""


@dataclass(frozen=True)
class Declaration:
    """All that the rest of tlstax knows about a source."""

    name: str
    """Its name in `--collect`."""
    summary: str
    """What it reads, in a few words: for `--help`, docs/sources.md and the capture."""
    open: Callable[[Asked], Sequence[Source]]
    """The source, not started yet; several where one name stands for several tools."""
    needs: str = ""
    """What must be there for it: programs, accounts, rights."""
    records: str = "series"
    """Where the report shows it."""
    panels: tuple[Panel, ...] = ()
    """The charts of its metrics. The sums of metrics of a source without panels are a table."""
    options: tuple[Option, ...] = ()
    required: tuple[Option, ...] = ()
    """Options of which exactly one is needed with the source, and none is of use without it."""
    required_for: str = ""
    """What they give to it, such as credentials."""
    return_probes: Callable[[Asked], str] = lambda asked: ""
    """Which part of what is asked for puts return probes on the server's functions; "" if none."""
    is_cost_counted: bool = True
    """False if it slows the server down by an amount that nobody measures: no budget is kept."""
    warnings: tuple[str, ...] = ()
    """What it may warn of though it works."""
    alone: str = ""
    """What a report says of a recording that is its own and not the native engine's."""


def parse_list(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names of a comma-separated list, each of them one of `known`, as an option's `parse`."""
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in found if name not in known]
    if unknown or not found:
        raise argparse.ArgumentTypeError(
            f"{unknown[0] if unknown else text!r} is none of {', '.join(known)}"
        )
    return found
