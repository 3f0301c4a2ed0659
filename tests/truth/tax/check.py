# SPDX-License-Identifier: GPL-2.0-only
"""Compare `tlstax whatif --no-tls` with plaintext arms that it has not seen (make check-tax).

    check.py CAPTURE...     captures of experiments, as `tlstax lab run` and `tlstax lab demo` write
    check.py --leave-one-server-out CAPTURE...
                            with bounds from the other servers' captures instead of those that
                            tlstax ships (spill.py); prints the bounds of all of them, too

Each TLS arm of a capture is judged alone; the plaintext arm of the same load is then held against
the interval. Exits with 1 unless nine of ten intervals contain it, and where none was given; with
--leave-one-server-out also if the captures do not bear the claim, for the reason that it prints.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from tlstax import TlstaxError
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import tables
from tlstax.analysis.whatif import no_tls
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.tax import spill
from tlstax.tests.truth.tax.spill import Held, Pair


def main() -> int:
    """All captures; 0 if enough intervals hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE")
    parser.add_argument("--leave-one-server-out", action="store_true")
    options = parser.parse_args()
    try:
        pairs = [pair for path in options.captures for pair in read(path)]
    except TlstaxError as error:
        sys.exit(str(error))
    held = spill.leave_one_out(pairs) if options.leave_one_server_out else shipped(pairs)
    for pair in pairs:
        if pair.parts is None:
            print(f"refused {pair.server}: {pair.load}")
    for one in held:
        print(line(one))
    inside = sum(one.is_inside for one in held)
    if held:
        middle = float(np.median([one.half_width for one in held]))
        print(f"{inside} of {len(held)} inside; median half-width ±{middle:.0%}")
    if not options.leave_one_server_out:
        return int(not held or inside < spill.COVERED * len(held))
    found = spill.fit(pairs)
    for name, (low, high) in (("other work", found.rest), ("handshake", found.handshake)):
        print(f"elsewhere TLS costs {low:.1%} to {high:.1%} of the {name}, by all of them")
    failed = spill.failures(pairs, held)
    print("\n".join(failed) or "as it must be")
    return int(bool(failed))


def read(path: Path) -> list[Pair]:
    """The pairs of a capture."""
    with CaptureReader.open(path) as reader:
        return spill.pairs_of(tables.load(reader), path.stem)


def shipped(pairs: list[Pair]) -> list[Held]:
    """All pairs, with the bounds that tlstax ships."""
    held = []
    for pair in pairs:
        if pair.parts is None:
            continue
        then = no_tls.without_tls(pair.tls).forecasts[0].then
        assert then is not None
        held.append(Held(pair, then.low_ns or 0.0, then.high_ns or 0.0))
    return held


def line(one: Held) -> str:
    """A prediction and what was measured."""
    assert one.pair.parts is not None
    return (
        f"{'ok   ' if one.is_inside else 'WRONG'} {one.pair.server}: {one.pair.load}: "
        f"{time_text(one.pair.plaintext_ns)} in plaintext, {time_text(one.low_ns)} to "
        f"{time_text(one.high_ns)} predicted, {time_text(float(one.pair.parts.now[0]))} with TLS, "
        f"±{one.half_width:.0%} of the difference"
    )


if __name__ == "__main__":
    sys.exit(main())
