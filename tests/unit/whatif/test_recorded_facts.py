# SPDX-License-Identifier: GPL-2.0-only
"""What `tlstax whatif` takes from recordings: the key by its signature, and how few rounds."""

from dataclasses import replace

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.rows import tables
from tlstax.analysis.whatif import cost_origin, predict, recorded
from tlstax.analysis.whatif.summary import Scenario
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.unit.whatif.costs import COSTS
from tlstax.tests.unit.whatif.test_whatif import DEMO


@pytest.fixture(scope="module")
def storm() -> RecordingSelection:
    with CaptureReader.open(DEMO) as reader:
        rows = tables.load(reader)
    return RecordingSelection("demo", rows, selections.matching(rows, "connect/tls")[0])


def resumed(storm: RecordingSelection) -> RecordingSelection:
    """The same where every second handshake was resumed: half of the signatures."""
    mine = storm.group.window_ids
    shakes = [
        row._replace(resumed=1, sign_ns=0) if at % 2 and row.window_id in mine else row
        for at, row in enumerate(storm.tables.handshakes)
    ]
    cells = [
        row._replace(time_ns=row.time_ns // 2) if row.phase == "sign" else row
        for row in storm.tables.ledger
    ]
    return replace(storm, tables=replace(storm.tables, handshakes=shakes, ledger=cells))


def test_resumed_handshakes_have_no_signature(storm: RecordingSelection) -> None:
    """Neither do they tell the key, nor do they change with it."""
    some = resumed(storm)
    assert recorded.present_key(some, COSTS) == "rsa:2048"
    changes = []
    for side in (storm, some):
        wish = Scenario(key="rsa:4096", present_key="rsa:2048")
        line = predict.predict(side, wish, COSTS).forecasts[0]
        model = line.models["by handshake"]
        changes.append(model.value_ns - line.now.value_ns)
    assert changes[1] == pytest.approx(changes[0] / 2, rel=0.1)


def test_certificates_are_told_by_full_handshakes(storm: RecordingSelection) -> None:
    """Of resumed ones no certificate is checked, so most of them seemed to have none."""
    shakes = [
        row._replace(resumed=1, sign_ns=0, verify_ns=0) if at % 5 < 3 else row
        for at, row in enumerate(storm.tables.handshakes)
    ]
    some = replace(storm, tables=replace(storm.tables, handshakes=shakes))
    assert recorded.handshake_facts(some).mutual
    none = [row._replace(resumed=1, verify_ns=0) for row in shakes]
    with pytest.raises(TlstaxError, match="all of its handshakes were resumed"):
        recorded.handshake_facts(replace(storm, tables=replace(storm.tables, handshakes=none)))


def test_the_key_is_told_by_handshakes_of_light_time_too(storm: RecordingSelection) -> None:
    """Ledger time stands for all of the time, so it is not divided by the handshakes of a part."""
    windows = [row._replace(level="signature") for row in storm.tables.windows[1:]]
    light = replace(storm.tables, windows=[storm.tables.windows[0], *windows])
    assert recorded.present_key(replace(storm, tables=light), COSTS) == "rsa:2048"


@pytest.mark.parametrize(
    ("version", "linkage", "why"),
    [
        ("OpenSSL 3.0.19", "static", "the library is linked into the server"),
        ("OpenSSL 3.5.1", "shared", "another branch"),
    ],
)
def test_a_library_of_the_servers_own_is_refused(
    storm: RecordingSelection, version: str, linkage: str, why: str
) -> None:
    """Where its branch was the host's, a library linked in was taken for the host's."""
    cost_origin.require_library(storm, "OpenSSL 3.0.19")
    targets = [storm.tables.targets[0]._replace(tls_version=version, tls_linkage=linkage)]
    own = replace(storm, tables=replace(storm.tables, targets=targets))
    with pytest.raises(TlstaxError, match=why) as refused:
        cost_origin.require_library(own, "OpenSSL 3.0.19")
    assert refused.value.exit_code == ExitCode.HOST


def storm_rounds(storm: RecordingSelection) -> int:
    """More than the second recording has."""
    count = len({run.round for run in storm.group.runs})
    assert count > 3
    return count


def test_a_second_recording_says_how_few_rounds_it_has(storm: RecordingSelection) -> None:
    """The interval has no more units than the recording with fewest."""
    few = [run for run in storm.group.runs if run.round in {r.round for r in storm.group.runs[:3]}]
    rounds = {run.round for run in few}
    runs = [run for run in storm.tables.runs if run.round in rounds]
    rows = replace(storm.tables, runs=runs)
    other = RecordingSelection("other", rows, selections.matching(rows, "connect/tls")[0])
    made = predict.predict(storm, Scenario(library=other), None)
    line = made.forecasts[0]
    assert line.then is not None
    assert line.then.unit_count == len(rounds)
    assert line.now.unit_count == storm_rounds(storm)
    assert any("too few for an interval" in text for text in made.assumptions)
