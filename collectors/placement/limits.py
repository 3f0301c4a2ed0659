# SPDX-License-Identifier: GPL-2.0-only
"""Keeps a plan within the kinds of probes that preflight allows.

The finder is told first, so that it takes another instruction where there is one. What then still
has a forbidden probe is left out, and named.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tlstax.collectors.host.probe_costs.prices import HostCosts
from tlstax.collectors.placement.model import NO_LIMITS, Limits, Missing, Plan, Site

NOP5: Final = b"\x0f\x1f\x44\x00\x00"
_NOP5_FORM: Final = "nop of 5"


def without_forms(host_costs: HostCosts, limits: Limits) -> HostCosts:
    """The costs of a host on which the finder does not look for forbidden instructions."""
    if limits.nop5:
        return host_costs
    return replace(host_costs, emulated=host_costs.emulated - {_NOP5_FORM})


def forbidden_ways(limits: Limits) -> frozenset[str]:
    """The ways to see an exit that are not taken, by their names in `placement.exit_order`."""
    returning = frozenset() if limits.return_probes else frozenset({"a return probe"})
    stepped = {"its returns", "its callers, single-stepped"}
    return returning if limits.stepped else returning | stepped


def within(plan: Plan, limits: Limits) -> Plan:
    """The plan without forbidden probes; a function loses its entry and its exits together."""
    if limits == NO_LIMITS:
        return plan
    reasons = {
        (site.boundary, site.object.path, site.function): why
        for site in plan.sites
        if (why := forbidden(site, limits))
    }
    kept = tuple(
        site
        for site in plan.sites
        if (site.boundary, site.object.path, site.function) not in reasons
    )
    return replace(plan, sites=kept, missing=(*plan.missing, *_missing(reasons)))


def _missing(reasons: dict[tuple[str, str, str], str]) -> Iterator[Missing]:
    for (boundary, _, function), why in reasons.items():
        yield Missing(boundary, (function,), "It is not seen in this recording", why)


def forbidden(site: Site, limits: Limits) -> str:
    """Why a site may not be probed, as one clause; "" if it may."""
    if site.kind == "uretprobe" and not limits.return_probes:
        return f"{function_of(site)} needs a return probe, which is not safe here"
    if site.stepped and not limits.stepped:
        return f"{function_of(site)} needs a single-stepped probe, which is not safe here"
    if not limits.nop5 and _is_nop5(site):
        return f"{function_of(site)} needs a probe on a 5-byte nop, which is not safe here"
    return ""


def function_of(site: Site) -> str:
    """The function of a site with its file."""
    return f"{site.function} in {site.object.name}"


def _is_nop5(site: Site) -> bool:
    """Whether the probed instruction is the nop that the kernel replaces."""
    with suppress(OSError):
        fd = os.open(site.object.open_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, len(NOP5), site.file_offset) == NOP5
        finally:
            os.close(fd)
    return False
