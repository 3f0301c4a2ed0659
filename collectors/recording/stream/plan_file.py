# SPDX-License-Identifier: GPL-2.0-only
"""Plan files: what will be probed in a build, as text that a DBA can read and a recorder obeys.

docs/plan-file.md describes the format. The recorder (collectors/recorder/plan.c) reads the words of
each line; what a capture needs beside them is JSON behind them, which it skips.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.files import is_stream, put_whole, write_stream
from tlstax.collectors.placement.model import FunctionPlan, Plan, Site
from tlstax.collectors.placement.plan_text import NoFitError, made_of, plain_of
from tlstax.collectors.preflight.safety import Note, Safety
from tlstax.collectors.process.mappings import PROC, MappedObject, TextSegment
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.programs.ledger_layout import MAX_SITES
from tlstax.collectors.recording.programs.site_cookies import cookie_of, lowest_level
from tlstax.collectors.recording.stream.function_points import (
    code_at,
    function_lines,
    read_functions,
)
from tlstax.probes.model import Level

FORMAT_VERSION: Final = 6
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%")
_WHOLE: Final = 1 << 62  # bytes: a file whose mappings are not known is one segment
_ABOUT: Final = ("libraries", "missing", "role_marks", "notes", "host_costs", "gaps")
_OWN_ABOUT: Final = ("missing", "notes", "gaps")
_SITE: Final = re.compile(
    r"(?:stretch-)?site (\d+) file=(\d+) offset=(0x[0-9a-f]+) event=(\w+) kind=(\w+)"
    r" from=(signature|handshake|connection|ledger) unless=(never|socket-tracepoints)"
    r" cookie=(0x[0-9a-f]+) price-ns=\d+ bytes=([0-9a-f]+) (\{.*\})"
)
_FILE: Final = re.compile(r"file (\d+) build-id=(none|[0-9a-f]+) path=(\S+)")
_HEAD: Final = """\
# What tlstax probes in one build of a server: see docs/plan-file.md. This file alone does nothing:
# `tlstax-recorder --plan FILE --pid N` compares builds and code with a process, then attaches.
"""


class PlanFileError(Exception):
    """A text is no plan file of this version; says the line and why."""


@dataclass(frozen=True)
class PlanFile:
    """A plan that is not for one process only."""

    plan: Plan
    exe: str
    architecture: str
    kernel: str
    safety: Safety
    objects: tuple[MappedObject, ...]
    stretches: Plan | None = None  # probed in calibration stretches, or where all is recorded
    functions: FunctionPlan | None = None

    def as_recorded(self, level: str) -> "PlanFile":
        """The plan that was probed: the recorder may choose that of the stretches."""
        if self.stretches is None or level != self.stretches.level.name.lower():
            return self
        return replace(self, plan=self.stretches, stretches=None)


def plan_file_text(
    target: Target,
    plan: Plan,
    safety: Safety,
    functions: FunctionPlan | None = None,
    stretches: Plan | None = None,
) -> str:
    """The plan of a process as text; `stretches` is that of calibration stretches.

    Raises TlstaxError if it has too many probes.
    """
    stretch_sites = stretches.sites if stretches else ()
    if max(len(plan.sites), len(stretch_sites)) > MAX_SITES:
        raise TlstaxError(
            f"cannot write a plan with {max(len(plan.sites), len(stretch_sites))} probes",
            f"the programs support at most {MAX_SITES}",
            "use fewer definitions",
            ExitCode.USAGE,
        )
    machine, release = _host_of(target.proc)
    objects = _files_of(target, plan, stretch_sites, functions)
    lines = [
        f"tlstax-plan {FORMAT_VERSION}",
        *_HEAD.splitlines(),
        f"architecture {machine}",
        f"kernel {release}",
        f"level {plan.level.name.lower()}",
        f"role {plan.role}",
        f"programs {'ledger_guarded' if safety.guarded else 'ledger'}",
        f"samples {_yes(safety.samples)}",
        f"user-stacks {_yes(safety.user_stacks)}",
        *(f"accessor {name} {offset}" for name, offset in plan.accessors.items() if offset >= 0),
        *(_file_line(number, mapped) for number, mapped in enumerate(objects)),
        *_span_lines(plan, objects),
        *_site_lines("site", plan, objects),
        *(_site_lines("stretch-site", stretches, objects) if stretches else ()),
        *(_stretch_lines(stretches, objects) if stretches else ()),
        *(function_lines(functions, objects) if functions else ()),
        f"about exe {json.dumps(target.exe)}",
        f"about safety {json.dumps([list(note) for note in safety.notes])}",
        *(f"about {key} {_json(plain_of(getattr(plan, key), objects))}" for key in _ABOUT),
    ]
    return "\n".join([*lines, f"end {len(lines) + 1}"]) + "\n"


def _host_of(proc: Path) -> tuple[str, str]:
    """Architecture and kernel release of the process's host."""
    if proc == PROC:
        return os.uname().machine, os.uname().release
    places = proc.parent / "machine", proc / "sys/kernel/osrelease"
    machine, release = (place.read_text(encoding="ascii").strip() for place in places)
    return machine, release


