# SPDX-License-Identifier: GPL-2.0-only
"""The price of a probe on another host: asked for once, kept, and never made up."""

from pathlib import Path

import pytest

from tlstax.collectors.host.probe_costs.costs import UnmeasuredError
from tlstax.collectors.host.probe_costs.prices import HostCosts, Prices
from tlstax.collectors.remote.remote_prices import costs_there

LINES = "".join(
    f"{kind} {cpus} {' '.join([str(cost * int(cpus))] * 9)}\n"
    for cpus in ("1", "4")
    for kind, cost in (
        ("uprobe_multi emulated", 500.0),
        ("uretprobe_multi emulated", 700.0),
        ("uprobe_multi stepped", 9000.0),
    )
)


class FakeImage:
    """An image whose recorder answers with a text, or cannot measure."""

    def __init__(self, folder: Path, answer: str | None = LINES, name: str = "db1") -> None:
        self.proc = folder / "proc"
        self.host_name = name
        self.asked = 0
        self._answer = answer
        (self.proc / "sys/kernel").mkdir(parents=True)
        (self.proc / "sys/kernel/osrelease").write_text("6.1.0-9-amd64\n")

    def prices_text(self) -> str:
        self.asked += 1
        if self._answer is None:
            raise UnmeasuredError("Operation not permitted")
        return self._answer


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user is told; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return []


def test_a_host_measures_once_in_a_week(tmp_path: Path, told: list[str]) -> None:
    first, again = FakeImage(tmp_path / "1"), FakeImage(tmp_path / "2")
    for image in (first, again):
        costs = costs_there(image, "", told.append)  # type: ignore[arg-type]
        assert costs.measured
        assert costs.prices == Prices(500.0, 9000.0, 200.0)
        assert costs.on(3).prices == Prices(2000.0, 36_000.0, 800.0)
    assert (first.asked, again.asked, told) == (1, 0, [])


def test_another_host_or_kernel_measures_anew(tmp_path: Path, told: list[str]) -> None:
    newer, other = FakeImage(tmp_path / "2"), FakeImage(tmp_path / "3", name="db2")
    (newer.proc / "sys/kernel/osrelease").write_text("6.12.1\n")
    for image in (FakeImage(tmp_path / "1"), newer, other):
        costs_there(image, "", told.append)  # type: ignore[arg-type]
        assert image.asked == 1
    assert told == []


@pytest.mark.parametrize(
    ("answer", "refused", "said"),
    [
        (None, "", "Operation not permitted"),
        (LINES, "preflight: the kernel panics", "preflight: the kernel panics"),
        ("uprobe emulated 1 nan\n", "", "no recorder sends"),
        ("".join(LINES.splitlines(keepends=True)[:2]), "", "a kind of probe is missing"),
        ("", "", "a kind of probe is missing"),
    ],
)
def test_without_a_measurement_the_user_is_told(
    tmp_path: Path, told: list[str], answer: str | None, refused: str, said: str
) -> None:
    image = FakeImage(tmp_path / "1", answer)
    assert costs_there(image, refused, told.append) == HostCosts()  # type: ignore[arg-type]
    assert len(told) == 1
    assert said in told[0]
    assert "not measured on db1" in told[0]
    assert "the costs of another machine" in told[0]
    assert image.asked == (not refused), "no probe is tried where preflight refuses one"
    costs_there(image, refused, told.append)  # type: ignore[arg-type]
    assert len(told) == 2, "a failure is not kept"
