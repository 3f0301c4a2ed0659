# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet whatif`: another library, and libraries that are linked into the server."""

import numpy as np
import pytest

from tlstax import TlstaxError
from tlstax.analysis.fleet.whatif import savings
from tlstax.analysis.fleet.whatif.inputs import Inputs
from tlstax.analysis.fleet.whatif.judging import Wish
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES
from tlstax.tests.unit.fleet.test_whatif import US, fleet, predict


def test_the_bounds_of_one_host_are_those_of_hosts_and_not_of_their_median() -> None:
    """Of 60 hosts the interval of the median was a fifth of what they spread over."""
    inputs = fleet(61)
    for host in inputs.hosts[:60]:
        inputs.facts[host]["tls_library"] = "OpenSSL 3.5.4"
    factors = np.linspace(0.5, 1.5, 60)
    for phase in HANDSHAKE_PHASES:
        inputs.cpu[phase][:60] *= factors
    _, chosen, ends = predict(inputs, Wish(library="openssl-3.5"))
    assert chosen == [60]
    ((low,), (high,)) = savings._bounds(ends)
    shakes = (np.array([low, high]) - 100 * 600 * US) / (100 * 1500 * US)
    assert shakes == pytest.approx([0.53, 1.47], abs=0.03)


def test_the_bounds_of_a_sum_are_narrower_than_the_sum_of_the_bounds() -> None:
    inputs = fleet(80)
    for host in inputs.hosts[:40]:
        inputs.facts[host]["tls_library"] = "OpenSSL 3.5.4"
    for phase in HANDSHAKE_PHASES:
        inputs.cpu[phase][:40] *= np.linspace(0.5, 1.5, 40)
    _, chosen, ends = predict(inputs, Wish(library="openssl-3.5"))
    assert len(chosen) == 40
    low, high = savings._bounds(ends)
    total = savings._total(ends)
    assert total.high - total.low < 0.5 * float((high - low).sum())
    assert total.low < 40 * 100 * 2100 * US < total.high


def linked_into(inputs: Inputs, *hosts: str) -> Inputs:
    """The same where the servers of these hosts contain their library."""
    for host in inputs.hosts:
        inputs.facts[host]["tls_linkage"] = "static" if host in hosts else "shared"
    return inputs


@pytest.mark.parametrize("wish", [Wish(key="ec:p256"), Wish(resume=0.9)])
def test_costs_are_not_those_of_a_library_linked_into_the_server(wish: Wish) -> None:
    """`tlstax whatif` refuses such a server; here the costs of the host's own library counted."""
    found, chosen, _ = predict(linked_into(fleet(3), "db0"), wish)
    assert chosen == [1, 2]
    assert "is linked into the server" in found.why[0]
    (left,) = savings._left(fleet(3), found)
    assert (left.host_count, left.hosts) == (1, ["db0"])
    with pytest.raises(TlstaxError, match="is linked into the server") as refused:
        predict(linked_into(fleet(1), "db0"), wish)
    assert "--costs" not in refused.value.do, "no file of costs would help"


def test_pooling_needs_nothing_of_a_library_linked_into_the_server() -> None:
    assert predict(linked_into(fleet(2), "db0"), Wish(pool=20))[1] == [0, 1]


def test_a_library_linked_into_the_server_is_neither_exchanged_nor_compared_with() -> None:
    """No package exchanges it, and it was built otherwise than the one that a package has."""
    inputs = fleet(10)
    for host in inputs.hosts[:5]:
        inputs.facts[host]["tls_library"] = "OpenSSL 3.5.4"
    for phase in HANDSHAKE_PHASES:
        inputs.cpu[phase][0] *= 0.01
    found, chosen, ends = predict(linked_into(inputs, "db0", "db9"), Wish(library="openssl-3.5"))
    assert chosen == [5, 6, 7, 8]
    assert ["is linked into" in why for why in found.why] == [True, *[False] * 8, True]
    assert not found.has_it[0]
    assert ends.low.min() == pytest.approx(100 * 2100 * US)
