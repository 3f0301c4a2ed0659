# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet whatif`: what a change of every host would save, as a sum with bounds.

The bounds of the sum add those of the hosts: what is unknown of one is unknown of all. Bounds over
hosts come from resampling them.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import host_sums
from tlstax.analysis.fleet.figures import figure, hosts_text
from tlstax.analysis.fleet.question import Question
from tlstax.analysis.fleet.whatif import inputs as host_inputs
from tlstax.analysis.fleet.whatif import judging, states
from tlstax.analysis.fleet.whatif.inputs import Inputs
from tlstax.analysis.fleet.whatif.judging import Peers, Verdicts, Wish
from tlstax.analysis.fleet.whatif.states import Ends
from tlstax.analysis.model.fleet import (
    FLEET_VERSION,
    FleetForecast,
    HostSaving,
    LeftHosts,
    Saving,
)
from tlstax.analysis.quantities import share_text, three_digits
from tlstax.analysis.statistics.medians import has_interval
from tlstax.analysis.statistics.units import LEAST_RANGE, Floats
from tlstax.analysis.whatif import forecast
from tlstax.analysis.whatif.predict import WIDEST
from tlstax.collectors.capture.micro_costs import MicroCosts
from tlstax.collectors.capture.order_statistics import LEVEL

_CPU_NS: Final = 1e9
_RESAMPLES: Final = 400
_SEED: Final = 17
_NAMED: Final = 5
_TAILS: Final = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


def savings(
    question: Question, wish: Wish, costs: Sequence[MicroCosts], most: int
) -> FleetForecast:
    """The forecast. Raises TlstaxError (USAGE, CAPTURE) where no host can be predicted."""
    span = question.span()
    tier = question.tier_for(span)
    with question.ask(span, tier, host_inputs.TABLES) as (engine, left_out):
        known = host_sums.facts(engine, span)
        hosts = host_sums.chosen(known, question.hosts)
        inputs = host_inputs.read(engine, span, known, hosts)
    left_out += question.lacking(span, tier, hosts, inputs.hosts)
    verdicts, chosen, ends = _predict(inputs, wish, costs)
    now = inputs.served_cpu / _CPU_NS
    predicted: Floats = now[chosen]
    saved = Ends(predicted - ends.high / _CPU_NS, predicted - ends.low / _CPU_NS)
    unchanged = [row for row, has in enumerate(verdicts.has_it) if has]
    total_now = float(now[[*chosen, *unchanged]].sum())
    total = _total(saved) if chosen else None
    after = total_now - total.value if total else 0.0
    half = (total.high - total.low) / 2 / after if total and after > 0 else None
    is_wide = half is not None and half > WIDEST
    middles = (saved.low[0] + saved.high[0]) / 2
    return FleetForecast(
        version=FLEET_VERSION,
        title="What a change on every host would save",
        scope=question.scope(span, tier, len(inputs.hosts), left_out),
        sentence=_sentence(wish, total, total_now, len(chosen), len(unchanged), is_wide=is_wide),
        wishes=wish.summary(),
        predicted_count=len(chosen),
        unchanged_count=len(unchanged),
        now=total_now,
        saved=total,
        over_hosts=_over_hosts(saved) if has_interval(len(chosen)) else None,
        half_width_share=half,
        is_wide=is_wide,
        per_host=figure(middles),
        hosts=_lines(question, inputs, verdicts, chosen, saved, most),
        left=_left(inputs, verdicts, now),
        assumptions=_assumptions(wish, costs),
    )


def _predict(
    inputs: Inputs, wish: Wish, costs: Sequence[MicroCosts]
) -> tuple[Verdicts, list[int], Ends]:
    """The verdicts, the hosts that are predicted, and what becomes of them."""
    if wish.library:
        verdicts = judging.judge_library(inputs, wish.library)
        owners = [row for row, has in enumerate(verdicts.has_it) if has]
        chosen, ends = states.with_library(inputs, verdicts, Peers(inputs, owners))
    else:
        verdicts = judging.judge(inputs, wish, costs)
        chosen, ends = states.after(inputs, verdicts, costs)
    if not chosen and not any(verdicts.has_it):
        reasons = [f"{one.host_count:,}: {one.reason}" for one in _left(inputs, verdicts)]
        raise TlstaxError(
            "no host can be predicted",
            "; ".join(reasons[:_NAMED]) or "the data set has no interval in this time",
            f"{_what_is_missing(wish, verdicts)}choose other hosts or another time",
            ExitCode.CAPTURE,
        )
    return verdicts, chosen, ends


def _what_is_missing(wish: Wish, verdicts: Verdicts) -> str:
    """What may be given so that hosts can be predicted."""
    if verdicts.why and all(why.startswith(judging.LINKED) for why in verdicts.why):
        return "Record a server that is as wished and run `tlstax diff`, or "
    if wish.library:
        return f"Name a library that at least {LEAST_RANGE} such hosts have, or "
    if wish.needs_costs:
        return "Give --costs of these libraries and CPUs (tlstax whatif --save-costs), or "
    return ""


def _total(saved: Ends) -> Saving:
    """The sum over hosts: the bounds cover the models on each host, and the draws of costs."""
    whole = Ends(*(end.sum(axis=1, keepdims=True) for end in saved))
    ((low,), (high,)) = _bounds(whole)
    return _saving(float(low), float(high))


