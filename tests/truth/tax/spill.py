# SPDX-License-Identifier: GPL-2.0-only
"""What TLS costs where it is not at work, from pairs of arms, and how well it holds elsewhere.

A pair is a load on a server in plaintext and with TLS. What TLS costs elsewhere is what its arm
takes more than plaintext, less the least that `whatif --no-tls` claims. On open connections it is
a share of all other work; where connecting dominates, what exceeds that share is one of the
handshake. The bounds of several servers are their least and their most. To leave one server out
is to take the bounds from all others, and to hold its plaintext arms against the prediction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tlstax import TlstaxError
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.rows.tables import Tables
from tlstax.analysis.statistics.units import Floats
from tlstax.analysis.whatif import no_tls
from tlstax.analysis.whatif.no_tls import Parts, Recording, Spill

LEAST_SERVERS, LEAST_LOADS = 5, 8
COVERED, HALF_WIDTH, REFUSED = 0.9, 0.15, 0.2
"""The claim: at least, at most and at most."""


@dataclass(frozen=True)
class Pair:
    """Both arms of a load on a server."""

    server: str
    load: str
    why: str = ""
    """Why there is no prediction, if there is none."""
    tls: RecordingSelection | None = None
    recording: Recording | None = None
    parts: Parts | None = None
    plaintext_side: RecordingSelection | None = None
    plaintext: Parts | None = None
    """The same of the arm in plaintext: only `now` means something."""

    @property
    def is_open(self) -> bool:
        """Whether connections stay open."""
        assert self.tls is not None
        return self.tls.group.operation != "connection"

    @property
    def plaintext_ns(self) -> float:
        """CPU time of the server for an operation in plaintext: the middle of the rounds."""
        assert self.plaintext is not None
        return float(self.plaintext.now[0])

    @property
    def taxes_ns(self) -> Floats:
        """What TLS costs an operation by both arms: the middle, then each round that both have."""
        assert self.tls is not None
        assert self.parts is not None
        assert self.plaintext is not None
        assert self.plaintext_side is not None
        mine, others = rounds_of(self.tls), rounds_of(self.plaintext_side)
        both = sorted(set(mine) & set(others))
        each = (
            self.parts.now[[1 + mine.index(one) for one in both]]
            - self.plaintext.now[[1 + others.index(one) for one in both]]
        )
        return np.concatenate(([float(self.parts.now[0]) - self.plaintext_ns], each))

    @property
    def by_clock(self) -> float | None:
        """What TLS costs by the CPU clock of the process, all its threads, over that by phases."""
        assert self.tls is not None
        assert self.plaintext_side is not None
        with_tls, without = clock_per_operation(self.tls), clock_per_operation(self.plaintext_side)
        tax_ns = float(self.taxes_ns[0])
        return (with_tls - without) / tax_ns if with_tls and without and tax_ns > 0 else None

    @property
    def elsewhere_ns(self) -> float:
        """What TLS costs where it is not at work."""
        assert self.parts is not None
        return float(self.parts.rest[0]) - self.plaintext_ns

    @property
    def is_at_least(self) -> bool:
        """Whether TLS costs at least what its handshakes and records take."""
        assert self.parts is not None
        return float(self.taxes_ns[0]) >= float(self.parts.least[0])


@dataclass(frozen=True)
class Held:
    """A prediction for a server from others, to be held against its plaintext arm (ns)."""

    pair: Pair
    low_ns: float
    high_ns: float
    is_wide: bool
    """`tlstax whatif` says that it is no prediction."""

    @property
    def is_inside(self) -> bool:
        """Whether the interval contains the plaintext arm."""
        return self.low_ns <= self.pair.plaintext_ns <= self.high_ns

    @property
    def half_width(self) -> float:
        """Half of the interval, as a share of what TLS cost by both arms; infinite for nothing."""
        tax_ns = float(self.pair.taxes_ns[0])
        return (self.high_ns - self.low_ns) / 2 / tax_ns if tax_ns > 0 else float("inf")


def pairs_of(rows: Tables, label: str) -> list[Pair]:
    """The pairs of a capture of an experiment; with the reason, those that have no prediction."""
    target = rows.targets[0]
    server = f"{target.server} {target.server_version}, {target.tls_library}"
    arms = {
        arm: {
            (group.driver, group.scenario): RecordingSelection(label, rows, group)
            for group in selections.matching(rows, arm)
        }
        for arm in ("plaintext", "tls")
    }
    return [
        _pair(server, "/".join(key), arms["tls"].get(key), arms["plaintext"].get(key))
        for key in sorted({**arms["plaintext"], **arms["tls"]})
    ]


def _pair(
    server: str, load: str, tls: RecordingSelection | None, plaintext: RecordingSelection | None
) -> Pair:
    if tls is None or plaintext is None:
        return Pair(server, load, f"no arm {'with TLS' if tls is None else 'in plaintext'}")
    try:
        made = no_tls.recording(tls)
        other = no_tls.parts_of(plaintext)
        return Pair(server, load, "", tls, made, made.parts, plaintext, other)
    except TlstaxError as error:
        return Pair(server, load, error.why, tls)


def rounds_of(side: RecordingSelection) -> list[int]:
    """Those of a side, in the order of its units."""
    return sorted({run.round for run in side.group.runs if run.operation_count > 0})


def clock_per_operation(side: RecordingSelection) -> float:
    """CPU time of the process for an operation by its clock, in ns; 0: it was not read."""
    mine = side.group.window_ids
    spent_ns = 0
    for row in side.tables.process_clocks:
        windows = range(row.window_id - row.window_count + 1, row.window_id + 1)
        if row.process_cpu_ns is not None and all(window in mine for window in windows):
            spent_ns += row.process_cpu_ns + row.handed_ns + row.steal_ns
    return spent_ns / side.group.operation_count


def fit(pairs: Sequence[Pair]) -> Spill:
    """The bounds of these pairs: what they do not show keeps the bounds that tlstax ships."""
    known = [pair for pair in pairs if pair.parts is not None]
    opened = [pair for pair in known if pair.is_open]
    shipped = Spill()
    rest = _bounds([_shares(pair, 0.0) for pair in opened], shipped.rest)
    others = [pair for pair in known if not pair.is_open]
    shake = [_shares(pair, sum(rest) / 2) for pair in others]
    return Spill(rest, _bounds(shake, shipped.handshake))


def _bounds(
    shares: Sequence[tuple[float, float]], shipped: tuple[float, float]
) -> tuple[float, float]:
    if not shares:
        return shipped
    low = min(low for low, _ in shares)
    return low, max(low, *(high for _, high in shares))


def _shares(pair: Pair, of_rest: float) -> tuple[float, float]:
    """A pair's share of other work, or of the handshake less that share of other work.

    The second is without what no sample explains in records, which a prediction adds by itself.
    """
    assert pair.parts is not None
    rest, shake = float(pair.parts.rest[0]), float(pair.parts.handshake[0])
    unknown = float(pair.parts.unknown[0])
    if pair.is_open:
        return pair.elsewhere_ns / rest, (pair.elsewhere_ns - unknown) / rest
    more = pair.elsewhere_ns - of_rest * rest
    return more / shake, (more - unknown) / shake


def predict(pair: Pair, spill: Spill | None = None) -> Held:
    """A pair's prediction, with bounds from elsewhere or with those that tlstax ships."""
    assert pair.recording is not None
    line = pair.recording.line(spill)
    assert line.then is not None
    return Held(pair, line.then.low_ns or 0.0, line.then.high_ns or 0.0, line.is_wide)


