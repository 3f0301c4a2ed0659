# SPDX-License-Identifier: GPL-2.0-only
"""Compare `tlstax whatif --no-tls` with plaintext arms that it has not seen (make check-tax).

    check.py CAPTURE...     captures of experiments, as `tlstax lab run` and `tlstax lab demo` write
    check.py --leave-one-server-out CAPTURE...
                            with bounds from the other servers' captures instead of those that
                            tlstax ships (spill.py); prints the bounds of all of them, too
    check.py --as-flow ...  as if they had been recorded at level flow

Each TLS arm of a capture is judged alone; the plaintext arm of the same load is then held against
the interval. Exits with 1 unless nine of ten intervals contain it, and where none was given; with
--leave-one-server-out also if the captures do not bear the claim, for the reason that it prints.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import tables
from tlstax.analysis.statistics.medians import estimate
from tlstax.analysis.statistics.units import Units
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.tax import spill
from tlstax.tests.truth.tax.spill import Held, Pair
from tlstax.tests.unit.findings.loads import as_flow

DRAWS: Final = 2000
"""Of servers, with replacement."""


def main() -> int:
    """All captures; 0 if enough intervals hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE")
    parser.add_argument("--leave-one-server-out", action="store_true")
    parser.add_argument("--as-flow", action="store_true")
    options = parser.parse_args()
    try:
        pairs = [pair for path in options.captures for pair in read(path, options.as_flow)]
        refuse_twice(pairs)
    except TlstaxError as error:
        sys.exit(str(error))
    leaves = options.leave_one_server_out
    known = [pair for pair in pairs if pair.parts is not None]
    held = spill.leave_one_out(pairs) if leaves else [spill.predict(pair) for pair in known]
    for pair in pairs:
        if pair.parts is None:
            print(f"refused {pair.server}: {pair.load}: {pair.why}")
    for one in held:
        print(line(one))
    for sentence in summary(pairs, held):
        print(sentence)
    if not leaves:
        inside = sum(one.is_inside for one in held)
        return int(not held or inside < spill.COVERED * len(held))
    of_library = spill.leave_one_out(pairs, lambda pair: pair.server.rsplit(", ", 1)[1])
    inside = sum(one.is_inside for one in of_library)
    print(f"with each TLS library left out: {inside} of {len(of_library)} inside")
    found = spill.fit(pairs)
    for name, (low, high) in (("other work", found.rest), ("handshake", found.handshake)):
        print(f"elsewhere TLS costs {low:.1%} to {high:.1%} of the {name}, by all of them")
    failed = spill.failures(pairs, held)
    print("\n".join(failed) or "as it must be")
    return int(bool(failed))


def read(path: Path, is_flow: bool) -> list[Pair]:
    """The pairs of a capture."""
    with CaptureReader.open(path) as reader:
        rows = tables.load(reader)
        return spill.pairs_of(as_flow(rows) if is_flow else rows, path.stem)


def refuse_twice(pairs: Sequence[Pair]) -> None:
    """Raises TlstaxError (USAGE) if two captures have the same load on the same server."""
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        if (pair.server, pair.load) in seen:
            raise TlstaxError(
                f"{pair.server}: {pair.load} is there twice",
                "captures of two runs were given",
                "Give those of one",
                ExitCode.USAGE,
            )
        seen.add((pair.server, pair.load))


def summary(pairs: Sequence[Pair], held: Sequence[Held]) -> list[str]:
    """What they say together."""
    lines = []
    narrow = [one for one in held if not one.is_wide]
    for name, given in ("all intervals", held), ("those within 20 % of what TLS costs", narrow):
        inside = sum(one.is_inside for one in given)
        middle = spill.middle_half_width(given)
        lines.append(
            f"{name}: {inside} of {len(given)} inside, of {len(pairs)} loads; "
            f"median half-width ±{middle:.0%}"
        )
    known = [pair for pair in pairs if pair.parts is not None]
    least = sum(pair.is_at_least for pair in known)
    lines.append(f"TLS costs at least what handshakes and records take in {least} of {len(known)}")
    nothing = sum(has_nothing(pair) for pair in known)
    lines.append(f"what it costs may be nothing by both arms in {nothing} of {len(known)}")
    clocks = [ratio for pair in known if (ratio := pair.by_clock) is not None]
    if clocks:
        low, middle, high = np.quantile(clocks, (0.1, 0.5, 0.9))
        lines.append(
            f"by the clock of the process it costs {middle:.2f} ({low:.2f} to {high:.2f} in eight "
            f"of ten) of what it costs by phases, {len(clocks)} loads"
        )
    loads = sorted({one.pair.load for one in held})
    for load in loads:
        widths = sorted(one.half_width for one in held if one.pair.load == load)
        lines.append(f"  {load}: half-widths ±{widths[0]:.0%} to ±{widths[-1]:.0%}")
    servers = sorted({one.pair.server for one in held})
    if len(servers) > 1:
        generator = np.random.default_rng(1)
        counts = np.array(
            [
                [sum(one.is_inside for one in held if one.pair.server == server),
                 sum(one.pair.server == server for one in held)]
                for server in servers
            ]
        )  # fmt: skip
        drawn = counts[generator.integers(0, len(servers), (DRAWS, len(servers)))].sum(axis=1)
        lines.append(
            f"with servers drawn again: {np.quantile(drawn[:, 0] / drawn[:, 1], 0.05):.0%} inside "
            "or more in 95 of 100 draws"
        )
    return lines


def has_nothing(pair: Pair) -> bool:
    """Whether the interval of what TLS costs, round by round, contains 0."""
    taxes_ns = pair.taxes_ns
    found = estimate(taxes_ns, Units(len(taxes_ns) - 1))
    return found.low is None or found.low <= 0


def line(one: Held) -> str:
    """A prediction and what was measured."""
    assert one.pair.parts is not None
    return (
        f"{'ok   ' if one.is_inside else 'WRONG'} {one.pair.server}: {one.pair.load}: "
        f"{time_text(one.pair.plaintext_ns)} in plaintext, {time_text(one.low_ns)} to "
        f"{time_text(one.high_ns)} predicted, {time_text(float(one.pair.parts.now[0]))} with TLS, "
        f"±{one.half_width:.0%} of the difference{' (too wide)' if one.is_wide else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