def _bounds(saved: Ends) -> tuple[Floats, Floats]:
    """The bounds of each column."""
    low = np.minimum(saved.low[0], np.quantile(saved.low, _TAILS[0], axis=0))
    high = np.maximum(saved.high[0], np.quantile(saved.high, _TAILS[1], axis=0))
    return low, high


def _over_hosts(saved: Ends) -> Saving:
    """The same sum with the bounds of as many hosts, drawn from these with replacement."""
    count = saved.low.shape[1]
    random = np.random.default_rng(_SEED)
    weights = random.multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    # Costs and hosts are independent: each resample of hosts takes another draw of the costs.
    draws = np.arange(_RESAMPLES) % saved.low.shape[0]
    low = np.einsum("ij,ij->i", weights, saved.low[draws])
    high = np.einsum("ij,ij->i", weights, saved.high[draws])
    return _saving(float(np.quantile(low, _TAILS[0])), float(np.quantile(high, _TAILS[1])))


def _saving(low: float, high: float) -> Saving:
    return Saving((low + high) / 2, low, high)


def _lines(
    question: Question,
    inputs: Inputs,
    verdicts: Verdicts,
    chosen: Sequence[int],
    saved: Ends,
    most: int,
) -> list[HostSaving]:
    """The hosts that change most first."""
    if not chosen:
        return []
    low, high = _bounds(saved)
    first = sorted(
        range(len(chosen)), key=lambda at: (-abs(low[at] + high[at]), inputs.hosts[chosen[at]])
    )[:most]
    lines = []
    for at in first:
        row = chosen[at]
        host = inputs.hosts[row]
        mine = inputs.facts.get(host, {})
        lines.append(
            HostSaving(
                host=host,
                cluster=mine.get("cluster", ""),
                tls_library=mine.get("tls_library", "unknown"),
                key=verdicts.keys[row],
                now=float(inputs.served_cpu[row]) / _CPU_NS,
                saved=_saving(float(low[at]), float(high[at])),
                report=question.report(host),
            )
        )
    return lines


def _left(inputs: Inputs, verdicts: Verdicts, now: Floats | None = None) -> list[LeftHosts]:
    """Hosts by the reason for which they are left out, most CPU time first."""
    cpus = inputs.served_cpu / _CPU_NS if now is None else now
    by_reason: dict[str, list[int]] = defaultdict(list)
    for row, why in enumerate(verdicts.why):
        if why:
            by_reason[why].append(row)
    found = []
    for reason, rows in by_reason.items():
        largest = sorted(rows, key=lambda row: (-cpus[row], inputs.hosts[row]))[:_NAMED]
        names = [inputs.hosts[row] for row in largest]
        found.append(LeftHosts(reason, len(rows), float(cpus[rows].sum()), names))
    return sorted(found, key=lambda one: (-one.cpus, -one.host_count, one.reason))


def _sentence(
    wish: Wish, total: Saving | None, now: float, predicted: int, unchanged: int, *, is_wide: bool
) -> str:
    what = " and ".join(wish.summary())
    if total is None:
        verb = "have" if unchanged != 1 else "has"
        return f"With {what} nothing would be saved: {hosts_text(unchanged)} {verb} it already."
    bounds = f"{three_digits(total.low)} to {three_digits(total.high)} CPUs"
    of = f"of {three_digits(now)} CPUs that connections use"
    if unchanged:
        have = "have" if unchanged != 1 else "has"
        of += f" on these and on {hosts_text(unchanged)} that {have} it already"
    if is_wide:
        return (
            f"With {what}: no prediction within ±{share_text(WIDEST)}. {hosts_text(predicted)} "
            f"would save {bounds} {of}."
        )
    if total.low <= 0 <= total.high:
        return f"With {what}, {hosts_text(predicted)} may save nothing: {bounds} {of}."
    if total.high < 0:
        more = f"{three_digits(-total.high)} to {three_digits(-total.low)} CPUs"
        return f"With {what}, {hosts_text(predicted)} would need {more} more, {of}."
    share = share_text(total.value / now)
    return f"With {what}, {hosts_text(predicted)} would save {bounds} {of}: about {share}."


def _assumptions(wish: Wish, costs: Sequence[MicroCosts]) -> list[str]:
    found = [
        "The load does not change: the same number of connections, commands and clients.",
        "The present CPU time includes the overhead of the recording.",
        "The bounds leave out how much times differ: ask for others with --from and --to.",
    ]
    if wish.needs_costs:
        names = ", ".join(dict.fromkeys(f"{one.library} on {one.cpu_model}" for one in costs))
        found.append(
            f"Costs of single operations are those measured for {names}: equal on all hosts with "
            "the same CPU model."
        )
        found.append(
            "Besides the handshake, connecting and the first command of a connection may get "
            "cheaper or more expensive; later commands stay the same."
        )
    if wish.key:
        found.append("The whole certificate chain changes its kind of key, the clients' as well.")
    if wish.resume is not None:
        found.append(
            "Clients that resume keep their TLS context, and the server accepts every ticket."
        )
    if wish.pool:
        found.append("Further commands of a connection cost a tenth of the first one up to all.")
        found.append(f"Connecting costs up to {share_text(forecast.PARTED - 1)} more.")
    if wish.library:
        found.append(
            "A handshake costs what it costs on hosts with that library, the same CPU, TLS version "
            "and client certificates, and a key whose signature takes about as long; all else "
            "costs the same as now. The bounds of one host contain how much those hosts differ; "
            "those of the sum are narrower, because hosts differ in both directions."
        )
    return found
