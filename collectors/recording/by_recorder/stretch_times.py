# SPDX-License-Identifier: GPL-2.0-only
"""How often calibration stretches are taken, and the probes that they have.

The recorder takes them (collectors/recorder/stretches.c): for 200 ms, at random times.
"""

from typing import Final

from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import limits_of
from tlstax.probes.model import Level

STRETCH_MS: Final = 200  # STRETCH_NS of stretches.h
COUNT: Final = 14
"""Stretches of a recording whose length is known."""
OFTEN_S: Final = 2.0
SELDOM_S: Final = 12.0
UNKNOWN_LENGTH_S: Final = 6.0


def interval_s(duration_s: float | None) -> float:
    """Mean time between two stretches of a recording of this length."""
    if duration_s is None:
        return UNKNOWN_LENGTH_S
    return min(max(duration_s / COUNT, OFTEN_S), SELDOM_S)


def stretch_plan(request: Request, plan: Plan) -> Plan | None:
    """The probes of calibration stretches; None where there are to be none."""
    if request.calibration_s is None or not plan.is_flow:
        return None
    _, stretches = plan_in_child(
        *(request.pid, Level.RECORD, request.definitions),
        limits=limits_of(request),
        networks=request.has_networks,  # the recorder may choose to record everything
    )
    return stretches
