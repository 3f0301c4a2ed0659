# SPDX-License-Identifier: GPL-2.0-only
"""Which figures of closure a test of a real server demands on any host.

The figures of times hold the ledger against clocks that a hypervisor stops at other moments than
the ledger sees: on a host that others share they may be red for good reason, in any recording.
`make check-closure` and tests/truth/mutants are about them. The figures of counts have no excuse.
"""

from typing import Final

from tlstax.analysis.model.trust import Closure

TIMES: Final = frozenset({"on_cpu", "thread_on_cpu", "runnable", "steal", "samples"})


def failed_counts(closure: Closure) -> set[str]:
    """Ids of the figures of counts that are beyond their bounds."""
    assert closure.figures
    return {one.key for one in closure.figures if one.verdict == "failed"} - TIMES
