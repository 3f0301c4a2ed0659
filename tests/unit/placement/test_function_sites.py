# SPDX-License-Identifier: GPL-2.0-only
"""`--functions` times functions of TLS libraries, and puts no return probe on the server's."""

import os
from dataclasses import replace

import pytest

from tlstax.collectors.placement.function_sites import plan_functions
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
