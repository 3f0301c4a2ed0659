# SPDX-License-Identifier: GPL-2.0-only
"""A plan for a process of another host, made here from what its recorder tells."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.host.socket_events import SocketSource
from tlstax.collectors.placement.model import FunctionPlan, Plan
from tlstax.collectors.placement.planning import plan_functions_in_child, plan_in_child
from tlstax.collectors.preflight.examination import examine_elsewhere
from tlstax.collectors.preflight.hazards import load_hazards
from tlstax.collectors.preflight.judge import Finding, Status
from tlstax.collectors.preflight.safety import Safety, at_level, restrictions, safety_of
from tlstax.collectors.process.control_groups import Group
from tlstax.collectors.process.find_process import find_all, find_in_group
from tlstax.collectors.process.target import Target
from tlstax.collectors.process.usable_cpus import usable_cpus_count
from tlstax.collectors.recording.safe_request import require_functions
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.tables_file import process_tables, tables_bytes
from tlstax.collectors.remote.connection import Tell
from tlstax.collectors.remote.image import SOCKETS_FACT, Image
from tlstax.collectors.remote.remote_prices import costs_there
from tlstax.probes.model import Level

_ANYWHERE: Final = Group()


@dataclass(frozen=True)
class PlanRequest:
    """What to plan."""

    pid: int | None
    name: str | None  # of the process, where there is no pid; None: `group` says which it is
    level: Level = Level.RECORD
    role: str = "server"
    definitions: Path | None = None  # further ones
    accepted: Sequence[str] = ()
    group: Group = _ANYWHERE  # what it must belong to
    has_stretches: bool = False  # at level flow: also the probes of calibration stretches
    has_networks: bool = False  # the networks of clients are asked for
    chooses_level: bool = False  # without socket events everything is recorded, not `command`
    functions: tuple[str, ...] = ()  # primitives to count, by category or id

    def of_client(self) -> "PlanRequest":
        """The same for a client of this server, without what is of servers only."""
        common = self.definitions, self.accepted
        return PlanRequest(None, None, self.level, "client", *common)


@dataclass(frozen=True)
class RemotePlan:
    """The plan of a process, and what preflight found."""

    target: Target
    plan: Plan
    safety: Safety
    findings: tuple[Finding, ...]
    stretches: Plan | None = None
    functions: FunctionPlan | None = None

    @property
    def sockets(self) -> SocketSource:
        """What events of sockets come from there."""
        return _sockets(self.target.proc)

    def tables(self) -> bytes:
        """The unwind tables of the process, as a file; only while the image is there.

        b"" where stacks are not to be walked by them, or no file has one. Raises TlstaxError.
        """
        if not self.safety.user_stacks:
            return b""
        made = process_tables(self.target.pid, self.target.proc, self.target.objects)
        return tables_bytes(made.layout, made.words) if made else b""

    def text(self) -> str:
        """As a plan file; only while the image is there."""
        rest = self.functions, self.stretches
        return plan_file_text(self.target, self.plan, self.safety, *rest)


def _sockets(proc: Path) -> SocketSource:
    """What the recorder found there by trial."""
    fact = proc.parent / SOCKETS_FACT
    text = fact.read_text(errors="replace") if fact.is_file() else ""
    return SocketSource(text) if text in set(SocketSource) else SocketSource.NONE


def find(image: Image, request: PlanRequest) -> int:
    """The pid of the process. Raises TlstaxError (TARGET)."""
    if request.pid is not None:
        return request.pid
    return find_in_group(request.group, _add_candidates(image, request), image.proc)


def _add_candidates(image: Image, request: PlanRequest) -> str:
    """Bring in the processes that the one may be among; its name, "" if only its group counts."""
    if request.name is not None:
        image.add_named(request.name)
    elif word := request.group.word:
        image.add_grouped(word)
    return request.name or ""


def fetch(image: Image, request: PlanRequest, tell: Tell) -> int:
    """Bring the process into the image; its pid. Raises TlstaxError."""
    pid = find(image, request)
    image.add_process(pid, SYMBOLS, tell)
    return pid


def find_servers(image: Image, request: PlanRequest) -> list[int]:
    """The pids of all such processes. Raises TlstaxError (TARGET) if there is none."""
    return find_all(request.group, _add_candidates(image, request), image.proc)


def findings_on(image: Image, pid: int, accepted: Collection[str]) -> tuple[Finding, ...]:
    """The hazards of a process of the image. Raises TlstaxError."""
    return run_in_child("Preflight", lambda: examine_elsewhere(pid, accepted, image.proc))


def plan_there(
    image: Image, pid: int, request: PlanRequest, tell: Tell, *, refuse: bool
) -> RemotePlan:
    """Examine a process of the image and plan for it.

    `refuse`: raise TlstaxError where preflight refuses a recording, or functions in it. Hits are
    priced by that host: last, and only where preflight lets it be probed. Where the probes are does
    not depend on it, so hosts with the same build share a kept plan.
    """
    findings = findings_on(image, pid, request.accepted)
    safety = safety_of(pid, findings) if refuse else restrictions(findings)
    sockets = _sockets(image.proc)
    is_without = sockets == SocketSource.NONE
    asked = Level.RECORD if request.chooses_level and is_without else request.level
    safety, level = at_level(safety, asked, sockets)
    if request.functions and refuse:
        require_functions(safety)
    rest = request.definitions, request.role, safety.limits, image.proc
    networks = request.has_networks
    target, plan = plan_in_child(pid, level, *rest, networks=networks)
    stretches = None
    if request.has_stretches and plan.is_flow:
        stretches = plan_in_child(pid, Level.RECORD, *rest, networks=networks)[1]
    functions = None
    if request.functions:
        of_functions = pid, request.functions, request.definitions, safety.limits, image.proc
        functions = plan_functions_in_child(*of_functions)
    if plan.sites or (stretches and stretches.sites):
        refused = next((f.why for f in findings if f.status == Status.REFUSED), "")
        costs = costs_there(image, refused and f"preflight: {refused}", tell)
        costs = costs.on(usable_cpus_count(pid, image.proc))
        plan = plan.priced(costs)
        stretches = stretches and stretches.priced(costs)
    return RemotePlan(target, plan, safety, findings, stretches, functions)


SYMBOLS: Final = tuple(sorted({hazard.symbol for hazard in load_hazards() if hazard.symbol}))
"""Functions of the kernel by which preflight tells whether it has a fault."""
