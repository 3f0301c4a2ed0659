# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a prediction: what `tlstax whatif --json` prints."""

from dataclasses import dataclass
from typing import Annotated, Final

from tlstax.analysis.model.difference import SideFacts
from tlstax.analysis.model.tables import Measure

PREDICTION_VERSION = 2
NO_TLS: Final = "no TLS"
"""The wish of --no-tls: its forecasts are bounds without a middle."""


@dataclass(frozen=True)
class Forecast:
    """One predicted figure, per operation."""

    name: Annotated[str, "server_cpu or client_latency"]
    label: Annotated[str, "what it is, for people"]
    now: Annotated[Measure, "in the recording"]
    then: Annotated[Measure | None, "predicted; null where it cannot be"]
    models: Annotated[dict[str, Measure], "the estimate of each model; `then` covers all"]
    half_width_share: Annotated[
        float | None,
        "half of the interval, as a share of the value; of --no-tls, of what TLS costs",
    ]
    is_wide: Annotated[bool, "the interval is wider than +-20 %: no prediction to act on"]
    reason: Annotated[str, "why there is none, or why it is wide; else ''"]


@dataclass(frozen=True)
class MicroCost:
    """A measured cost that went in."""

    name: Annotated[str, "operation"]
    before: Annotated[Measure | None, "CPU time with the present key or cipher"]
    after: Annotated[Measure | None, "CPU time with the wished one"]


@dataclass(frozen=True)
class Prediction:
    """What would become of an operation."""

    version: Annotated[int, "version of this shape"]
    title: Annotated[str, "title"]
    sentence: Annotated[str, "the prediction in one sentence"]
    wishes: Annotated[list[str], "what is to change"]
    side: Annotated[SideFacts, "the recording"]
    operation: Annotated[str, "what the figures are counted by"]
    key: Annotated[
        str, "kind of the present key, identified by the duration of a signature; '' = not needed"
    ]
    cipher: Annotated[str, "present bulk cipher of the records; '' = not asked"]
    forecasts: Annotated[list[Forecast], "server CPU time first"]
    costs: Annotated[list[MicroCost], "what was measured"]
    assumptions: Annotated[list[str], "what is taken to stay, and what was not looked at"]
