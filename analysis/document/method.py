# SPDX-License-Identifier: GPL-2.0-only
"""The section of every report that explains the method."""

from collections.abc import Sequence
from typing import Final

from tlstax.analysis.model.report import Meaning, Method
from tlstax.collectors.capture.vocabulary import CATEGORY_TERMS, PHASE_TERMS, STATE_TERMS, Term

_TEXT: Final = """
Every nanosecond of every server thread belongs to one phase (what the thread does, and for whom)
and one state (running, or what it waits for). The kernel adds them up at every change, so the
ledger is exact. Closure checks its sums against clocks and counts that it has no part in: the CPU
clock of the process, the scheduler's counts, the host's steal, the server's counters.

CPU samples, tagged in the kernel with the phase, show what the CPU did inside a phase. The ledger
gives the total, the samples split it. A share needs 1,000 samples. Signature, key generation,
shared secret and verification are timed exactly.

Samples in the kernel are classified by phase and system call, not by function: they accumulate
where the kernel re-enables interrupts.

There are two handshake figures: the ledger charges a thread for its time inside the handshake;
a handshake record is the wall time of one connection's handshake, with its waits.

An experiment runs its arms interleaved and compares them per operation, round by round. A
difference is marked if its interval excludes zero, and a step only if few of the marked ones can be
noise; else it is printed as "no difference seen". Fewer than eight rounds, or blocks of windows of
one recording, have no interval but a range, and nothing is marked. The part of the difference that
no step covers is printed as unexplained.

The overhead of measuring is printed with the results, and is not subtracted from them.
"""


def describe() -> Method:
    """The method and the vocabulary of reports."""
    paragraphs = [" ".join(part.split()) for part in _TEXT.strip().split("\n\n")]
    return Method(
        paragraphs, _meanings(PHASE_TERMS), _meanings(STATE_TERMS), _meanings(CATEGORY_TERMS)
    )


def _meanings(terms: Sequence[Term]) -> list[Meaning]:
    return [Meaning(term.name, term.meaning) for term in terms]
