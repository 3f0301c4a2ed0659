# SPDX-License-Identifier: GPL-2.0-only
"""Predict the cost of an operation with another key, cipher, library, resumption or pooling.

The input is a recording and micro-costs measured on its host. The interval includes the noise
between the rounds of the recording (twice, as a new run has the same noise), that of other
recordings, the uncertainty of the micro-costs, and the difference between the models. An interval
wider than +-20 % is printed as it is, and is not called a prediction.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.compare import replicates, selections
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import PREDICTION_VERSION, Forecast, Prediction
from tlstax.analysis.quantities import share_text
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.whatif import cipher_change, forecast, no_tls, recorded, refusals, summary
from tlstax.analysis.whatif.forecast import State
from tlstax.analysis.whatif.summary import IDLE, Scenario, Used, idle_share
from tlstax.collectors.capture.micro_costs import MicroCosts, RecordCosts

WIDEST: Final = 0.2
"""Largest half-width of an interval, as a share of the value, of a usable prediction."""


def predict(side: RecordingSelection, scenario: Scenario, costs: MicroCosts | None) -> Prediction:
    """The prediction. Raises TlstaxError, with the reason, if it is impossible."""
    unit = selections.choose_unit(side, side, None)
    by_driver = bool(side.group.runs)
    recorded.refuse(side, unit, by_driver=by_driver)
    facts = recorded.handshake_facts(side)
    if facts.resumed_share > 0.02 and scenario.resume is not None:
        raise TlstaxError(
            "cannot predict resumption",
            f"{share_text(facts.resumed_share)} of the recorded handshakes were resumed already",
            "Record a time without resumption",
            ExitCode.CAPTURE,
        )
    base = replicates.of_side(recorded.computing(side), unit, builtin(), by_driver=by_driver)
    _refuse_middle(base)
    library = _other_library(scenario.library) if scenario.library is not None else None
    warm = (
        recorded.warm_queries(scenario.warm)
        if scenario.warm is not None and scenario.pool is not None
        else None
    )
    others = {forecast.RECORDING: base, forecast.LIBRARY: library, forecast.WARM: warm}
    sources = ErrorSources({name: one.units for name, one in others.items() if one is not None})
    now = forecast.present(base, sources)
    state = now
    used: Used = ("", None, None)
    if library is not None:
        state = forecast.with_library(state, forecast.present(library, sources, forecast.LIBRARY))
    if costs is not None and (scenario.key is not None or scenario.resume is not None):
        used = _keys(scenario, costs)
        state = _with_costs(state, scenario, costs, used, facts.resumed_share)
    flows = None
    if scenario.cipher is not None:
        cipher_change.require_suite(scenario.cipher, facts.tls_version)
        flows = cipher_change.traffic(base, sources, by_driver=by_driver)
        old, new = _record_costs(scenario, costs)
        is_full = idle_share(base) < IDLE
        state = cipher_change.with_cipher(state, flows, old, new, is_full=is_full)
    operation = unit
    if scenario.pool is not None:
        connections, queries = recorded.per_operation(base)
        later = forecast.present(warm, sources, forecast.WARM) if warm else None
        state = forecast.with_pool(state, connections, queries, scenario.pool, later)
        operation = "query"
    forecasts = [_server(base, (now, state), operation, scenario, sources)]
    if by_driver:
        forecasts.append(_latency(base, (now, state), scenario, warm, sources))
    return Prediction(
        version=PREDICTION_VERSION,
        title="What an operation would cost",
        sentence=summary.sentence(forecasts[0], scenario, operation),
        wishes=scenario.summary(),
        side=selections.facts(side, base.size, float(base.operations[0])),
        operation=operation,
        key=used[0],
        cipher=scenario.present_cipher or "" if flows else "",
        forecasts=forecasts,
        costs=[
            *summary.costs_used(costs, used),
            *(cipher_change.costs_used(flows, *_record_costs(scenario, costs)) if flows else ()),
        ],
        assumptions=[
            *summary.assumptions(base, scenario, costs, facts, flows),
            *(text for one in (library, warm) if one and (text := summary.few_units(one))),
        ],
    )


def _other_library(side: RecordingSelection) -> Replicates:
    """The handshakes of a recording with the other library."""
    unit = selections.choose_unit(side, side, None)
    recorded.refuse(side, unit, by_driver=bool(side.group.runs))
    recorded.handshake_facts(side)
    found = replicates.of_side(
        recorded.computing(side), unit, builtin(), by_driver=bool(side.group.runs)
    )
    _refuse_middle(found)
    return found


def _refuse_middle(base: Replicates) -> None:
    """Raises TlstaxError (CAPTURE) where the middle of its units does not tell what TLS takes."""
    recorded.refuse_few(base)
    sources = ErrorSources({forecast.RECORDING: base.units})
    parts, whole = no_tls.divide(base, sources, was_split=False)
    what = f"cannot predict from {base.side.label}"
    refusals.refuse_bursts(what, whole, parts.now, parts.least, sources)


def _keys(scenario: Scenario, costs: MicroCosts) -> Used:
    """The present kind of key, its costs, and those of the new one."""
    old = scenario.present_key or ""
    for name in (old, scenario.key or old):
        key = costs.keys.get(name)
        if key is None or key.full is None:
            raise TlstaxError(
                f"the costs of {name} are unknown",
                "they were not measured",
                "Measure again without --costs",
                ExitCode.USAGE,
            )
    return old, costs.keys[old], costs.keys[scenario.key or old]


def _with_costs(
    state: State, scenario: Scenario, costs: MicroCosts, used: Used, resumed_share: float
) -> State:
    _, old, new = used
    assert old is not None
    assert new is not None
    if scenario.key is not None:
        # Only full handshakes have a signature, and send the certificate.
        full = replace(state, handshakes=state.handshakes * (1 - resumed_share))
        changed = forecast.with_key(full, costs, old, new)
        state = replace(changed, handshakes=state.handshakes)
    if scenario.resume is not None:
        state = forecast.with_resumption(state, costs, new, scenario.resume)
    return state


def _record_costs(scenario: Scenario, costs: MicroCosts | None) -> tuple[RecordCosts, RecordCosts]:
    """Costs of the present and of the new cipher."""
    assert scenario.cipher is not None
    records = costs.records if costs is not None else {}
    for name in (scenario.present_cipher or "", scenario.cipher):
        if name not in records:
            raise TlstaxError(
                f"the costs of records with {name or 'the recorded cipher'} are unknown",
                "they were not measured",
                "Measure again without --costs",
                ExitCode.USAGE,
            )
    return records[scenario.present_cipher or ""], records[scenario.cipher]


def _server(
    base: Replicates,
    states: tuple[State, State],
    operation: str,
    scenario: Scenario,
    sources: ErrorSources,
) -> Forecast:
    """The server's CPU time."""
    now, then = states
    present = now.by_parts + now.connection + now.query
    if scenario.pool is not None:
        present = present / recorded.per_operation(base)[1]
    return _forecast(
        "server_cpu",
        f"CPU time of the server per {operation}",
        _present(present, sources),
        then.totals(),
        sources,
        "the recording has no further queries on an open connection; record a client that makes "
        "them, and pass that capture with --warm"
        if scenario.pool is not None and scenario.warm is None
        else "the rounds of the recording differ, and other work of the server may change, too"
        if scenario.cipher is not None
        else "",
    )


