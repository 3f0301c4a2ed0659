# SPDX-License-Identifier: GPL-2.0-only
"""What a plan consists of: libraries found, probes to attach, and what is missing."""

from dataclasses import dataclass, field
from typing import Final

from tlstax.collectors.host.prices import HostCosts
from tlstax.collectors.process.mappings import MappedObject
from tlstax.probes.model import Level, Primitive

# What tells a boundary without a probe (see probes/bpf/pending.bpf.h). The kernel has both or none.
KERNEL_EVENTS: Final = {
    ("await_receive", "enter"): "sock_recv_length",
    ("phase_send", "exit"): "sock_send_length",
}


@dataclass(frozen=True)
class Site:
    """One probe to attach.

    `virtual_address` is the file's own (its symbol table's), `file_offset` what the kernel takes.
    """

    boundary: str
    action: str
    phase: str  # the phase that begins or ends here, "" when the action changes none
    event: str  # "enter" or "exit"
    function: str  # symbol, or [object+0x...] for the unnamed target of a tail call
    object: MappedObject
    file_offset: int
    virtual_address: int
    instruction: str
    kind: str  # "uprobe" or "uretprobe"
    stepped: bool
    register: str  # that holds the argument, or what the function returns; "" when none is read
    stack_bytes: int  # what the stack pointer lacks to its value where the function is entered,
    # for an exit: to its value in the caller, after the return
    only_in: str  # phase that must be open, "" for any
    reason: str  # why here, one clause
    blocking: bool = False  # the function waits for the network itself: its return is final
    success: str = "one"  # what a handshake call returns when it is done
    state: str = ""  # of futex waits between entry and exit, "" where the kernel's word stands
    role: str = ""  # what a thread is from here on, "" for no change
    side: str = ""  # of a handshake: "server", "client", or "" where the function serves both
    cost_ns: float = 0.0  # expected, of one hit beside the plan's other probes: prices.hit_costs_ns
    per: str = ""  # what it is hit once for: "command", "handshake", "connection"; "" not known
    hits: float = 1.0  # how often, if its function is called more often than that

    @property
    def kernel_event(self) -> str:
        """The tracepoint that makes the probe needless on kernels that have it, "" for none."""
        return KERNEL_EVENTS.get((self.action, self.event), "")


@dataclass(frozen=True)
class Missing:
    """A boundary or accessor that cannot be had, and what the report loses by it."""

    boundary: str
    functions: tuple[str, ...]
    consequence: str
    why: str = ""


@dataclass(frozen=True)
class Refused:
    """A placement that was not chosen."""

    boundary: str
    function: str
    what: str  # a way of placing it, or the function itself
    why: str  # one clause


@dataclass(frozen=True)
class RoleMark:
    """What tells a thread's role: its name, or a function that it never leaves."""

    role: str
    names: tuple[str, ...]  # patterns (`*`)
    spans: tuple[tuple[int, int], ...]  # [start, end) of functions, addresses of the process
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
    role_marks: tuple[RoleMark, ...] = ()  # what tells the roles of its threads
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()  # what is unusual about the process, one sentence each
    host_costs: HostCosts = field(default_factory=HostCosts)
    gaps: tuple[Missing, ...] = ()  # what names are lacking beyond those of the boundaries

    def covered_by_tracepoint(self, site: Site) -> bool:
        """Whether a kernel that has the events tells what the site's probe would.

        That a command is awaited must be known before the first one: where no boundary says that
        the connection is ready, the function that reads commands is probed after all.
        """
        if site.action == "await_receive":
            return any(other.action == "base_idle" for other in self.sites)
        return bool(site.kernel_event)

    def library(self, kind: str) -> Library | None:
        """The first recognised library of a kind."""
        return next((entry for entry in self.libraries if entry.kind == kind), None)


MAX_FUNCTIONS = (
    64  # that the programs tell apart (probes/bpf/functions.h), one is the calibration's
)


@dataclass(frozen=True)
class ProbedFunction:
    """A function in one object of the target, with its probes."""

    primitive: Primitive
    function: str  # symbol
    object: MappedObject
    sites: tuple[Site, ...]
    why_not_timed: str  # "" where it is timed, else it is counted only


@dataclass(frozen=True)
class FunctionPlan:
    """What would be probed, and what was asked for and is not in the target."""

    pid: int
    functions: tuple[ProbedFunction, ...]
    absent: tuple[str, ...]  # ids of primitives