def _files_of(
    target: Target, plan: Plan, stretch_sites: Sequence[Site], functions: FunctionPlan | None
) -> list[MappedObject]:
    """The files that the plan speaks of, and the program."""
    used = {site.object for site in (*plan.sites, *stretch_sites)} | {target.program}
    used |= {mapped for library in plan.libraries for mapped in library.objects}
    used |= {probed.object for probed in functions.functions} if functions else set()
    for mark in plan.role_marks:
        for start, _ in mark.spans:
            used |= {
                mapped
                for mapped in target.objects
                if any(part.start <= start < part.end for part in mapped.segments)
            }
    return sorted(used, key=lambda mapped: (mapped.path, mapped.device, mapped.inode))


def _file_line(number: int, mapped: MappedObject) -> str:
    path = quote_from_bytes(os.fsencode(mapped.path), safe=_PLAIN)
    return f"file {number} build-id={mapped.build_id or 'none'} path={path or '-'}"


def _span_lines(plan: Plan, objects: Sequence[MappedObject]) -> Iterator[str]:
    number = 0
    for mark in plan.role_marks:
        for file, offset, length in plain_of(mark, objects)["spans"]:
            yield f"span {number} file={file} offset={offset:#x} length={length}"
            number += 1


def _site_lines(name: str, plan: Plan, objects: Sequence[MappedObject]) -> Iterator[str]:
    for number, site in enumerate(plan.sites):
        yield (
            f"{name} {number} file={objects.index(site.object)} {_words(number, site, plan)}"
            f" bytes={code_at(site).hex()} {_json(plain_of(site, objects))}"
        )


def _stretch_lines(stretches: Plan, objects: Sequence[MappedObject]) -> Iterator[str]:
    """What is said of the plan of stretches, where that differs from the plan itself."""
    said = {key: plain_of(getattr(stretches, key), objects) for key in _OWN_ABOUT}
    yield f"about stretches {_json(said)}"


