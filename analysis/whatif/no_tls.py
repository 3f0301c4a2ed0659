# SPDX-License-Identifier: GPL-2.0-only
"""What a server would spend without TLS: bounds from the ledger of a recording with TLS.

Two parts are TLS's own whatever else happens: the CPU time in handshakes (exact), and that of
ciphers, digests and the TLS protocol in records (exact times, split by samples). They are the least
that TLS costs. What it costs elsewhere, in caches, copies, connecting and disconnecting, no
recording of one arm shows: it lies between nothing and SPILL.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.compare import replicates, selections
from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.rounds import COLUMNS, costs_of
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.compare.waterfall_steps import sampled_step
from tlstax.analysis.model.tables import Measure
from tlstax.analysis.model.whatif import NO_TLS, PREDICTION_VERSION, Forecast, Prediction
from tlstax.analysis.quantities import share_text, time_text
from tlstax.analysis.statistics.medians import has_interval
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.whatif import flow_records, forecast, recorded, refusals
from tlstax.analysis.whatif.refusals import Whole

BY_LEDGER: Final = "by the ledger"
TLS_RECORDS: Final = ("record_cipher", "record_digest", "record_stitched", "record_protocol")
"""Steps of records that plaintext does not have."""
UNKNOWN_RECORDS: Final = "record_other"
SPILL_REST: Final = 0.44
SPILL_HANDSHAKE: Final = 0.21
"""Largest shares of all other work, and of the handshake in addition, that TLS may cost elsewhere:
the most of 64 pairs of arms, eight loads on eight servers (docs/measurements/whatif.md). Their
least was nothing, within what their rounds vary by."""
SPLIT_LESS, SPLIT_MORE = 1 / 3, 1.0
"""Shares by which TLS in records may be less or more than samples tell at level flow. The demo's
pairs, whose records have phases of their own, had 1.5 and 1.6 times what samples of its commands
tell; without stretches they can be a third too many (docs/findings.md, In every mode)."""
OF_SAMPLES: Final = (
    "At level flow, commands are split into reading, executing and answering by their CPU samples: "
    "TLS in records may be a third less, or twice as much."
)
WIDEST: Final = 0.2
"""Largest half-width of a usable interval, as a share of what TLS costs."""


@dataclass(frozen=True)
class Spill:
    """What TLS costs where it is not at work: least and most, as shares of other work."""

    rest: tuple[float, float] = (0.0, SPILL_REST)
    """Of all that is neither handshake nor TLS in records."""
    handshake: tuple[float, float] = (0.0, SPILL_HANDSHAKE)
    """Of the handshake, in addition to it."""


@dataclass(frozen=True)
class Parts:
    """CPU time of the server for an operation, in ns: of all units together, then of each."""

    handshake: Floats
    records: Floats
    """Of TLS: ciphers, digests and its protocol."""
    rest: Floats
    unknown: Floats
    """The part of `rest` in records that no sample explains."""
    samples: int
    """CPU samples in records."""
    unsure: tuple[float, float] = (0.0, 0.0)
    """Shares of `records` by which they may be less, and more."""

    @property
    def least(self) -> Floats:
        """What TLS costs at least."""
        return self.handshake + self.records

    @property
    def now(self) -> Floats:
        """All of it."""
        return self.least + self.rest

    def elsewhere(self, spill: Spill) -> tuple[Floats, Floats]:
        """What TLS costs elsewhere, at least and at most."""
        less, more = (share * self.records for share in self.unsure)
        low = spill.rest[0] * self.rest + spill.handshake[0] * self.handshake - less
        high = spill.rest[1] * self.rest + spill.handshake[1] * self.handshake + self.unknown
        high += more
        return np.minimum(low, self.rest), np.minimum(high, self.rest)


@dataclass(frozen=True)
class Recording:
    """What a prediction needs of a recording: made once, for one `Spill` or many."""

    side: RecordingSelection
    base: Replicates
    sources: ErrorSources
    parts: Parts
    unit: str
    was_split: bool

    def line(self, spill: Spill | None = None) -> Forecast:
        """The server's CPU time without TLS."""
        return _line(self.parts, spill or Spill(), self.unit, self.sources)


