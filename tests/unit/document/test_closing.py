# SPDX-License-Identifier: GPL-2.0-only
"""What a report says about closure."""

from tlstax.analysis.document.closing import close
from tlstax.tests.unit.rows.test_closure import MS, recording


def note(handed_ns: int) -> str:
    made = recording()
    made.ledger = [
        row._replace(time_ns=row.time_ns + handed_ns) if row.state == "on_cpu" else row
        for row in made.ledger
    ]
    made.process_clocks = [row._replace(handed_ns=handed_ns) for row in made.process_clocks]
    made.clocks = [row._replace(handed_ns=handed_ns) for row in made.clocks]
    # One window is the worst: the note is about the whole recording even so.
    made.process_clocks[3] = made.process_clocks[3]._replace(process_cpu_ns=595 * MS)
    (figure,) = (one for one in close(made).figures if one.key == "on_cpu")
    assert (figure.verdict, figure.windows) == ("ok", "3 to 3")
    return figure.note


def test_cpu_time_that_linux_charges_to_others_is_told() -> None:
    assert note(handed_ns=0) == note(handed_ns=MS) == ""
    text = note(handed_ns=100 * MS)  # beside 600 ms in each of ten windows
    assert text.startswith("Of all CPU time in the ledger, Linux charges 1.00 s (14.3 %) to")
    assert text.endswith("top and pidstat show that much less.")
