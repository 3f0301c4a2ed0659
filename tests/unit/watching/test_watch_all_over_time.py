# SPDX-License-Identifier: GPL-2.0-only
"""A watch of several servers over time: whose data is whose, and what is left of who has gone."""

import gc
from typing import Any

import pytest

from tlstax import ExitCode
from tlstax.collectors.watching import outlets, watch_all
from tlstax.collectors.watching.outlet import Outlet
from tlstax.collectors.watching.outlets import Outlets
from tlstax.tests.unit.watching.servers_of_host import CPU_NS, Host, Sink, host_of, run
from tlstax.tests.unit.watching.test_watch import WINDOW, refused


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return host_of(monkeypatch)


def test_one_that_cannot_be_told_from_another_inherits_nothing_from_it(host: Host) -> None:
    """It is refused once, and stays so when the other one ends; whose restart is told from it."""
    host.made = dict.fromkeys((7, 8, 9), (("--port", "3306"),))
    host.pids = [[7, 8], *[[7, 8]] * 3, *[[8]] * 3, *[[8, 9]] * 4]
    host.windows = {7: [WINDOW, "it exited or was killed"], 9: [WINDOW]}
    told = run(host)
    assert host.recorders == [[7], [9]]
    (refusal,) = [text for text in told if "cannot be told" in text]
    assert refusal.startswith("process 8 cannot be told from another server and is not recorded: ")
    assert "process 7 was started in the same way: 3306" in refusal
    assert host.did.count("window 3306") == 2


def test_a_recorder_that_records_for_nobody_ends_before_the_next_one_begins(host: Host) -> None:
    """It cannot leave one server alone, so the others get another recorder, too."""
    host.running = {7, 8}
    host.pids = [[7, 8]] * 6
    host.windows = {7: [WINDOW, "its stream cannot be read"], 8: [WINDOW, WINDOW]}
    told = run(host)
    assert sorted(map(sorted, host.recorders[1:])) in ([[7], [8]], [[7, 8]])
    first_end, second_begin = host.did.index("its end"), host.did.index("begin db8 8", 4)
    assert host.did.index("detached db8") < first_end < second_begin
    said = "the recorder of process 7 is ended; attaching again to what else it recorded: 8"
    assert said in told


def test_a_recorder_whose_stream_was_never_read_is_ended(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = getattr(watch_all, "RecorderSession")  # noqa: B009 - the one of this host
    errors = [None, refused(ExitCode.FAILED)]

    def session(*told: Any, **named: Any) -> Any:
        if errors and (error := errors.pop(0)):
            raise error
        return made(*told, **named)

    monkeypatch.setattr(watch_all, "RecorderSession", session)
    host.running, host.stray = {7, 8}, {1}
    host.pids = [[7, 8]] * 5
    told = run(host)
    said = "the recorder of process 8 is ended; attaching again to what else it recorded: 7"
    assert said in told
    again = [n for n, did in enumerate(host.did) if did == "begin db7 7"][1]
    assert host.did.index("its end") < again


def test_outlets_of_labels_that_do_not_return_are_closed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "GONE_MOST", 2)
    pids = list(range(10, 16))
    host.pids = [each for pid in pids for each in ([pid], [pid], [])] + [[]] * 3
    host.windows = {pid: [WINDOW, "it exited or was killed"] for pid in pids}
    run(host)
    opened = [did for did in host.did if did.startswith("open")]
    closed = [did for did in host.did if did.startswith("close")]
    assert opened == [f"open db{pid}" for pid in pids]
    assert closed[:4] == [f"close db{pid}" for pid in pids[:4]], "the first ones first"
    at_once = [
        sum(did.startswith("open") for did in host.did[:n])
        - sum(did.startswith("close") for did in host.did[:n])
        for n in range(len(host.did))
    ]
    assert max(at_once) <= 4
    assert host.told[-1].endswith("for those that are gone")
    assert f"used {len(pids) * CPU_NS / 1e6:.1f} s" in host.told[-1]


def test_a_recording_leaves_nothing_in_memory(host: Host) -> None:
    """Its parts refer to each other: without a collection each restart left them all."""
    host.pids = [[7, 8], *[[7, 8]] * 2, *[[7, 9]] * 2, *[[7]] * 2, [7]]
    host.made = {9: (("--port", "db8"),)}
    host.windows = {8: [WINDOW, "it exited or was killed"], 9: [WINDOW, "it exited or was killed"]}
    gc.disable()  # when Python collects by itself is chance
    try:
        run(host)
    finally:
        gc.enable()
    assert len(host.sessions) == 3
    assert host.left[-1] == 1, "only that of the server that is recorded"


def test_an_outlet_is_closed_a_day_after_its_server_has_gone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "GONE_NS", 1)
    host.pids = [[7], [7], [], [], [8], [8]]
    host.made = {8: (("--port", "db7"), ("--socket", "x"))}
    host.windows = {7: [WINDOW, "it exited or was killed"]}
    run(host)
    assert [did for did in host.did if did.startswith(("open", "close"))] == [
        *["open db7", "close db7"] * 2
    ]


def test_an_outlet_that_cannot_be_closed_leaves_the_others_closed(host: Host) -> None:
    def opened(label: str) -> Outlet:
        def close() -> None:
            host.did.append(f"close {label}")
            raise OSError(label)

        return Outlet(Sink(host, label), None, lambda _: None, close)

    made = Outlets(opened)
    for label in ("a", "b"):
        made.of(label)
    with pytest.raises(OSError, match="a"):
        made.close()
    assert host.did == ["close b", "close a"]