def recording(
    side: RecordingSelection, taxonomy: Taxonomy | None = None, *, refuses: bool = True
) -> Recording:
    """The parts of a recording.

    `refuses`: raise TlstaxError, with the reason, where it does not bear a prediction.
    """
    rules = taxonomy or builtin()
    was_split = flow_records.is_split(side)
    side = flow_records.with_records(side, rules)
    unit = selections.choose_unit(side, side, None)
    by_driver = bool(side.group.runs)
    if refuses:
        recorded.refuse(side, unit, by_driver=by_driver)
    if refuses and not was_split:
        refusals.refuse_levels(side)
    base = replicates.of_side(recorded.computing(side), unit, rules, by_driver=by_driver)
    if refuses:
        recorded.refuse_few(base)
    sources = ErrorSources({forecast.RECORDING: base.units})
    parts, whole = divide(base, sources, was_split=was_split)
    if refuses:
        refusals.refuse_unknown(
            side, base, parts.now, parts.least, parts.samples, was_split=was_split
        )
        what = f"cannot tell what {side.label} would cost without TLS"
        refusals.refuse_bursts(what, whole, parts.now, parts.least, sources)
    return Recording(side, base, sources, parts, unit, was_split)


def parts_of(side: RecordingSelection, taxonomy: Taxonomy | None = None) -> Parts:
    """The parts of what an operation of a side costs, whatever it bears."""
    return recording(side, taxonomy, refuses=False).parts


def without_tls(
    side: RecordingSelection, spill: Spill | None = None, taxonomy: Taxonomy | None = None
) -> Prediction:
    """The prediction. Raises TlstaxError, with the reason, where a recording does not bear one."""
    made = recording(side, taxonomy)
    base, parts, line = made.base, made.parts, made.line(spill)
    assert line.then is not None
    return Prediction(
        version=PREDICTION_VERSION,
        title="What an operation would cost without TLS",
        sentence=_sentence(line, made.unit),
        wishes=[NO_TLS],
        side=selections.facts(made.side, base.size, float(base.operations[0])),
        operation=made.unit,
        key="",
        cipher="",
        forecasts=[line],
        costs=[],
        assumptions=[
            *_assumptions(base, parts.now, parts.least),
            *([OF_SAMPLES] if made.was_split else []),
        ],
    )


def divide(base: Replicates, sources: ErrorSources, *, was_split: bool) -> tuple[Parts, Whole]:
    """The parts of an operation; and of all units together."""
    costs = costs_of(base.arm, base.weights)
    at = {kind.name: index for index, kind in enumerate(COLUMNS)}
    groups = {kind.name: kind.group for kind in COLUMNS if kind.basis in ("exact", "sampled")}

    def known_of(names: Iterable[str]) -> Floats:
        steps = costs.steps_ns[:, [at[name] for name in names]]
        known: Floats = np.where(np.isfinite(steps), steps, np.nan_to_num(steps[0])).sum(axis=1)
        return known

    def sum_of(names: Iterable[str]) -> Floats:
        # Together, and then the middle of the units: a step that half of them lack has a middle
        # of nothing.
        return sources.rows_of(forecast.RECORDING, known_of(names))

    shakes = [name for name, group in groups.items() if group == "handshake"]
    others = [
        name
        for name, group in groups.items()
        if group in ("server", "record", "measurement") and name not in TLS_RECORDS
    ]
    shake, records, rest = sum_of(shakes), sum_of(TLS_RECORDS), sum_of(others)
    least_ns = float(known_of([*shakes, *TLS_RECORDS])[0])
    whole = Whole(least_ns, least_ns + float(known_of(others)[0]))
    in_records = sum(
        count for phase, count in costs.sample_counts.items() if phase.startswith("record")
    )
    unknown = sum_of([UNKNOWN_RECORDS])
    if not was_split:
        return Parts(shake, records, rest, unknown, in_records), whole
    unplaced, in_commands = _unplaced(base)
    unknown = unknown + sources.rows_of(forecast.RECORDING, unplaced)
    unsure = SPLIT_LESS, SPLIT_MORE
    return Parts(shake, records, rest, unknown, in_records + in_commands, unsure), whole


