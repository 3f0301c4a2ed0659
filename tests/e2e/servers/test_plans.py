# SPDX-License-Identifier: GPL-2.0-only
"""Every probe planned for a real server, checked again from the bytes of its files.

Nothing of the planner is used for that: what the kernel emulates is told by opcodes here, and
whether a function has an instruction that would have served by a search of its own.

MariaDB and MySQL 5.6 by default; TLSTAX_SERVERS names others of the catalogue (make test-servers).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from iced_x86 import Decoder, FlowControl, Instruction

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.binary.instructions import TRIAL_FORMS
from tlstax.collectors.host.features import HOST
from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.workloads.servers.catalogue import find_kind
from tlstax.workloads.servers.lab_server import open_server
from tlstax.workloads.servers.mariadb import PrivateServer

SERVERS = os.environ.get("TLSTAX_SERVERS", "mariadb mysql56").split()
STATIC = ("mysql56", "mysql57", "mariadb102", "mariadb1011")
# push of a 64-bit register; nop; jmp; call; jcc: with the one prefix that the kernel lets pass.
OPCODES = re.compile(
    rb"(?:\x41?[\x50-\x57]|\x90|[\xf2\x2e\x3e]?(?:[\xeb\xe9\xe8\x70-\x7f]|\x0f[\x80-\x8f]))",
    re.DOTALL,
)
LIMIT_BYTES = 4096


@pytest.fixture(params=SERVERS)
def server(
    request: pytest.FixtureRequest, npm: None, lab_directory: Path
) -> Iterator[PrivateServer]:
    """A running server of the catalogue."""
    with open_server(find_kind(str(request.param))) as running:
        yield running


@pytest.fixture(scope="module")
def emulated_bytes() -> set[bytes]:
    """Instructions that this kernel emulates beside those of every kernel, as it was tried."""
    return {TRIAL_FORMS[name].code for name in HOST.emulated_forms.ask()}


@pytest.mark.root
@pytest.mark.needs("uprobes", "btf")
def test_no_probe_is_single_stepped_where_another_place_serves(
    server: PrivateServer, request: pytest.FixtureRequest, emulated_bytes: set[bytes]
) -> None:
    _, plan = plan_in_child(server.pid)
    assert len(plan.sites) > 20
    for site in plan.sites:
        with Elf(site.object.open_path) as elf:
            assert elf.build_id == site.object.build_id
            raw = elf.slice(site.file_offset, 16)
            instruction = next(iter(Decoder(64, raw, ip=site.virtual_address)))
            own = raw[: instruction.len]
            emulated = OPCODES.match(own) is not None or own in emulated_bytes
            assert site.stepped is not emulated, site
            if site.stepped:
                assert site.reason.startswith("stepped: no emulated instruction on every path"), (
                    site
                )
                assert serving(elf, site) == [], site
            if site.kind == "uretprobe":
                assert stack_is_as_on_entry(elf, site), site
    check_prices(plan)
    name = request.node.callspec.params["server"]
    if name in STATIC:
        assert all(site.blocking == (site.action == "handshake_call") for site in plan.sites)
    # What a handshake or a command needs is had on all of them for the price of single traps.
    assert [site.boundary for site in plan.sites if site.stepped] == []


def check_prices(plan: Plan) -> None:
    """Of each instruction one trap is paid, and one return if any probe on it waits for that."""
    prices = plan.host_costs.prices
    assert plan.host_costs.measured
    probes: dict[tuple[str, int], list[Site]] = {}
    for site in plan.sites:
        probes.setdefault((site.object.open_path, site.file_offset), []).append(site)
    for sites in probes.values():
        price_ns = prices.stepped_ns if sites[0].stepped else prices.emulated_ns
        if any(site.kind == "uretprobe" for site in sites):
            price_ns += prices.return_ns
        assert sum(site.cost_ns for site in sites) == pytest.approx(price_ns), sites


def function_of(elf: Elf, site: Site) -> tuple[int, int] | None:
    """Bounds of the function that a site lies in, by its symbol."""
    found = elf.find(re.compile(re.escape(site.function)))
    return (found[0].address, found[0].address + (found[0].size or LIMIT_BYTES)) if found else None


def block_from(elf: Elf, start: int, end: int) -> Iterator[Instruction]:
    """Instructions from an address up to where the way parts for the first time."""
    for instruction in Decoder(64, elf.code_at(start, end - start), ip=start):
        yield instruction
        if instruction.flow_control != FlowControl.NEXT:
            return


def serving(elf: Elf, site: Site) -> list[Instruction]:
    """Emulated instructions that a return probe could be on: first in line, the stack unmoved."""
    bounds = function_of(elf, site)
    found: list[Instruction] = []
    for instruction in block_from(elf, *bounds) if bounds else ():
        if OPCODES.match(elf.code_at(instruction.ip, instruction.len)):
            found.append(instruction)
        if moves_stack(instruction):
            break
    return found


def stack_is_as_on_entry(elf: Elf, site: Site) -> bool:
    """Whether nothing between the function's start and the site moves the stack pointer.

    Only for sites in the first block; further ones are behind jumps, and are refused here.
    """
    bounds = function_of(elf, site) or (site.virtual_address, site.virtual_address + 16)
    if not bounds[0] <= site.virtual_address < bounds[1]:
        return False
    moved = False
    for instruction in block_from(elf, *bounds):
        if instruction.ip == site.virtual_address:
            return not moved
        moved = moved or moves_stack(instruction)
    # A jump into the function: the stack is popped again, which the text of the jump shows.
    return site.instruction.startswith("jmp")


def moves_stack(instruction: Instruction) -> bool:
    """Whether it pushes, pops, or writes the stack pointer."""
    return instruction.stack_pointer_increment != 0 or "sp," in str(instruction).partition(" ")[2]
