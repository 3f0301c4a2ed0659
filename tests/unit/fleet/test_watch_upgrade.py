# SPDX-License-Identifier: GPL-2.0-only
"""An hour that is explained when another version of tlstax has taken the place of this one."""

from pathlib import Path

import pytest

from tlstax.analysis.fleet.continuous import raw_hour
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.unit.fleet.test_watch_hours import watched

ANSWERS = """
import os, pickle, sys
from tlstax.analysis.fleet import columns
class Other:
    def __reduce__(self):
        return columns.Finding, ("too", "few")
kinds = {
    "fields": lambda: pickle.dumps(Other()),
    "name": lambda: b"ctlstax.analysis.fleet.columns\\nNoLonger\\n.",
    "nothing": lambda: b"",
    "garbage": lambda: b"this is no pickle",
}
sys.stdout.buffer.write(kinds[os.environ["ANSWER"]]())
"""


@pytest.mark.parametrize("answer", ["fields", "name", "nothing", "garbage"])
def test_an_answer_of_another_version_costs_the_stacks_of_that_hour(
    answer: str,
    demo_tables: Tables,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "another_version.py").write_text(ANSWERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("ANSWER", answer)
    monkeypatch.setattr(raw_hour, "MODULE", "another_version")
    capture = repository / "docs/demo/demo.tlstax"
    watching = watched(tmp_path / "data", demo_tables, capture)
    watching.sink.close()
    assert [line for line in watching.said if "could not be explained" in line] == [
        f"{capture} could not be explained: its hour has no stacks"
    ]
    assert watching.counters.unexplained_count == 1
