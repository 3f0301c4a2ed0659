# SPDX-License-Identifier: GPL-2.0-only
"""Contents of a definition file: boundaries, accessors, roles and primitives of one library."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

# The order is that of the kernel side. tests/unit/probes/test_definitions.py keeps it equal to the
# vocabulary of the capture, which this stage may not import.
PHASES = (
    "unknown", "background", "idle", "connect", "handshake", "sign", "keygen", "derive", "verify",
    "certificate", "record_read", "record_write", "command", "tde", "disconnect",
)  # fmt: skip
DETAIL_PHASES = ("keygen", "derive", "verify", "certificate")
"""The parts of a handshake that level `signature` leaves out."""
ROLES = (
    "background", "connection", "pool_worker", "pool_timer", "binlog_dump", "replica_io",
    "replica_sql", "semisync_ack", "binlog", "acceptor", "page_io", "page_flush", "log_flush",
    "purge", "engine_task", "engine_monitor", "encryption", "event_scheduler", "signal_handler",
    "timer", "manager", "x_plugin", "wsrep",
)  # fmt: skip


class Level(IntEnum):
    """How much is probed, cheapest first. A boundary is planned from its own level upwards."""

    SAMPLE = 0
    SIGNATURE = 1  # handshakes, of their operations signatures
    HANDSHAKE = 2
    CONNECTION = 3  # which connections begin and end: for the ledger, and between its windows
    FLOW = 4  # commands by the kernel's socket events
    COMMAND = 5
    RECORD = 6


@dataclass(frozen=True)
class Action:
    """What the BPF programs do at a boundary, and what they need there."""

    events: tuple[str, ...]
    phase: str | None  # phase after it; None: the boundary names it; "": no change
    argument: int = -1  # index of the argument that must still be readable on entry


ACTIONS: Mapping[str, Action] = {
    "phase": Action(("enter", "exit"), None),
    "phase_open": Action(("enter",), None),
    "await_command": Action(("enter",), "record_read"),
    "base_connect": Action(("enter",), "connect"),
    "base_idle": Action(("exit",), "idle"),
    "base_disconnect": Action(("enter",), "disconnect"),
    "base_park": Action(("exit",), "idle"),
    "handshake_bound": Action(("enter", "exit"), "handshake"),
    "handshake_call": Action(("enter", "exit"), "handshake", argument=0),
    "handshake_group": Action(("enter",), "handshake", argument=1),
    "handshake_kem": Action(("enter",), "handshake", argument=1),
    "handshake_free": Action(("enter",), "handshake", argument=0),
    "wait": Action(("enter",), ""),
    "call": Action(("enter", "exit"), None),
    "phase_close": Action(("exit",), None),
    "base_pool": Action(("enter",), "record_read"),
    # From kernel 6.3 on, tracepoints cover the first and the end of the second: see
    # docs/how-it-measures.md. The second's third argument is the number of bytes to send.
    "await_receive": Action(("enter",), "record_read"),
    "phase_send": Action(("enter", "exit"), None, argument=2),
    "command_reads": Action(("enter",), ""),
    "crossing": Action(("enter",), ""),
    # Planned always, probed where the networks of clients are asked for: see Plan.as_asked.
    "handshake_socket": Action(("enter",), "", argument=1),
}
WAIT_STATES = ("blocked_network", "blocked_disk", "blocked_lock", "blocked_other")


@dataclass(frozen=True)
class Function:
    """One of the equivalent functions of a boundary."""

    pattern: str
    hits: float = 1.0  # how often it is called for each time the boundary is crossed

    def matches(self, name: str) -> bool:
        """Whether a symbol name matches."""
        return compile_names([self.pattern]).fullmatch(name) is not None


@dataclass(frozen=True)
class MethodTable:
    """How to find functions that are only called through a table of pointers."""

    getters: tuple[str, ...]  # each returns a table; those that the library lacks are left out
    setters: tuple[str, ...]  # each copies the slot of one of the functions into the connection
    missing: str  # consequence when the table cannot be read, one sentence


@dataclass(frozen=True)
class Boundary:
    """A place where a thread changes what it is doing."""

    id: str
    action: str
    functions: tuple[Function, ...]
    phase: str
    missing: str  # consequence for the report when no function is found, one sentence
    level: Level
    only_in: str = ""  # the phase that must be open, else the boundary is ignored
    method_table: MethodTable | None = None  # preferred to the functions
    blocking: bool = False  # it waits for the network itself: its result is final
    success: str = "one"  # what a handshake call returns when it is done: "one" or "zero"
    state: str = ""  # action "wait": what a futex wait in it waits for
    role: str = ""  # role of a thread that crossed it
    side: str = ""  # action "handshake_call": "server" or "client", "" when it serves both
    optional: bool = False  # without its functions the server lacks this operation
    equivalent: str = ""  # of the boundaries with the same mark only the cheapest is probed
    leaf: bool = False  # its functions call no code but the library's own
    output: int = -1  # index of the argument that is null in calls that only ask for its size
    only_with: str = ""  # a symbol that libraries define which have what it is about

    def is_probed_at(self, level: Level) -> bool:
        """Whether a plan of this level has it."""
        if level == Level.SIGNATURE and self.level == Level.HANDSHAKE:
            return self.phase not in DETAIL_PHASES
        return self.level <= level

    @property
    def per(self) -> str:
        """What crosses it once: a command, handshake, connection, wait or turn; "" if unknown."""
        if self.action == "wait" or (self.action == "phase" and self.phase == "idle"):
            return "wait"
        if self.action == "base_pool":
            return "turn"  # of a pool's thread, which waits for work
        if self.only_in == "handshake" or self.action.startswith("handshake"):
            return "handshake"
        if self.action.startswith("base") or self.phase in ("connect", "background"):
            return "connection"
        records = self.action == "phase" and self.phase.startswith("record")
        reads = self.action in ("await_command", "await_receive", "phase_open", "phase_send")
        return "command" if records or reads else ""

    @property
    def is_rare(self) -> bool:
        """Whether it is crossed at most once for each connection or handshake call."""
        return self.per in ("handshake", "connection")

    @property
    def events(self) -> tuple[str, ...]:
        """Which of "enter" and "exit" are probed."""
        return ACTIONS[self.action].events

    @property
    def argument(self) -> int:
        """Index of the argument that is read on entry, -1 for none."""
        return ACTIONS[self.action].argument


@dataclass(frozen=True)
class Role:
    """How the role of a thread that never serves a connection is recognised."""

    role: str  # of the capture's vocabulary
    names: tuple[str, ...]  # patterns (`*`) of the thread's own name
    functions: tuple[str, ...]  # patterns of functions that are open for as long as it lives
    main: bool  # it is the process's first thread


@dataclass(frozen=True)
class Accessor:
    """An exported function that only reads a field; its instructions contain the field's offset."""

    id: str
    function: str
    loads: int  # pointers followed, counting the field itself
    missing: str


