# SPDX-License-Identifier: GPL-2.0-only
"""The functions of a plan file, whose calls are counted (`--functions`), and their probes.

The recorder reads the words (collectors/recorder/plan_functions.c). A capture needs the description
behind those of a function, from which all words follow.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.placement.model import FunctionPlan, ProbedFunction, Site
from tlstax.collectors.placement.plan_text import made_of, plain_of
from tlstax.collectors.process.mappings import MappedObject, open_mapped
from tlstax.collectors.recording.programs.registers import REGISTER_NUMBERS

CODE_BYTES: Final = 16
POINTS_MOST: Final = 512  # PLAN_POINTS_MOST of plan.h
SOURCES: Final = ("none", "constant", "argument", "returned")  # enum size_source of functions.h


def cookie(number: int, probed: ProbedFunction, site: Site) -> int:
    """The attach cookie of a probe (COOKIE_* in functions.h)."""
    size = probed.primitive.size
    timed = not probed.why_not_timed
    # The return value of an untimed function is not read.
    source = size.source if timed or size.source != "returned" else "none"
    constant = size.value if source == "constant" else 0
    flags = SOURCES.index(source) | timed << 4 | size.wide << 5
    return (
        number
        | flags << 8
        | constant << 16
        | (site.stack_bytes // 8 & 0xFFFF) << 32
        | REGISTER_NUMBERS[site.register] << 48
    )


def code_at(site: Site) -> bytes:
    """The bytes of the file at a site, which the recorder compares."""
    descriptor = open_mapped(site.object)
    try:
        return os.pread(descriptor, CODE_BYTES, site.file_offset)
    finally:
        os.close(descriptor)


def function_lines(plan: FunctionPlan, objects: Sequence[MappedObject]) -> Iterator[str]:
    """The lines of a plan file. Raises TlstaxError (USAGE) for too many probes."""
    number = 0
    for function, probed in enumerate(plan.functions):
        text = json.dumps(plain_of(probed, objects), separators=(",", ":"))
        yield f"function {function} {_kind(probed)} {text}"
        for site in probed.sites:
            words = _words(number, function, probed, site, objects.index(site.object))
            yield f"{words} bytes={code_at(site).hex()}"
            number += 1
    if number > POINTS_MOST:
        raise TlstaxError(
            f"--functions {','.join(plan.asked)}: {number} probes are too many",
            f"the limit is {POINTS_MOST}",
            "Choose fewer categories, or single primitives by id",
            ExitCode.USAGE,
        )
    asked = {"asked": plan.asked, "absent": plan.absent, "unsafe": plan.unsafe}
    yield f"about functions {json.dumps(asked)}"


def _kind(probed: ProbedFunction) -> str:
    """How its probes are made, which decides what they cost; of exits the most expensive.

    Raises ValueError if it has no entry, as no planned function is.
    """
    enter = next((site for site in probed.sites if site.event == "enter"), None)
    if enter is None:
        raise ValueError(f"the function {probed.function} has no entry")
    exits = [site for site in probed.sites if site.event == "exit"]
    exit_kind = "none"
    if exits:
        dearest = max(exits, key=lambda site: (site.stepped, site.kind))
        exit_kind = "return" if dearest.kind == "uretprobe" else _stepped(dearest)
    return f"entry={_stepped(enter)} exit={exit_kind}"


def _stepped(site: Site) -> str:
    return "stepped" if site.stepped else "emulated"


def _words(number: int, function: int, probed: ProbedFunction, site: Site, file: int) -> str:
    return (
        f"point {number} function={function} file={file} offset={site.file_offset:#x}"
        f" event={site.event} kind={site.kind} cookie={cookie(function, probed, site):#x}"
    )


def read_functions(
    functions: Sequence[str],
    points: Sequence[str],
    about: dict[str, Any] | None,
    objects: Sequence[MappedObject],
) -> FunctionPlan | None:
    """The functions of a plan file's lines; None if it has none. Raises ValueError, NoFitError."""
    if not functions and not points:
        return None
    if about is None:
        raise ValueError("functions without what was asked for")
    read: list[ProbedFunction] = []
    expected: list[str] = []
    for number, line in enumerate(functions):
        head, brace, rest = line.partition(" {")
        probed: ProbedFunction = made_of(ProbedFunction, json.loads(brace.strip() + rest), objects)
        if head != f"function {number} {_kind(probed)}":
            raise ValueError(f"function {number}: its words are not those of its description")
        for site in probed.sites:
            file = objects.index(site.object)
            expected.append(_words(len(expected), number, probed, site, file))
        read.append(probed)
    if [line.partition(" bytes=")[0] for line in points] != expected:
        raise ValueError("the probes of functions are not those of their descriptions")
    absent, asked = _names(about["absent"]), _names(about["asked"])
    return FunctionPlan(0, tuple(read), absent, asked, _names(about.get("unsafe", [])))


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} are no names")
    return tuple(value)
