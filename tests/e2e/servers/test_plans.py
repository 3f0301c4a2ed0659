# SPDX-License-Identifier: GPL-2.0-only
"""Every probe planned for a real server, checked again from the bytes of its files.

Nothing of the planner is used for that: what the kernel emulates is told by opcodes here. A return
probe ends a server whose exceptions pass it, so there is none.

MariaDB and MySQL 5.6 by default; TLSTAX_SERVERS names others of the catalogue (make test-servers).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from iced_x86 import Decoder

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
RET = b"\xc3"
RARE = {"handshake", "connection"}
WITH_EXIT = {"handshake_call", "handshake_bound", "base_idle", "base_park", "phase_send"}
PHASES_WITH_EXIT = {"connect", "sign", "keygen", "derive", "verify", "certificate", "background"}


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
def test_no_return_probe_and_single_steps_only_at_returns_of_what_is_rare(
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
                assert own == RET, site
                assert (site.event, site.per in RARE) == ("exit", True), site
    check_prices(plan)
    check_exits(plan)
    name = request.node.callspec.params["server"]
    if name in STATIC:
        assert all(site.blocking == (site.action == "handshake_call") for site in plan.sites)
    # What a command needs is had on all of them for the price of single traps.
    assert {site.per for site in plan.sites if site.stepped} <= RARE


def check_exits(plan: Plan) -> None:
    """No return probe anywhere, and an end of everything that must have one."""
    assert {site.kind for site in plan.sites} == {"uprobe"}
    ended = {site.boundary for site in plan.sites if site.event == "exit"}
    for site in plan.sites:
        is_operation = site.action == "phase" and site.phase in PHASES_WITH_EXIT
        # What the server does as a client of another server may end at the next boundary.
        is_seen = site.side == "client" and site.unseen_exits
        if (site.action in WITH_EXIT or is_operation) and not is_seen:
            assert site.boundary in ended, site


def check_prices(plan: Plan) -> None:
    """Of each instruction one trap is paid."""
    prices = plan.host_costs.prices
    assert plan.host_costs.measured
    probes: dict[tuple[str, int], list[Site]] = {}
    for site in plan.sites:
        probes.setdefault((site.object.open_path, site.file_offset), []).append(site)
    for sites in probes.values():
        price_ns = prices.stepped_ns if sites[0].stepped else prices.emulated_ns
        assert sum(site.cost_ns for site in sites) == pytest.approx(price_ns), sites
