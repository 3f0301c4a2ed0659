# SPDX-License-Identifier: GPL-2.0-only
"""How it was measured, in words, for the end of every report."""

from collections.abc import Sequence
from typing import Final

from tlstax.analysis.model.report import Meaning, Method
from tlstax.collectors.capture.vocabulary import CATEGORY_TERMS, PHASE_TERMS, STATE_TERMS, Term

_TEXT: Final = """
Every nanosecond of every server thread belongs to one phase (what the thread does, and for whom)
and one state (running, or what it waits for). The kernel adds them up at every change, so the
ledger is exact; it is checked against the threads' lifetimes and the scheduler's clock, which are
not its own.

What the CPU did inside a phase comes from samples, tagged in the kernel with the phase. The ledger
gives the total, the samples split it. A share needs 1,000 samples. Signature, key generation,
shared secret and verification are timed exactly.

Samples taken in the kernel are filed by phase and system call, not by function: they pile up where
the kernel enables interrupts again.

Two handshake figures are kept apart: the ledger charges a thread for its time inside the handshake;
a handshake record is the wall time of one connection's handshake, with its waits.

An experiment runs its arms interleaved and compares them per operation, round by round. A
difference whose 95 % interval spans zero is no difference seen. What the steps do not cover is
printed as unexplained.

Nothing is subtracted for the cost of measuring; it is printed beside the results.
"""


def describe() -> Method:
    """The method with the vocabulary that reports use."""
    paragraphs = [" ".join(part.split()) for part in _TEXT.strip().split("\n\n")]
    return Method(
        paragraphs, _meanings(PHASE_TERMS), _meanings(STATE_TERMS), _meanings(CATEGORY_TERMS)
    )


def _meanings(terms: Sequence[Term]) -> list[Meaning]:
    return [Meaning(term.name, term.meaning) for term in terms]
