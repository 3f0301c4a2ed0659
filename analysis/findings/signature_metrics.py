# SPDX-License-Identifier: GPL-2.0-only
"""The server's signatures: CPU time of each, over all handshakes, and how many were recorded.

A resumed session does not sign, nor do most handshakes that fail. The time of a signature, which
tells a long key, is a mean of those that signed; what signing costs a handshake is one of all.
"""

from typing import NamedTuple

import numpy as np

from tlstax.analysis.findings.window_metrics import Blocks, Metrics, exact, handshakes_of, ratio
from tlstax.analysis.statistics.units import Floats


class Signatures(NamedTuple):
    """Sums of all units, then of each."""

    time_ns: Floats
    """CPU time."""
    signed: Floats
    """Handshakes in which the server signed."""
    handshakes: Floats
    """With or without a signature."""


def signatures_of(blocks: Blocks) -> Signatures:
    """Those of all windows where handshakes were recorded between dense ones, else the ledger's."""
    shakes = blocks.sums("exact:handshake")
    if shakes[0]:
        return Signatures(blocks.sums("exact:sign"), blocks.sums("exact:signed"), shakes)
    time_ns, shakes = blocks.sums("time:sign/on_cpu"), handshakes_of(blocks)
    signed = blocks.sums("dense:signed")
    if not signed[0]:  # no record tells which handshakes signed: the least that a signature takes
        return Signatures(time_ns, shakes, shakes)
    # Some records may be lost. A handshake that is given up has one, and does not end its phase.
    per_record = ratio(blocks.sums("ended:handshake"), blocks.sums("dense:ended"))
    return Signatures(time_ns, signed * np.maximum(1.0, np.nan_to_num(per_record)), shakes)


def add_signatures(found: Metrics, blocks: Blocks, signatures: Signatures) -> None:
    """What signing takes in the mean of all handshakes, and how many signatures were recorded."""
    of_all = ratio(signatures.time_ns, signatures.handshakes)
    found["sign_handshake_ns"] = blocks.metric(of_all)
    signed, unsigned = (float(blocks.sums(f"all:{kind}")[0]) for kind in ("signed", "unsigned"))
    is_recorded = signed + unsigned > 0
    found["signatures_count"] = exact(signed if is_recorded else float(signatures.signed[0]))
