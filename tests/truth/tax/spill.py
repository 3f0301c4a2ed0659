# SPDX-License-Identifier: GPL-2.0-only
"""What TLS costs where it is not at work, from pairs of arms, and how well it holds elsewhere.

A pair is a load on a server in plaintext and with TLS. What TLS costs elsewhere is what its arm
takes more than plaintext, less the least that `whatif --no-tls` claims. On open connections it is
a share of all other work; where connecting dominates, what exceeds that share is one of the
handshake. The bounds of several servers are their least and their most. To leave one server out
is to take the bounds from all others, and to hold its plaintext arms against the prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tlstax import TlstaxError
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.rows import ledger
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.whatif import no_tls
from tlstax.analysis.whatif.no_tls import Parts, Spill

OPEN = 0.05
"""Handshakes take at most this share of what TLS costs at least on connections that stay open."""
LEAST_SERVERS, LEAST_LOADS = 5, 8
COVERED, HALF_WIDTH, REFUSED = 0.9, 0.15, 0.2
"""The claim: at least, at most and at most."""


@dataclass(frozen=True)
class Pair:
    """Both arms of a load on a server."""

    server: str
    load: str
    tls: RecordingSelection
    parts: Parts | None
    """None where the recording does not bear a prediction."""
    plaintext_ns: float

    @property
    def is_open(self) -> bool:
        """Whether connections stay open."""
        assert self.parts is not None
        return bool(self.parts.handshake[0] <= OPEN * self.parts.least[0])

    @property
    def elsewhere_ns(self) -> float:
        """What TLS costs where it is not at work."""
        assert self.parts is not None
        return float(self.parts.rest[0]) - self.plaintext_ns


@dataclass(frozen=True)
class Held:
    """A prediction for a server from all others, and what its plaintext arm took (ns)."""

    pair: Pair
    low_ns: float
    high_ns: float

    @property
    def is_inside(self) -> bool:
        """Whether the interval contains the plaintext arm."""
        return self.low_ns <= self.pair.plaintext_ns <= self.high_ns

    @property
    def half_width(self) -> float:
        """Half of the interval, as a share of what TLS cost by both arms; infinite for nothing."""
        assert self.pair.parts is not None
        tax_ns = float(self.pair.parts.now[0]) - self.pair.plaintext_ns
        return (self.high_ns - self.low_ns) / 2 / tax_ns if tax_ns > 0 else float("inf")


def pairs_of(rows: Tables, label: str) -> list[Pair]:
    """The pairs of a capture of an experiment."""
    target = rows.targets[0]
    server = f"{target.server} {target.server_version}, {target.tls_library}"
    plain = {
        (group.driver, group.scenario): RecordingSelection(label, rows, group)
        for group in selections.matching(rows, "plaintext")
    }
    found = []
    for group in selections.matching(rows, "tls"):
        partner = plain.get((group.driver, group.scenario))
        if partner is None:
            continue
        side = RecordingSelection(label, rows, group)
        try:
            no_tls.without_tls(side)
            parts = no_tls.parts_of(side)
        except TlstaxError:
            parts = None
        load = f"{group.driver}/{group.scenario}"
        found.append(Pair(server, load, side, parts, cpu_per_operation(partner)))
    return found


def cpu_per_operation(side: RecordingSelection) -> float:
    """The server's CPU time for an operation, in ns."""
    totals = ledger.served(ledger.totals(side.tables.ledger, side.group.window_ids))
    return sum(ledger.on_cpu(totals).values()) / side.group.operation_count


def fit(pairs: Sequence[Pair]) -> Spill:
    """The bounds of these pairs: what they do not show keeps the bounds that tlstax ships."""
    known = [pair for pair in pairs if pair.parts is not None]
    shipped = Spill()
    rest = [_share(pair, 0.0) for pair in known if pair.is_open]
    most = (min(rest), max(rest)) if rest else shipped.rest
    middle = sum(most) / 2
    shake = [_share(pair, middle) for pair in known if not pair.is_open]
    return Spill(most, (min(shake), max(shake)) if shake else shipped.handshake)


def _share(pair: Pair, of_rest: float) -> float:
    """A pair's share of other work, or of the handshake less that share of other work."""
    assert pair.parts is not None
    rest, shake = float(pair.parts.rest[0]), float(pair.parts.handshake[0])
    if pair.is_open:
        return pair.elsewhere_ns / rest
    return (pair.elsewhere_ns - of_rest * rest) / shake


def leave_one_out(pairs: Sequence[Pair]) -> list[Held]:
    """Each server's pairs, predicted from those of all others."""
    held = []
    for server in sorted({pair.server for pair in pairs}):
        spill = fit([pair for pair in pairs if pair.server != server])
        for pair in pairs:
            if pair.server != server or pair.parts is None:
                continue
            then = no_tls.without_tls(pair.tls, spill).forecasts[0].then
            assert then is not None
            held.append(Held(pair, then.low_ns or 0.0, then.high_ns or 0.0))
    return held


def failures(pairs: Sequence[Pair], held: Sequence[Held]) -> list[str]:
    """What the claim lacks, in sentences; none: it holds."""
    loads: dict[str, set[str]] = {}
    for pair in pairs:
        loads.setdefault(pair.server, set()).add(pair.load)
    fewest = min((len(found) for found in loads.values()), default=0)
    failed = []
    if len(loads) < LEAST_SERVERS or fewest < LEAST_LOADS:
        failed.append(
            f"servers: {len(loads)}, loads of each: {fewest} at least; the claim needs "
            f"{LEAST_SERVERS} with {LEAST_LOADS}"
        )
    inside = sum(one.is_inside for one in held)
    if inside < COVERED * len(held):
        failed.append(f"{inside} of {len(held)} intervals contain the plaintext arm")
    middle = float(np.median([one.half_width for one in held])) if held else float("inf")
    if middle > HALF_WIDTH:
        failed.append(f"the median half-width is {middle:.0%} of what TLS costs")
    refused = sum(pair.parts is None for pair in pairs)
    if refused > REFUSED * len(pairs):
        failed.append(f"{refused} of {len(pairs)} loads have no prediction")
    return failed
