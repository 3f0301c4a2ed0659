# SPDX-License-Identifier: GPL-2.0-only
"""Where to probe the primitives of a TLS library (`--functions`).

A function is counted at its entry and timed from there to its return. Where the return probe would
be single-stepped (it sits on the function's first instruction), a call that occurs for each record
or block is counted only: the second trap costs twenty times the first. Asymmetric operations are
rare and long enough to be timed even so. Functions of the server (a user's own definitions may name
them) have no return probe, see `return_probes`.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf, Symbol
from tlstax.collectors.placement.detection import Detected, detect
from tlstax.collectors.placement.limits import forbidden
from tlstax.collectors.placement.model import (
    MAX_FUNCTIONS,
    NO_LIMITS,
    FunctionPlan,
    Limits,
    ProbedFunction,
    Site,
)
from tlstax.collectors.placement.placement import points_of
from tlstax.collectors.placement.probe_points import PlacedProbes, ProbePoint
from tlstax.collectors.placement.return_probes import return_probe_allowed
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.target import Target
from tlstax.probes.model import Definition, Primitive
from tlstax.probes.primitives import choose

ACTION = "function"


def plan_functions(
    target: Target,
    definitions: Sequence[Definition],
    names: Sequence[str],
    limits: Limits = NO_LIMITS,
) -> FunctionPlan:
    """Plan every probe for the primitives that the names select, see plan_functions_in_child.

    `limits`: kinds of probes that the plan may not have. Without its exits a function is counted
    only; without its entry it is left out, and named.
    """
    wanted = choose(definitions, names)
    found: list[ProbedFunction] = []
    absent: list[str] = []
    unsafe: list[str] = []
    with ExitStack() as resources:
        for library in detect(target, definitions, resources):
            for primitive in wanted.get(library.definition.id, ()):
                placed = _place(primitive, library, limits)
                safe = [one for one in placed if not _forbidden(one.sites, limits)]
                found += safe
                if not safe:
                    (unsafe if placed else absent).append(primitive.id)
    if unsafe and not found:
        raise TlstaxError(
            f"--functions {','.join(names)}: process {target.pid} ({target.name}) is not probed",
            "all probes that would see these functions are of kinds that are not safe here",
            "Choose other categories; `tlstax doctor PID` says what is not safe, and why",
            ExitCode.HOST,
        )
    if not found:
        raise TlstaxError(
            f"--functions {','.join(names)}: process {target.pid} ({target.name}) has none of them",
            "no TLS library in it defines a function of these categories",
            "Choose other categories; `tlstax probes plan` shows what the process contains",
            ExitCode.TARGET,
        )
    if len(found) >= MAX_FUNCTIONS:
        raise TlstaxError(
            f"--functions {','.join(names)}: {len(found)} functions are too many",
            f"the limit is {MAX_FUNCTIONS - 1}",
            "Choose fewer categories, or single primitives by id",
            ExitCode.USAGE,
        )
    return FunctionPlan(target.pid, tuple(found), tuple(absent), tuple(names), tuple(unsafe))


def _forbidden(sites: Sequence[Site], limits: Limits, event: str = "") -> str:
    """Why one of the sites, or of those of an event, may not be probed; "": all may."""
    if limits == NO_LIMITS:
        return ""
    reasons = (forbidden(site, limits) for site in sites if event in ("", site.event))
    return next(filter(None, reasons), "")


def _place(primitive: Primitive, library: Detected, limits: Limits) -> list[ProbedFunction]:
    """The function in each object that defines it, under the first of its names found there."""
    chosen: dict[MappedObject, tuple[Elf, Symbol]] = {}
    for function in primitive.functions:
        for mapped, elf, symbol in library.functions(function):
            chosen.setdefault(mapped, (elf, symbol))
    placed = []
    for mapped, (elf, symbol) in chosen.items():
        probed = _probe(primitive, mapped, elf, symbol, library.definition.kind, limits)
        if probed is not None:
            placed.append(probed)
    return placed


def _probe(
    primitive: Primitive,
    mapped: MappedObject,
    elf: Elf,
    symbol: Symbol,
    kind: str,
    limits: Limits,
) -> ProbedFunction | None:
    argument = primitive.size.value if primitive.size.source == "argument" else -1
    returned = primitive.size.source == "returned"
    points = points_of(elf, symbol, ("enter", "exit"), argument, returned)
    if not points:
        return None
    exits = [point for event, point in points if event == "exit"]
    why = _why_not_timed(primitive, symbol, exits, kind)
    placed = _sites(primitive, mapped, elf, points) if not why else ()
    why = why or _forbidden(placed, limits, "exit")
    if why:
        placed = _sites(primitive, mapped, elf, points_of(elf, symbol, ("enter",), argument))
    return ProbedFunction(primitive, symbol.name, mapped, placed, why) if placed else None


def _sites(
    primitive: Primitive, mapped: MappedObject, elf: Elf, points: PlacedProbes
) -> tuple[Site, ...]:
    """All of the points, or none if one of them is in no part of the file."""
    sites = [_site(primitive, event, mapped, elf, point) for event, point in points]
    placed = tuple(site for site in sites if site is not None)
    return placed if len(placed) == len(sites) else ()


def _why_not_timed(
    primitive: Primitive, symbol: Symbol, exits: Sequence[ProbePoint], kind: str
) -> str:
    """Why the exits are not probed, or "". `kind`: of the definition."""
    for point in exits:
        if point.kind == "uretprobe" and not return_probe_allowed(kind, leaf=True):
            return "only a return probe shows its end, and functions of the server have none"
        if point.function != symbol.name:
            return f"it ends with a tail call of {point.function}, which has other callers"
        if not point.emulated and primitive.category != "asymmetric":
            return f"a probe on its return would be single-stepped ({point.instruction})"
    return "" if exits else "no probe point on its return was found"


def _site(
    primitive: Primitive, event: str, mapped: MappedObject, elf: Elf, point: ProbePoint
) -> Site | None:
    offset = elf.to_offset(point.address)
    if offset is None:
        return None
    read = {"argument": "enter", "returned": "exit"}.get(primitive.size.source)
    return Site(
        boundary=primitive.id,
        action=ACTION,
        phase="",
        event=event,
        function=point.function,
        object=mapped,
        file_offset=offset,
        virtual_address=point.address,
        instruction=point.instruction,
        kind=point.kind,
        stepped=not point.emulated,
        register=point.register if event == read else "",
        stack_bytes=point.stack_bytes,
        only_in="",
        reason=point.reason,
    )
