# SPDX-License-Identifier: GPL-2.0-only
"""Compare `tlstax whatif --no-tls` with plaintext arms that it has not seen (make check-tax).

    check.py CAPTURE...     captures of experiments, as `tlstax lab run` and `tlstax lab demo` write

Each TLS arm of a capture is judged alone; the plaintext arm of the same load is then held against
the interval. Exits with 1 unless nine of ten intervals contain it, and where none was given.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tlstax import TlstaxError
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.quantities import time_text
from tlstax.analysis.rows import ledger, tables
from tlstax.analysis.whatif import no_tls
from tlstax.collectors.capture.reader import CaptureReader

COVERED = 0.9


@dataclass(frozen=True)
class Judged:
    """One load: what was predicted without TLS, and what its plaintext arm took (ns)."""

    name: str
    low_ns: float
    high_ns: float
    with_tls_ns: float
    plaintext_ns: float

    @property
    def is_inside(self) -> bool:
        """Whether the interval contains the plaintext arm."""
        return self.low_ns <= self.plaintext_ns <= self.high_ns

    @property
    def half_width(self) -> float:
        """Half of the interval, as a share of what TLS cost by both arms; infinite for nothing."""
        tax = self.with_tls_ns - self.plaintext_ns
        return (self.high_ns - self.low_ns) / 2 / tax if tax > 0 else float("inf")


def judge(path: Path) -> list[Judged]:
    """All loads of a capture that have both arms; refusals are printed."""
    with CaptureReader.open(path) as reader:
        rows = tables.load(reader)
    plain = {
        (group.driver, group.scenario): RecordingSelection(path.stem, rows, group)
        for group in selections.matching(rows, "plaintext")
    }
    found = []
    for group in selections.matching(rows, "tls"):
        side = RecordingSelection(path.stem, rows, group)
        partner = plain.get((group.driver, group.scenario))
        if partner is None:
            continue
        try:
            line = no_tls.without_tls(side).forecasts[0]
        except TlstaxError as refusal:
            print(f"refused {side.label}: {refusal.why}")
            continue
        assert line.then is not None
        found.append(
            Judged(side.label, line.then.low_ns or 0.0, line.then.high_ns or 0.0,
                   line.now.value_ns, cpu_per_operation(partner))
        )  # fmt: skip
    return found


def cpu_per_operation(side: RecordingSelection) -> float:
    """The server's CPU time for an operation, in ns."""
    totals = ledger.served(ledger.totals(side.tables.ledger, side.group.window_ids))
    return sum(ledger.on_cpu(totals).values()) / side.group.operation_count


def main() -> int:
    """All captures; 0 if enough intervals hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE")
    judged = [one for path in parser.parse_args().captures for one in judge(path)]
    for one in judged:
        print(
            f"{'ok   ' if one.is_inside else 'WRONG'} {one.name}: {time_text(one.plaintext_ns)} in "
            f"plaintext, {time_text(one.low_ns)} to {time_text(one.high_ns)} predicted, "
            f"{time_text(one.with_tls_ns)} with TLS, ±{one.half_width:.0%} of the difference"
        )
    inside = sum(one.is_inside for one in judged)
    if judged:
        middle = float(np.median([one.half_width for one in judged]))
        print(f"{inside} of {len(judged)} inside; median half-width ±{middle:.0%}")
    return int(not judged or inside < COVERED * len(judged))


if __name__ == "__main__":
    sys.exit(main())
