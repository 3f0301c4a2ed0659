# SPDX-License-Identifier: GPL-2.0-only
"""What a plan consists of: libraries found, probes to attach, and what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tlstax.collectors.host.probe_costs.prices import HostCosts, Prices, Probe, hit_costs_ns
from tlstax.collectors.process.mappings import MappedObject
from tlstax.probes.model import Level, Primitive

# Tracepoints that replace probes (see probes/bpf/pending.bpf.h). A kernel has both or none.
KERNEL_EVENTS: Final = {
    ("await_receive", "enter"): "sock_recv_length",
    ("phase_send", "exit"): "sock_send_length",
}


SOCKET_BOUNDARY: Final = "handshake_socket"
"""The boundary at which a connection gets its socket."""


@dataclass(frozen=True)
class Site:
    """One probe to attach.

    `virtual_address` is that of the file's symbol table; `file_offset` is passed to the kernel.
    """

    boundary: str
    action: str
    phase: str  # the phase that begins or ends here, "" if the action changes none
    event: str  # "enter" or "exit"
    function: str  # symbol, or [object+0x...] for the unnamed target of a tail call
    object: MappedObject
    file_offset: int
    virtual_address: int
    instruction: str
    kind: str  # "uprobe" or "uretprobe"
    stepped: bool
    register: str  # that holds the argument or the result; "" if none is read
    stack_bytes: int  # to add to the stack pointer for its value where the function is entered,
    # for an exit: for its value in the caller, after the return
    only_in: str  # phase that must be open, "" for any
    reason: str  # why this instruction, one clause
    blocking: bool = False  # the function waits for the network itself: its return is final
    success: str = "one"  # what a handshake call returns when it is done
    state: str = ""  # of futex waits between entry and exit, "" to use the kernel's
    role: str = ""  # what a thread is from here on, "" for no change
    side: str = ""  # of a handshake: "server", "client", or "" where the function serves both
    cost_ns: float = 0.0  # expected, of one hit, with the plan's other probes: hit_costs_ns
    per: str = ""  # of Boundary: one hit for each of these
    hits: float = 1.0  # hits per command, handshake or connection
    condition: int = -1  # an exit on a conditional jump: condition code that must hold, -1: any
    stray: bool = False  # an exit that is also crossed when the function was not entered
    unseen_exits: bool = False  # an entry whose exits have no probes, or not all of them

    @property
    def kernel_event(self) -> str:
        """The tracepoint that replaces the probe on kernels that have it, "" for none."""
        return KERNEL_EVENTS.get((self.action, self.event), "")


@dataclass(frozen=True)
class Missing:
    """A boundary or accessor that is unavailable, and what the report lacks without it."""

    boundary: str
    functions: tuple[str, ...]
    consequence: str
    why: str = ""


@dataclass(frozen=True)
class Refused:
    """A placement that was not chosen."""

    boundary: str
    function: str
    what: str  # a kind of placement, or the function itself
    why: str  # one clause


@dataclass(frozen=True)
class RoleMark:
    """How to recognise a thread's role: its name, or a function that it never leaves."""

    role: str
    names: tuple[str, ...]  # patterns (`*`)
    spans: tuple[tuple[int, int], ...]  # [start, end) of functions, process addresses
    main: bool = False  # the process's first thread


@dataclass(frozen=True)
class Library:
    """A TLS library, client library or server recognised in the target."""

    id: str
    kind: str  # "tls", "client" or "server"
    name: str
    version: str  # "" when no version string was found
    linkage: str  # "shared", "static" (inside the program); "program" for a server
    objects: tuple[MappedObject, ...]


@dataclass(frozen=True)
class Plan:
    """What would be attached to a target."""

    pid: int
    level: Level
    libraries: tuple[Library, ...]
    sites: tuple[Site, ...]
    missing: tuple[Missing, ...]
    accessors: dict[str, int] = field(default_factory=dict)  # field offset in bytes, -1 unknown
    role: str = "server"  # what the target is in its connections, a TARGET_ROLE
    role_marks: tuple[RoleMark, ...] = ()  # how to recognise the roles of its threads
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()  # what is unusual about the process, one sentence each
    host_costs: HostCosts = field(default_factory=HostCosts)
    gaps: tuple[Missing, ...] = ()  # missing names, except those of boundaries

    def priced(self, host_costs: HostCosts) -> "Plan":
        """The same probes with what a hit of each costs on a host."""
        sites = priced_sites(self.sites, host_costs.prices)
        return replace(self, sites=sites, host_costs=host_costs)

    def as_asked(self, *, networks: bool) -> "Plan":
        """The plan without what only serves the networks of clients, unless these are asked for."""
        if networks:
            return self
        return replace(
            self,
            sites=tuple(site for site in self.sites if site.boundary != SOCKET_BOUNDARY),
            missing=tuple(lost for lost in self.missing if lost.boundary != SOCKET_BOUNDARY),
            refused=tuple(one for one in self.refused if one.boundary != SOCKET_BOUNDARY),
        )

    @property
    def has_networks(self) -> bool:
        """Whether it is seen from where clients connect."""
        return any(site.boundary == SOCKET_BOUNDARY for site in self.sites)

    @property
    def is_flow(self) -> bool:
        """Whether the kernel's socket events alone tell commands."""
        return self.level == Level.FLOW and self.role == "server"

    def covered_by_tracepoint(self, site: Site) -> bool:
        """Whether tracepoints replace the site's probe on a kernel that has them.

        The wait for the first command must be known too: if no boundary marks the connection as
        ready, the function that reads commands is probed even so.
        """
        if site.action == "await_receive":
            return any(other.action == "base_idle" for other in self.sites)
        return bool(site.kernel_event)

    def library(self, kind: str) -> Library | None:
        """The first recognised library of a kind."""
        return next((entry for entry in self.libraries if entry.kind == kind), None)


def priced_sites(sites: Sequence[Site], prices: Prices) -> tuple[Site, ...]:
    """The sites with the cost of a hit of each; traps are shared."""
    probes = [
        Probe((site.object, site.file_offset), site.kind == "uretprobe", not site.stepped)
        for site in sites
    ]
    costs_ns = hit_costs_ns(prices, probes)
    return tuple(
        replace(site, cost_ns=cost_ns) for site, cost_ns in zip(sites, costs_ns, strict=True)
    )


@dataclass(frozen=True)
class Limits:
    """Kinds of probes that a plan may have, as far as this kernel and this target bear them."""

    return_probes: bool = True
    nop5: bool = True  # probes on a 5-byte nop, which newer kernels replace by a call
    stepped: bool = True  # probes on instructions that are single-stepped


NO_LIMITS: Final = Limits()
MAX_FUNCTIONS = 64  # limit of probes/bpf/functions.h; one is for the calibration


@dataclass(frozen=True)
class ProbedFunction:
    """A function in one object of the target, with its probes."""

    primitive: Primitive
    function: str  # symbol
    object: MappedObject
    sites: tuple[Site, ...]
    why_not_timed: str  # why it is only counted; "" if it is timed


@dataclass(frozen=True)
class FunctionPlan:
    """The functions to probe, and the requested ones that the target lacks."""

    pid: int
    functions: tuple[ProbedFunction, ...]
    absent: tuple[str, ...]  # ids of primitives
    asked: tuple[str, ...]  # categories or ids
    unsafe: tuple[str, ...] = ()  # ids of primitives that only a forbidden probe could count
