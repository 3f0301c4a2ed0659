# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of levels.c: which level a server gets, by its events and their price."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tlstax.probes.model import Level

ROOT: Final = Path(__file__).resolve().parents[3]
TRAP_NS, SHARE, FLOOR_CPUS, NS_PER_S = 400.0, 0.05, 0.1, 1e9


class Rates(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in (
            *("cpus", "own_switches", "own_receives", "own_sends"),
            *("other_switches", "other_messages"),
        )
    )


class LevelChoice(ctypes.Structure):
    _fields_ = (
        ("level", ctypes.c_int),
        *((name, ctypes.c_double) for name in ("base_ns", "flow_ns", "record_ns")),
    )


Choose = Callable[..., Any]


@pytest.fixture(scope="module")
def choose(tmp_path_factory: pytest.TempPathFactory) -> Choose:
    made = tmp_path_factory.mktemp("levels") / "levels.so"
    folders = ("-I", str(ROOT / "probes/bpf"))
    source = str(ROOT / "collectors/recorder/levels.c")
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["clang", *flags, *folders, "-o", str(made), source], check=True)
    function = ctypes.CDLL(str(made)).level_choose
    function.argtypes = (
        ctypes.POINTER(Rates),
        *(ctypes.c_double,) * 3,
        ctypes.POINTER(LevelChoice),
    )

    def call(share: float = SHARE, trap_ns: float = TRAP_NS, **rates: float) -> LevelChoice:
        choice = LevelChoice()
        function(Rates(**rates), trap_ns, share, FLOOR_CPUS, choice)
        return choice

    return call


def queries(count: float, cpu_ns: float = 17_000.0) -> dict[str, float]:
    """Events of TLS point selects, as many a second, of so much CPU time each."""
    return {
        "cpus": count * cpu_ns / NS_PER_S,
        "own_switches": count,
        "own_receives": 3 * count,
        "own_sends": count,
        "other_switches": count,
        "other_messages": 4 * count,
    }


def test_an_idle_server_is_recorded_whole(choose: Choose) -> None:
    choice = choose(cpus=0.0)
    assert choice.level == Level.RECORD
    assert choice.base_ns == FLOOR_CPUS * NS_PER_S, "a share of nothing is nothing"
    assert choice.flow_ns == choice.record_ns == 0


def test_a_light_load_is_recorded_whole_and_a_heavier_one_at_flow(choose: Choose) -> None:
    """Queries of 200 us: everything costs 1.8 % of them; of 50 us, more than is left."""
    light, heavier = choose(**queries(2000, 200_000)), choose(**queries(2000, 50_000))
    assert light.level == Level.RECORD
    assert light.record_ns < 0.6 * SHARE * light.base_ns
    assert heavier.level == Level.FLOW
    assert heavier.flow_ns < 0.6 * SHARE * heavier.base_ns < heavier.record_ns


def test_a_saturated_server_is_seen_in_windows_with_everything(choose: Choose) -> None:
    choice = choose(**queries(66_000))
    assert choice.flow_ns > 0.6 * SHARE * choice.base_ns
    assert choice.level == Level.RECORD
    assert choose(share=0.1, **queries(66_000)).level == Level.FLOW, "unless more is allowed"


def test_the_price_of_point_selects_is_what_was_measured(choose: Choose) -> None:
    """On 66,000 queries a second: 0.74 us a query without probes, 2.7 us more with them."""
    choice = choose(**queries(66_000))
    assert choice.flow_ns / 66_000 == pytest.approx(740, rel=0.15)
    assert (choice.record_ns - choice.flow_ns) / 66_000 == pytest.approx(2700, rel=0.05)


def test_a_busy_host_is_a_price_too(choose: Choose) -> None:
    quiet = choose(**queries(100, 500_000))
    busy = choose(**queries(100, 500_000) | {"other_switches": 60_000.0})
    assert quiet.level == Level.RECORD
    assert busy.flow_ns > 10 * quiet.flow_ns


def test_the_price_scales_with_that_of_a_trap(choose: Choose) -> None:
    one, other = (choose(trap_ns=price, **queries(500)) for price in (400.0, 4000.0))
    assert other.record_ns == pytest.approx(10 * one.record_ns)
