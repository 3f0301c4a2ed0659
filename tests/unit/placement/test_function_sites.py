# SPDX-License-Identifier: GPL-2.0-only
"""`--functions` times functions of TLS libraries, and puts no return probe on the server's."""

import os
from dataclasses import replace

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.placement import function_sites
from tlstax.collectors.placement.function_sites import plan_functions
from tlstax.collectors.placement.model import Limits, Site
from tlstax.collectors.process.target import Target, open_target
from tlstax.probes.definitions import load_definitions

NAMES = ("cipher", "digest", "asymmetric", "kdf", "rng")


@pytest.fixture(scope="module")
def target() -> Target:
    """The process of the tests, which has libcrypto."""
    return open_target(os.getpid())


def kinds(target: Target, kind: str) -> dict[str, set[str]]:
    """The kinds of probes at the end of each function, were libcrypto's definitions of a kind."""
    definitions = [replace(definition, kind=kind) for definition in load_definitions()]
    plan = plan_functions(target, definitions, NAMES)
    return {
        one.function: {site.kind for site in one.sites if site.event == "exit"}
        for one in plan.functions
    }


def test_functions_of_the_server_have_no_return_probe(target: Target) -> None:
    of_library, of_server = kinds(target, "tls"), kinds(target, "server")
    assert "uretprobe" in set().union(*of_library.values())
    assert "uretprobe" not in set().union(*of_server.values())
    assert of_library.keys() == of_server.keys(), "they are counted"


def test_without_stepped_probes_less_is_timed_or_counted(target: Target) -> None:
    """What a host cannot bear is left out and named, never probed in another way."""
    free = plan_functions(target, load_definitions(), NAMES)
    safe = plan_functions(target, load_definitions(), NAMES, Limits(stepped=False, nop5=False))
    assert not any(site.stepped for one in safe.functions for site in one.sites)
    left = {one.primitive.id for one in safe.functions}
    assert {one.primitive.id for one in free.functions} == left | set(safe.unsafe)
    assert safe.absent == free.absent
    timed = {one.function for one in free.functions if not one.why_not_timed}
    for one in safe.functions:
        if one.function in timed and one.why_not_timed:
            assert "is not safe here" in one.why_not_timed
            assert {site.event for site in one.sites} == {"enter"}


@pytest.mark.parametrize(("event", "is_left"), [("enter", False), ("exit", True)])
def test_where_nothing_safe_sees_them(
    target: Target, monkeypatch: pytest.MonkeyPatch, event: str, is_left: bool
) -> None:
    def forbidden(site: Site, _limits: Limits) -> str:
        return "it is not safe here" if site.event == event else ""

    monkeypatch.setattr(function_sites, "forbidden", forbidden)
    limits = Limits(stepped=False)
    if is_left:
        planned = plan_functions(target, load_definitions(), NAMES, limits)
        assert planned.unsafe == ()
        assert {site.event for one in planned.functions for site in one.sites} == {"enter"}
        return
    with pytest.raises(TlstaxError, match="not safe here") as caught:
        plan_functions(target, load_definitions(), NAMES, limits)
    assert caught.value.exit_code == ExitCode.HOST