def _unplaced(base: Replicates) -> tuple[Floats, int]:
    """CPU time per operation of ciphers and TLS in commands that no stack ties to records.

    Then the number of CPU samples in commands, without those of records.
    """
    time_ns, hits, mine = np.zeros((3, base.size))
    for window_id, row in base.rows.items():
        time_ns[row] += base.sums.get(window_id, {}).get(("command", "on_cpu"), 0)
        for (phase, category), count in base.counts.get(window_id, {}).items():
            if phase == "command":
                hits[row] += count
                mine[row] += count * (sampled_step("record_write", category) in TLS_RECORDS)
    whole, found = base.weights @ hits, base.weights @ mine
    part = np.divide(found, whole, out=np.zeros_like(found), where=whole > 0)
    return part * (base.weights @ time_ns) / base.operations, int(hits.sum())


def _line(parts: Parts, spill: Spill, operation: str, sources: ErrorSources) -> Forecast:
    """The server's CPU time without TLS, between the two bounds."""
    once = {forecast.RECORDING: 1.0}
    now, (least_else, most_else) = parts.now, parts.elsewhere(spill)
    low, _ = sources.interval(parts.rest - most_else, once)
    _, high = sources.interval(parts.rest - least_else, once)
    # What the other work varies by from block to block, it varies by without TLS, too: the bounds
    # of what TLS costs may be closer than those of what is left.
    least, _ = sources.interval(parts.least + least_else, once)
    _, most = sources.interval(parts.least + most_else, once)
    low = max(0.0, low, float(now[0]) - most)
    high = min(high, float(now[0]) - least)
    count = sources.units[forecast.RECORDING].count
    then = Measure((low + high) / 2, low, high, sources.least_count)
    present = Measure(float(now[0]), *sources.interval(now, {}), count)
    tax = float(now[0]) - then.value_ns
    half = (high - low) / 2 / tax if tax > 0 else np.inf
    return Forecast(
        "server_cpu",
        f"CPU time of the server per {operation} without TLS",
        present,
        then,
        {BY_LEDGER: then},
        float(half),
        bool(half > WIDEST),
        "what TLS costs outside of handshakes and records is known within wide bounds only"
        if half > WIDEST
        else "",
    )


def _sentence(line: Forecast, operation: str) -> str:
    """The interval, and the smallest claim."""
    assert line.then is not None
    now, low, high = line.now.value_ns, line.then.low_ns or 0.0, line.then.high_ns or 0.0
    article = "an" if operation[0] in "aeiou" else "a"
    bounds = "interval" if has_interval(line.then.unit_count) else "range"
    claim = (
        f"TLS takes at least {time_text(now - high)}, {share_text((now - high) / now)} of it, and "
        f"at most {time_text(now - low)}"
        if high < now
        else f"TLS takes at most {time_text(now - low)} of it, and may take nothing"
    )
    return (
        f"Without TLS, {article} {operation} would cost {time_text(low)} to {time_text(high)} of "
        f"the server's CPU time ({bounds}) instead of {time_text(now)}: {claim}."
    )


def _assumptions(base: Replicates, now: Floats, least: Floats) -> list[str]:
    """What was taken for granted, in sentences."""
    found = [
        "Queries, connections, clients and the load do not change.",
        "Both figures include the overhead of the recording.",
        (
            f"Handshakes, ciphers, digests and the TLS protocol take "
            f"{share_text(float(least[0] / now[0]))} of the CPU time, and plaintext has none of "
            "them."
        ),
        (
            f"Elsewhere TLS costs between nothing and {share_text(SPILL_REST)} of all other work, "
            f"{share_text(SPILL_HANDSHAKE)} of the handshake, and what is unknown in records. "
            "These are the most of eight loads on eight servers (docs/whatif.md)."
        ),
    ]
    if base.size < 2:
        found.append("There is one round: noise between rounds is not included.")
    elif not base.units.have_interval:
        found.append(
            f"{base.size} {base.units.name} are too few for an interval: their range is included."
        )
    return found
