# SPDX-License-Identifier: GPL-2.0-only
"""The level of a recording that was not given one: the recorder chooses, within the budget."""

import argparse

from tlstax.collectors.commands.options import share_of
from tlstax.collectors.host.features import HOST
from tlstax.collectors.sources import registry
from tlstax.probes.model import Level


def budget_share(options: argparse.Namespace) -> float | None:
    """The limit as a share of the server's CPU time; None: there is none."""
    expensive = options.window or options.client or options.functions
    expensive = expensive or registry.uncounted(options.collect)
    return share_of(options.budget, is_expensive=expensive)


def settle_level(options: argparse.Namespace) -> None:
    """Set `level`, and `chooses_level`: whether that is where the recorder's choice begins.

    It chooses between `flow` with calibration stretches and `record`, by what they cost. Without a
    budget there is nothing to choose by: everything is recorded.
    """
    options.chooses_level = (
        options.level is None
        and not (options.calibrate or options.client or options.functions)
        and registry.NATIVE in options.collect
        and budget_share(options) is not None
        and bool(options.ssh or HOST.socket_events)
    )
    if options.level is None:
        options.level = Level.FLOW if options.chooses_level else Level.RECORD
    options.calibrate = options.calibrate or options.chooses_level