def _latency(
    base: Replicates,
    states: tuple[State, State],
    scenario: Scenario,
    warm: Replicates | None,
    sources: ErrorSources,
) -> Forecast:
    """The latency of an operation at the client."""
    now, then = states
    per_unit = base.weights @ base.arm.latency_ns / base.operations
    latency = sources.rows_of(forecast.RECORDING, per_unit)
    now_measure = _present(latency, sources)
    label = "latency at the client"
    reason = ""
    if scenario.pool is not None and (
        scenario.key or scenario.library or scenario.resume is not None
    ):
        reason = "pooling together with another change is not modelled"
    elif scenario.pool is not None and (warm is None or not warm.side.group.runs):
        reason = "a recording of connects does not have the latency of a query alone"
    elif scenario.pool is not None and warm is not None:
        return _pooled_latency(base, latency, scenario.pool, warm, sources)
    elif scenario.library is not None:
        reason = "the client's cost of another library was not measured"
    elif not float(now.client[0]):
        reason = "the client's CPU time was not recorded"
    if reason:
        return Forecast("client_latency", label, now_measure, None, {}, None, False, reason)
    present = now.by_parts + now.connection + now.query
    idle = idle_share(base)
    models = {}
    for name, (low, high) in then.totals().items():
        if idle < IDLE:
            busy = present + now.client
            ends = (
                latency * (low + then.client_low) / busy,
                latency * (high + then.client) / busy,
            )
        else:
            ends = (
                latency + low - present + then.client_low - now.client,
                latency + high - present + then.client - now.client,
            )
        models[name] = (np.minimum(*ends), np.maximum(*ends))
    return _forecast("client_latency", label, now_measure, models, sources, "")