@dataclass(frozen=True)
class Detection:
    """How a library is recognised in a process."""

    objects: tuple[str, ...]  # file name patterns (`*`) of the shared objects it lives in
    symbols: tuple[str, ...]  # all of them must be defined in its objects
    version_text: tuple[str, ...]  # literals inside it, for a fast search; the first found is used
    version_pattern: re.Pattern[str]  # must match the whole string; version = group 1 if any


CATEGORIES: Mapping[str, str] = {
    "cipher": "bulk encryption and decryption",
    "digest": "hashes and MACs",
    "asymmetric": "RSA, EC and DH operations",
    "kdf": "key derivation",
    "rng": "random numbers",
}
UNITS = ("record", "block", "call")
TYPES = ("int", "size_t")
ARGUMENTS_COUNT = 6  # integer arguments that are passed in registers
LARGEST_CONSTANT = (1 << 16) - 1


@dataclass(frozen=True)
class Size:
    """Where the number of bytes that a call works on is read."""

    source: str = "none"  # none, constant, argument or returned
    value: int = 0  # the constant in bytes, or the index of the argument
    wide: bool = False  # the argument or result has 64 bits

    def __str__(self) -> str:
        """As text, for plans and captures."""
        return {
            "none": "",
            "constant": f"{self.value} a call",
            "argument": f"argument {self.value}",
            "returned": "returned",
        }[self.source]


@dataclass(frozen=True)
class Primitive:
    """One function of the library, under all its names."""

    id: str
    category: str
    unit: str
    functions: tuple[Function, ...]  # names of the same function, best first
    size: Size
    on_request: bool = False


def compile_names(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for several name patterns; use it with fullmatch."""
    return re.compile("|".join(map(_expression, patterns)), re.ASCII)


def _expression(pattern: str) -> str:
    """A name pattern as an expression whose time grows with name times pattern, not faster.

    Each part between two stars is taken where it occurs first and never again elsewhere (an atomic
    group): if the rest of the name fits behind a later occurrence, it fits behind the first one,
    too, as whatever lies between is letters, digits and underscores.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return re.escape(first)
    *middle, last = rest
    parts = "".join(rf"(?>\w*?{re.escape(part)})" for part in middle if part)
    return rf"{re.escape(first)}{parts}\w*{re.escape(last)}"


@dataclass(frozen=True)
class Definition:
    """One library or server."""

    id: str
    kind: str  # "tls", "server", or "client" (a library that connects to servers)
    name: str
    detect: Detection
    boundaries: tuple[Boundary, ...]
    accessors: tuple[Accessor, ...] = field(default=())
    roles: tuple[Role, ...] = field(default=())
    primitives: tuple[Primitive, ...] = field(default=())