def _words(number: int, site: Site, plan: Plan) -> str:
    """What the recorder does with a site; follows from its description."""
    covered = plan.covered_by_tracepoint(site)
    return (
        f"offset={site.file_offset:#x} event={site.event} kind={site.kind}"
        f" from={lowest_level(site)} unless={'socket-tracepoints' if covered else 'never'}"
        f" cookie={cookie_of(number, site):#x} price-ns={round(site.cost_ns)}"
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def require_no_plan(path: Path) -> None:
    """Raise TlstaxError (USAGE) where a plan file would not be written because it exists."""
    if os.path.lexists(path):
        raise _existing(path)


def _existing(path: Path) -> TlstaxError:
    return TlstaxError(
        f"cannot write the plan {path}",
        "the file exists",
        "choose another name, or give --force",
        ExitCode.USAGE,
    )


def write_plan_file(path: Path, text: str, overwrite: bool) -> None:
    """Write a plan file, or leave what is there.

    Raises TlstaxError: USAGE if it exists, IO if it cannot be written.
    """
    if not overwrite:
        require_no_plan(path)
    try:
        if is_stream(path):
            write_stream(path, text.encode())
        else:
            put_whole(path, text.encode(), None)
    except OSError as error:
        raise TlstaxError(
            f"cannot write the plan {path}",
            error.strerror or str(error),
            "choose another directory",
            ExitCode.IO,
        ) from error


# ---- reading ----


def read_plan_file(text: str) -> PlanFile:
    """The plan of a text. Raises PlanFileError."""
    lines = text.split("\n")
    if lines[0] != f"tlstax-plan {FORMAT_VERSION}":
        raise PlanFileError(f"line 1: it is no plan file of version {FORMAT_VERSION}")
    if len(lines) < 2 or lines[-1] or lines[-2] != f"end {len(lines) - 1}":
        raise PlanFileError("it was cut: the last line is not the end")
    try:
        return _read(lines[1:-2])
    except KeyError as error:
        raise PlanFileError(f"it has no line or value {error}") from None
    except (NoFitError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise PlanFileError(f"what it says of its probes does not fit together: {error}") from None


def _read(lines: list[str]) -> PlanFile:
    words: dict[str, str] = {}
    about: dict[str, Any] = {}
    accessors: dict[str, int] = {}
    objects: list[MappedObject] = []
    sites: dict[str, list[str]] = {"site": [], "stretch-site": []}
    of_functions: dict[str, list[str]] = {"function": [], "point": []}
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == "about":
            key, _, value = rest.partition(" ")
            about[key] = _plain(f"about {key}", value)
        elif name == "accessor":
            accessor, _, offset = rest.partition(" ")
            accessors[accessor] = int(offset)
        elif name == "file":
            objects.append(_object(line, len(objects)))
        elif name in sites:
            sites[name].append(line)
        elif name in of_functions:
            of_functions[name].append(line)
        elif name not in ("span", "") and not name.startswith("#"):
            words[name] = rest
    plain = {key: about[key] for key in _ABOUT} | {
        "pid": 0,
        "level": _level_number(words["level"]),
        "sites": [_site(number, line) for number, line in enumerate(sites["site"])],
        "accessors": accessors,
        "role": words["role"],
        "refused": [],
    }
    plan: Plan = made_of(Plan, plain, objects)
    _require_words(sites["site"], plan)
    stretches: Plan | None = None
    if lines_of_stretches := sites["stretch-site"]:
        plain |= {"level": int(Level.RECORD), **about["stretches"]}
        plain["sites"] = [_site(number, line) for number, line in enumerate(lines_of_stretches)]
        stretches = made_of(Plan, plain, objects)
        _require_words(lines_of_stretches, stretches)
    notes = tuple(Note(str(hazard), str(text)) for hazard, text in about["safety"])
    safety = Safety(
        samples=words["samples"] == "yes",
        user_stacks=words["user-stacks"] == "yes",
        guarded=words["programs"] == "ledger_guarded",
        notes=notes,
    )
    exe = str(about["exe"])
    if exe not in {each.path for each in objects}:
        raise PlanFileError("the program is none of the files")
    functions = read_functions(
        of_functions["function"], of_functions["point"], about.get("functions"), objects
    )
    host = words["architecture"], words["kernel"]
    return PlanFile(plan, exe, *host, safety, tuple(objects), stretches, functions)


def _require_words(lines: Sequence[str], plan: Plan) -> None:
    for number, (line, site) in enumerate(zip(lines, plan.sites, strict=True)):
        if _words(number, site, plan) not in line:
            raise PlanFileError(f"site {number}: its words are not those of its description")


def _object(line: str, number: int) -> MappedObject:
    match = _FILE.fullmatch(line)
    if match is None or int(match[1]) != number:
        raise PlanFileError(f"file {number}: not a file with its build-id and path")
    path = "" if match[3] == "-" else os.fsdecode(unquote_to_bytes(match[3]))
    segment = TextSegment(0, _WHOLE, 0)
    build_id = "" if match[2] == "none" else match[2]
    return MappedObject(path, "", "0:0", number, build_id, False, (segment,))


def _site(number: int, line: str) -> dict[str, Any]:
    match = _SITE.fullmatch(line)
    if match is None or int(match[1]) != number:
        raise PlanFileError(f"site {number}: not the words of a site")
    described = _plain(f"site {number}", match[10])
    if not isinstance(described, dict) or described.get("object") != int(match[2]):
        raise PlanFileError(f"site {number}: its file is not that of its description")
    return described


def _plain(line: str, value: str) -> Any:
    """What the JSON of a line says. Raises PlanFileError."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise PlanFileError(f"{line}: its value is not the JSON that tlstax writes") from None


def _level_number(name: str) -> int:
    return int(Level[name.upper()])
