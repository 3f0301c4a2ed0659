# SPDX-License-Identifier: GPL-2.0-only
"""What `tlstax whatif` makes of connections that stay open, where handshakes are rare."""

from dataclasses import replace

import pytest

from tlstax import TlstaxError
from tlstax.analysis.whatif import forecast, predict
from tlstax.analysis.whatif.summary import Scenario
from tlstax.collectors.capture.schema import Ledger
from tlstax.tests.unit.whatif.costs import COSTS
from tlstax.tests.unit.whatif.pooled import COMMAND_NS, COMMANDS, OTHER_NS, SIGN_NS, pooled


@pytest.mark.parametrize(
    "wish",
    [
        Scenario(key="ec:p256", present_key="rsa:4096"),
        Scenario(resume=0.9, present_key="rsa:4096"),
    ],
)
def test_a_handshake_reaches_the_first_query_of_its_connection_only(wish: Scenario) -> None:
    """All handshakes took 3.8 % of the CPU time, and another key was to save 16 % of it."""
    line = predict.predict(pooled(100, lambda _: 1), wish, replace(COSTS, mutual=False)).forecasts[
        0
    ]
    assert line.then is not None
    assert line.then.low_ns is not None
    shakes_ns = (SIGN_NS + OTHER_NS) / COMMANDS
    first_ns = forecast.FIRST_MOST * COMMAND_NS / COMMANDS / COMMANDS
    assert line.now.value_ns == pytest.approx(shakes_ns + COMMAND_NS / COMMANDS)
    most_ns = shakes_ns + forecast.WARMTH_MOST * first_ns
    assert 0.5 * shakes_ns < line.now.value_ns - line.then.low_ns < most_ns


def test_waits_while_disconnecting_are_no_cpu_time() -> None:
    """The waterfall has one step for the end of a connection, waits included."""
    side = pooled(100, lambda _: 1)
    ends = [
        Ledger(number, 1, "disconnect", state, time_ns)
        for number in range(1, 101)
        for state, time_ns in (("on_cpu", SIGN_NS), ("runnable", 500 * SIGN_NS))
    ]
    ending = replace(side, tables=replace(side.tables, ledger=[*side.tables.ledger, *ends]))
    line = predict.predict(ending, Scenario(pool=4000), None).forecasts[0]
    assert line.now.value_ns == pytest.approx((COMMAND_NS + 2 * SIGN_NS + OTHER_NS) / COMMANDS)


@pytest.mark.parametrize(
    "wish",
    [
        Scenario(key="ec:p256", present_key="rsa:4096"),
        Scenario(resume=0.9, present_key="rsa:4096"),
        Scenario(pool=4000),
    ],
)
def test_bursts_are_refused(wish: Scenario) -> None:
    """Of 70 us, 20 were handshakes, and 50 were said to be the present cost."""
    side = pooled(300, lambda number: 200 * (number % 60 in (1, 2, 3)))
    with pytest.raises(TlstaxError, match="TLS comes in bursts"):
        predict.predict(side, wish, replace(COSTS, mutual=False))


def test_bursts_of_the_other_library_are_refused_too() -> None:
    other = pooled(300, lambda number: 200 * (number % 60 in (1, 2, 3)))
    with pytest.raises(TlstaxError, match="TLS comes in bursts"):
        predict.predict(pooled(100, lambda _: 1), Scenario(library=other), None)


def test_too_few_windows_are_refused() -> None:
    for count in (1, 3):
        with pytest.raises(TlstaxError, match=f"has {count}, and a prediction needs 4"):
            predict.predict(pooled(count, lambda _: 1), Scenario(pool=4000), None)
    predict.predict(pooled(4, lambda _: 1), Scenario(pool=4000), None)
