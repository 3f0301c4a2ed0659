# SPDX-License-Identifier: GPL-2.0-only
"""Who gets which label: no server ever gets that of another one that ran beside it."""

from collections.abc import Callable

import pytest

from tlstax import TlstaxError
from tlstax.collectors.watching import labels as module
from tlstax.collectors.watching.labels import Labels, NotYetError
from tlstax.collectors.watching.server_labels import Marks, long_label, started_at

A: Marks = (("--port", "3306"), ("--datadir", "/srv/a"))
B: Marks = (("--port", "3306"), ("--datadir", "/srv/b"))
CHANGED: Marks = (("--port", "3306"), ("--datadir", "/srv/new"))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> dict[int, Marks]:
    found: dict[int, Marks] = {}
    monkeypatch.setattr(module, "server_marks", lambda pid: found.get(pid, ()))
    monkeypatch.setattr(module, "may_be_its_parent", lambda _: False)
    monkeypatch.setattr(module, "started_at", lambda pid: str(pid) if pid in found else "")
    return found


def refused(labels: Labels, pid: int, recorded: set[str]) -> str:
    with pytest.raises(TlstaxError, match="is not recorded") as raised:
        labels.of(pid, recorded)
    assert labels.is_refused(pid)
    return raised.value.why


def test_a_second_server_with_the_same_port_has_a_label_of_its_own(
    processes: dict[int, Marks],
) -> None:
    labels = Labels()
    processes[7] = A
    assert labels.of(7, set()) == "3306"
    processes[8] = B
    assert labels.of(8, {"3306"}) == "3306-srv-b"
    del processes[7], processes[8]
    processes |= {9: B, 10: A}
    assert labels.of(9, set()) == "3306-srv-b", "also if it comes first"
    assert labels.of(10, {"3306-srv-b"}) == "3306"


def test_servers_that_are_found_together_are_named_without_regard_to_who_is_first(
    processes: dict[int, Marks],
) -> None:
    for first, second in ((A, B), (B, A)):
        labels = Labels()
        processes |= {7: first, 8: second}
        labels.seen_together([7, 8])
        found = {processes[pid]: labels.of(pid, set()) for pid in (7, 8)}
        assert found == {A: "3306-srv-a", B: "3306-srv-b"}


def test_a_restart_with_other_options_keeps_the_label(processes: dict[int, Marks]) -> None:
    labels = Labels()
    processes[7] = A
    assert labels.of(7, set()) == "3306"
    processes[8] = CHANGED
    del processes[7]
    assert labels.of(8, set()) == "3306"
    processes[9] = A  # so it was another server after all
    assert labels.of(9, {"3306"}) == "3306-srv-a"


def test_but_not_where_another_server_has_a_right_to_it(processes: dict[int, Marks]) -> None:
    labels = Labels()
    processes |= {7: A, 8: B}
    assert labels.of(7, set()) == "3306"
    assert labels.of(8, {"3306"}) == "3306-srv-b"
    del processes[7]
    processes[9] = CHANGED
    assert labels.of(9, {"3306-srv-b"}) == "3306-srv-new"


@pytest.mark.parametrize("marks", [A, ()])
def test_the_same_start_is_refused_as_long_as_the_process_runs(
    marks: Marks, processes: dict[int, Marks]
) -> None:
    labels = Labels()
    processes |= {7: marks, 8: marks}
    label = labels.of(7, set())
    assert refused(labels, 8, {label}).startswith("process 7 was started in the same way: ")
    assert labels.of(7, set()) == label, "of a process whose recording has ended, too"
    del processes[7]
    assert labels.is_refused(8)
    processes[9] = marks
    assert labels.of(9, set()) == label, "8 still runs, so it is the restart of 7"
    del processes[8], processes[9]
    processes[10] = marks
    refused(labels, 10, set())  # the restart of 7 or of 8
    labels.forget(label)
    del processes[10]
    processes[11] = marks
    assert labels.of(11, set()) == label


def test_a_process_that_is_not_recorded_at_the_moment_keeps_its_label(
    processes: dict[int, Marks],
) -> None:
    """Its recorder was killed, say, and the next attempt is due in a minute."""
    labels = Labels()
    processes[7] = A
    assert labels.of(7, set()) == "3306"
    processes |= {8: A, 9: B}
    refused(labels, 8, set())
    assert labels.of(9, set()) == "3306-srv-b"
    del processes[8]
    assert labels.of(7, set()) == "3306"


@pytest.mark.parametrize(("first", "second"), [(7, 8), (8, 7)])
def test_a_server_has_its_label_when_the_process_that_forked_it_has_ended(
    first: int, second: int, processes: dict[int, Marks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """7 is `mysqld --daemonize` and waits until 8, its server, has started."""
    monkeypatch.setattr(module, "may_be_its_parent", lambda pid: pid == 7)
    labels = Labels()
    processes |= {7: A, 8: A}
    assert labels.of(first, set()) == "3306"
    with pytest.raises(NotYetError):
        labels.of(second, {"3306"})
    assert not labels.is_refused(second)
    del processes[7]
    assert labels.of(8, set()) == "3306"
    del processes[8]
    processes[9] = A
    assert labels.of(9, set()) == "3306", "and so has its restart"


def test_a_label_is_not_forgotten_while_its_process_runs(processes: dict[int, Marks]) -> None:
    """It could not be recorded for a day."""
    labels = Labels()
    processes |= {7: A, 8: A}
    label = labels.of(7, set())
    refused(labels, 8, set())
    labels.forget(label)
    del processes[8]
    processes[9] = A  # the restart of 8
    assert refused(labels, 9, set()).startswith("process 7 was started in the same way: ")
    assert labels.of(7, set()) == label


def test_a_process_that_has_ended_is_no_other_server(processes: dict[int, Marks]) -> None:
    labels = Labels()
    processes[7] = A
    labels.of(7, set())
    del processes[7]
    processes[8] = A
    with pytest.raises(NotYetError):
        labels.of(8, {"3306"})
    with pytest.raises(NotYetError):
        labels.of(9, set())
    assert labels.of(8, set()) == "3306"


def test_long_labels_that_are_the_same_are_refused(processes: dict[int, Marks]) -> None:
    end = "/very/long/name" * 6
    labels = Labels()
    processes |= {7: (("--port", "1"), ("--datadir", f"/a{end}"))}
    processes |= {8: (("--port", "1"), ("--datadir", f"/b{end}"))}
    assert long_label(processes[7]) == long_label(processes[8])
    labels.seen_together([7, 8])
    label = labels.of(7, set())
    assert "nothing else tells" in refused(labels, 8, {label})
    assert not labels.is_refused(7)


def test_when_a_process_was_started(spawn: Callable[..., object]) -> None:
    process = spawn(["sleep", "60"])
    pid = process.pid  # type: ignore[attr-defined]
    assert started_at(pid) == started_at(pid) != ""
    process.kill()  # type: ignore[attr-defined]
    while started_at(pid):  # a zombie has ended
        pass
