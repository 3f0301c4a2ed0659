# SPDX-License-Identifier: GPL-2.0-only
"""The sources of `tlstax attach --collect`: every module or folder here that exports `SOURCE`.

`make capture-docs` writes the table of docs/sources.md from it.
"""

import argparse
import functools
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors import sources
from tlstax.collectors.capture import schema, series
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.declaration import Asked, Declaration, Option, parse_list

NATIVE: Final = "native"
"""tlstax's own engine: not a source, but `--collect` names it, too."""


@functools.cache
def declarations() -> Mapping[str, Declaration]:
    """All sources by name, in alphabetical order."""
    found = {}
    for module in pkgutil.iter_modules(sources.__path__):
        loaded = importlib.import_module(f"{sources.__name__}.{module.name}")
        declared = getattr(loaded, "SOURCE", None)
        if isinstance(declared, Declaration):
            found[declared.name] = declared
    return found


def names() -> tuple[str, ...]:
    """What `--collect` takes."""
    return (NATIVE, *declarations())


def uncounted(collected: Iterable[str] | None = None) -> list[str]:
    """Of these sources, or of all, those whose cost to the server is not counted."""
    chosen = declarations() if collected is None else collected
    known = declarations()
    return sorted(name for name in chosen if name in known and not known[name].is_cost_counted)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that choose and set up sources."""
    known = ", ".join(f"{one.name} ({one.summary})" for one in declarations().values())
    parser.add_argument(
        "--collect",
        type=parse_names,
        default=(NATIVE,),
        metavar="LIST",
        help=f"what to record: native (tlstax's own engine), {known}; default: native".replace(
            "%", "%%"
        ),
    )
    for declared in declarations().values():
        if declared.required:
            either = parser.add_mutually_exclusive_group()
            for option in declared.required:
                _add(either, option)
        for option in declared.options:
            _add(parser, option)


def _add(parser: "argparse._ActionsContainer", option: Option) -> None:
    parser.add_argument(
        option.flag,
        type=option.parse,
        choices=option.choices,
        default=option.default,
        metavar=option.metavar,
        help=option.help,
    )


def parse_names(text: str) -> tuple[str, ...]:
    """The sources of a list such as `native,iostat`."""
    return parse_list(text, names())


def asked(options: argparse.Namespace, pid: int, *, is_budgeted: bool) -> Asked:
    """What the command line asks for. Raises TlstaxError (USAGE) if something is missing."""
    for declared in declarations().values():
        _check_required(declared, options)
    values = {
        option.dest: getattr(options, option.dest)
        for declared in declarations().values()
        for option in (*declared.required, *declared.options)
    }
    return Asked(
        pid, options.output, options.collect, max(options.sample_hz, 1), values, is_budgeted
    )


def _check_required(declared: Declaration, options: argparse.Namespace) -> None:
    given = [one for one in declared.required if getattr(options, one.dest) is not None]
    is_collected = declared.name in options.collect
    if is_collected and declared.required and not given:
        ways = " or ".join(f"{one.flag} {one.metavar or ''}".strip() for one in declared.required)
        raise TlstaxError(
            f"--collect {declared.name} needs {declared.required_for}",
            "none were given",
            f"Give {ways}",
            ExitCode.USAGE,
        )
    if given and not is_collected:
        raise TlstaxError(
            f"{given[0].flag} works only with --collect {declared.name}",
            f"--collect is {','.join(options.collect)}",
            f"Add {declared.name} to --collect, or leave {given[0].flag} out",
            ExitCode.USAGE,
        )


def asked_by_default(collected: Iterable[str], pid: int, capture: Path) -> Asked:
    """The same without a command line: every option has its default."""
    return Asked(pid, capture, tuple(collected), options={
        option.dest: option.default
        for declared in declarations().values()
        for option in (*declared.required, *declared.options)
    })  # fmt: skip


def return_probes(what: Asked) -> str:
    """What of the sources would put return probes on the server's functions; "" if nothing."""
    chosen = [declarations()[name] for name in what.names if name != NATIVE]
    parts = {declared.name: declared.return_probes(what) for declared in chosen}
    return "; ".join(f"{name} ({part})" for name, part in parts.items() if part)


def open_sources(what: Asked) -> SourceSet:
    """The sources other than the native engine, not started yet."""
    chosen = [declarations()[name] for name in what.names if name != NATIVE]
    opened = [source for declared in chosen for source in declared.open(what)]
    return SourceSet(opened, [row for declared in chosen for row in _rows(declared)])


def _rows(declared: Declaration) -> Iterator[schema.Row]:
    """What the capture keeps of the declaration."""
    counted = int(declared.is_cost_counted)
    yield schema.SourceFacts(declared.name, declared.summary, counted, declared.alone)
    yield from series.to_rows(declared.name, declared.panels)


def table() -> str:
    """The table of docs/sources.md."""
    head = "| source | what it reads | needs | in the report | budget possible | may warn that |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for one in declarations().values():
        counted = "yes" if one.is_cost_counted else "no"
        cells = (f"`{one.name}`", one.summary, one.needs, one.records, counted)
        lines.append(f"| {' | '.join(cells)} | {'; '.join(one.warnings) or '-'} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page with its table of sources replaced by the one of the declarations."""
    return re.sub(r"^\| source \|.*\n(?:\|.*\n)*", lambda _: table(), page, flags=re.MULTILINE)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_table(target.read_text(encoding="utf-8")), encoding="utf-8")