def _pooled_latency(
    base: Replicates, latency: Floats, wished: int, warm: Replicates, sources: ErrorSources
) -> Forecast:
    """A connection with its present queries, and further queries like those of `warm`."""
    connections, queries = recorded.per_operation(base)
    per_query = warm.weights @ warm.arm.latency_ns / warm.operations
    later = sources.rows_of(forecast.WARM, per_query)
    further = max(0.0, wished - queries / connections)
    kept = min(1.0, wished * connections / queries)
    pooled = [
        (latency / connections * kept + further * each) / wished
        for each in (later, later * forecast.PARTED)
    ]
    return _forecast(
        "client_latency",
        "latency at the client per query",
        _present(latency / queries, sources),
        {forecast.BY_PARTS: (pooled[0], pooled[1])},
        sources,
        "",
    )


def _forecast(
    name: str,
    label: str,
    now: Measure,
    models: Mapping[str, tuple[Floats, Floats]],
    sources: ErrorSources,
    why_wide: str,
) -> Forecast:
    """The interval that covers all models and the noise of the new run."""
    measures = {model: _covering(ends, sources) for model, ends in models.items()}
    lows = [measure.low_ns or 0.0 for measure in measures.values()]
    highs = [measure.high_ns or 0.0 for measure in measures.values()]
    low, high = min(lows), max(highs)
    value = (low + high) / 2
    half = (high - low) / 2 / value if value > 0 else math.inf
    is_wide = half > WIDEST
    reason = ""
    if is_wide:
        reason = why_wide or "the rounds of the recording or the models differ"
    then = Measure(value, low, high, sources.least_count)
    return Forecast(name, label, now, then, measures, half, is_wide, reason)


def _present(values: Floats, sources: ErrorSources) -> Measure:
    """A figure of the recording with the bounds of its rounds or blocks."""
    count = sources.units[forecast.RECORDING].count
    if count < 2:
        return Measure(float(values[0]), unit_count=count)
    return Measure(float(values[0]), *sources.interval(values, {}), count)


def _covering(ends: tuple[Floats, Floats], sources: ErrorSources) -> Measure:
    """The middle, and the outer bounds; the units of the recording count twice, for the new run."""
    twice = {forecast.RECORDING: 2.0}
    low, _ = sources.interval(ends[0], twice)
    _, high = sources.interval(ends[1], twice)
    middle = (float(ends[0][0]) + float(ends[1][0])) / 2
    return Measure(middle, max(0.0, low), high, sources.least_count)