def leave_one_out(
    pairs: Sequence[Pair], of: Callable[[Pair], str] = lambda pair: pair.server
) -> list[Held]:
    """Each server's pairs, predicted from those of all others; or the same of what `of` says."""
    held = []
    for left in sorted({of(pair) for pair in pairs}):
        spill = fit([pair for pair in pairs if of(pair) != left])
        held += [
            predict(pair, spill) for pair in pairs if of(pair) == left and pair.parts is not None
        ]
    return held


def failures(pairs: Sequence[Pair], held: Sequence[Held]) -> list[str]:
    """What the claim lacks, in sentences; none: it holds.

    It must hold whether an interval that is too wide for `tlstax whatif` counts as one or as a
    refusal.
    """
    loads: dict[str, set[str]] = {}
    for pair in pairs:
        loads.setdefault(pair.server, set()).add(pair.load)
    enough = [server for server, found in loads.items() if len(found) >= LEAST_LOADS]
    failed = []
    if len(enough) < LEAST_SERVERS:
        failed.append(
            f"servers with {LEAST_LOADS} loads or more: {len(enough)}; the claim needs "
            f"{LEAST_SERVERS}"
        )
    narrow = [one for one in held if not one.is_wide]
    for name, given in ("all", held), ("those that are not too wide", narrow):
        inside = sum(one.is_inside for one in given)
        if inside < COVERED * len(given):
            failed.append(f"{name}: {inside} of {len(given)} intervals contain the plaintext arm")
        middle = middle_half_width(given)
        if middle > HALF_WIDTH:
            failed.append(f"{name}: the median half-width is {middle:.0%} of what TLS costs")
        if len(pairs) - len(given) > REFUSED * len(pairs):
            failed.append(f"{name}: {len(pairs) - len(given)} of {len(pairs)} have no prediction")
    return failed


def middle_half_width(held: Sequence[Held]) -> float:
    """The median half-width; infinite without any."""
    return float(np.median([one.half_width for one in held])) if held else float("inf")
