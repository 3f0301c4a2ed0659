# SPDX-License-Identifier: GPL-2.0-only
"""Plans without the kinds of probes that preflight forbids."""

from dataclasses import replace
from pathlib import Path

import pytest

from tlstax.collectors.host.probe_costs.prices import HostCosts
from tlstax.collectors.placement.limits import NOP5, forbidden_ways, within, without_forms
from tlstax.collectors.placement.model import NO_LIMITS, Limits, Plan, Site
from tlstax.collectors.placement.placement import plan as make_plan
from tlstax.collectors.process.mappings import MappedObject
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import Level
from tlstax.tests.unit.placement.examples import MakeTarget

MARIADBD = Path("/usr/sbin/mariadbd")
CODE = b"\x90" * 16 + NOP5 + b"\xc3"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Entry and exit of three functions; `returns` has a return probe, `walks` is stepped."""
    path = tmp_path / "libssl.so.3"
    path.write_bytes(CODE)
    mapped = MappedObject(str(path), str(path), "00:01", 1, "", False, ())
    site = Site(
        boundary="plain", action="phase", phase="sign", event="enter", function="plain",
        object=mapped, file_offset=0, virtual_address=0, instruction="nop", kind="uprobe",
        stepped=False, register="", stack_bytes=0, only_in="", reason="a test",
    )  # fmt: skip
    sites = (
        site,
        replace(site, event="exit", file_offset=1),
        replace(site, boundary="returns", function="returns", file_offset=2),
        replace(site, boundary="returns", function="returns", event="exit", kind="uretprobe"),
        replace(site, boundary="walks", function="walks", stepped=True, file_offset=3),
        replace(site, boundary="walks", function="walks", event="exit", file_offset=4),
        replace(site, boundary="patched", function="patched", file_offset=16),
        replace(site, boundary="patched", function="patched", event="exit", file_offset=5),
    )
    return Plan(1, Level.RECORD, (), sites, ())


@pytest.mark.parametrize(
    ("limits", "lost", "word"),
    [
        (Limits(return_probes=False), "returns", "return probe"),
        (Limits(stepped=False), "walks", "single-stepped"),
        (Limits(nop5=False), "patched", "5-byte nop"),
    ],
)
def test_a_function_with_a_forbidden_probe_is_left_out_and_named(
    plan: Plan, limits: Limits, lost: str, word: str
) -> None:
    reduced = within(plan, limits)
    assert {site.boundary for site in reduced.sites} == (
        {"plain", "returns", "walks", "patched"} - {lost}
    )
    (missing,) = reduced.missing
    assert (missing.boundary, missing.functions) == (lost, (lost,))
    assert word in missing.why


def test_nothing_is_left_out_without_limits(plan: Plan) -> None:
    assert within(plan, NO_LIMITS) is plan


def test_the_finder_does_not_look_for_a_forbidden_nop() -> None:
    costs = HostCosts(emulated=frozenset({"nop of 5", "nop of 8"}))
    assert without_forms(costs, Limits(nop5=False)).emulated == {"nop of 8"}
    assert without_forms(costs, NO_LIMITS) is costs


@pytest.mark.parametrize(
    ("limits", "forbidden"),
    [
        (NO_LIMITS, set()),
        (Limits(return_probes=False), {"a return probe"}),
        (Limits(stepped=False), {"its returns", "its callers, single-stepped"}),
    ],
)
def test_the_finder_does_not_take_a_forbidden_way(
    limits: Limits, forbidden: set[str], repository: Path
) -> None:
    assert forbidden_ways(limits) == forbidden
    source = (repository / "collectors/placement/exit_order.py").read_text()
    for name in forbidden:  # a way of another name would be taken
        assert f'("{name}", ' in source


def test_no_exit_of_mariadb_is_lost_without_return_probes(
    target_of: MakeTarget, libraries: dict[str, Path]
) -> None:
    server = target_of(MARIADBD, libraries["libssl"], libraries["libcrypto"])
    definitions = load_definitions()
    limited = make_plan(server, definitions, limits=Limits(return_probes=False))
    assert "uretprobe" not in {site.kind for site in limited.sites}
    boundaries = {site.boundary for site in make_plan(server, definitions).sites}
    assert {site.boundary for site in limited.sites} == boundaries
