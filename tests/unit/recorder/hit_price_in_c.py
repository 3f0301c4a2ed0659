# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's prices by pairs of stretches as a library, and a server that is arithmetic."""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "collectors/recorder"
SOURCES: Final = ("hit_price.c", "whole_price.c", "median.c")
PAIRS_MOST: Final = 32
LOOP_NS, BODY_NS, HITS_A_SEND = 600.0, 300.0, 2.0
TRUE_NS: Final = 2400.0
"""What a hit costs in that server, with its program."""
SEND_NS: Final = 17_000.0


class Arm(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_double) for name in ("cpu_ns", "sends", "hits", "loop_ns", "bodies_ns")
    )


class Median(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_double) for name in ("value", "low", "high"))


class HitPrice(ctypes.Structure):
    _fields_ = (
        ("pairs_count", ctypes.c_uint32),
        ("hits_ns", ctypes.c_double * PAIRS_MOST),
        ("factors", ctypes.c_double * PAIRS_MOST),
        ("hit", Median),
        ("factor", ctypes.c_double),
        ("is_measured", ctypes.c_bool),
    )


@cache
def library(old: str = "", new: str = "") -> Any:
    """Built once; with a fault where one is given: `new` stands in a source for `old`."""
    texts = {name: (FOLDER / name).read_text() for name in SOURCES}
    assert any(old in text for text in texts.values())
    with tempfile.TemporaryDirectory(prefix="tlstax-") as folder:
        made = Path(folder, "prices.so")
        for name, text in texts.items():
            Path(folder, name).write_text(text.replace(old, new, 1) if old else text)
        subprocess.run(
            [
                *("clang", "-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"),
                *("-fsanitize=undefined", "-fsanitize-trap=undefined"),
                *(
                    "-I",
                    str(FOLDER),
                    "-o",
                    str(made),
                    *(str(Path(folder, name)) for name in SOURCES),
                ),
            ],
            check=True,
        )
        loaded = ctypes.CDLL(str(made))
    loaded.hit_price_add.restype = loaded.whole_price_add.restype = ctypes.c_bool
    return loaded


def arm(with_traps: bool, send_ns: float, sends: float = 2000.0, true_ns: float = TRUE_NS) -> Arm:
    """A stretch in which a send costs so much without probes."""
    hits = HITS_A_SEND * sends if with_traps else 0.0
    return Arm(sends * send_ns + hits * true_ns, sends, hits, hits * LOOP_NS, hits * BODY_NS)


def send_costs(generator: np.random.Generator, count: int, scatter: float) -> Any:
    """What a send costs in stretches that follow each other: drift, scatter, now and then more."""
    drift = np.cumsum(generator.normal(0.0, 0.01, count))
    disturbed = generator.random(count) < 0.05
    noise = generator.normal(0.0, scatter, count) + disturbed * generator.exponential(0.2, count)
    return SEND_NS * (1 + drift + noise)


def measured(
    generator: np.random.Generator,
    pairs_count: int,
    scatter: float,
    true_ns: float = TRUE_NS,
    loaded: Any = None,
) -> HitPrice:
    """What the recorder finds in that server: neither half of a pair comes always first."""
    price, loaded = HitPrice(), loaded or library()
    costs = send_costs(generator, 2 * pairs_count, scatter)
    for pair in range(pairs_count):
        first, second = costs[2 * pair], costs[2 * pair + 1]
        sends = generator.uniform((900.0, 1000.0), (1100.0, 3000.0))
        of_with, of_without = (first, second) if pair % 2 == 0 else (second, first)
        arms = arm(False, of_without, sends[0]), arm(True, of_with, sends[1], true_ns)
        assert loaded.hit_price_add(ctypes.byref(price), *map(ctypes.byref, arms))
    return price
