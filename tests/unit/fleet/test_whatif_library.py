# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet whatif --library`: the bounds of one host and of the sum are two things."""

import numpy as np
import pytest

from tlstax.analysis.fleet.whatif import savings
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
