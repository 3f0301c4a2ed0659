# SPDX-License-Identifier: GPL-2.0-only
"""Colours of categories, groups and states can be told apart, with colour blindness too."""

import itertools
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tlstax.collectors.capture.vocabulary import CATEGORIES, STATES

Floats = npt.NDArray[np.float64]
STYLE = Path(__file__).resolve().parents[3] / "analysis/report/html/assets/report.css"
# Full protanopia and deuteranopia on linear RGB, after Machado, Oliveira and Fernandes (2009).
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
RGB_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)
WHITE = np.array([0.9505, 1.0, 1.089])
LEAST_DISTANCE = 12.0
"""CIE76; 2.3 is just noticeable side by side."""


def palette(kind: str) -> dict[str, str]:
    return dict(re.findall(rf"--{kind}-(\w+): (#[0-9a-f]{{6}});", STYLE.read_text()))


def linear(colour: str) -> Floats:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    xyz = RGB_TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_every_name_has_a_colour() -> None:
    assert set(palette("category")) == set(CATEGORIES)
    assert set(palette("state")) == set(STATES)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("kind", ["category", "group", "state", "series"])
def test_colours_can_be_told_apart(kind: str, vision: str) -> None:
    seen = {name: lab(VISION[vision] @ linear(colour)) for name, colour in palette(kind).items()}
    near = {
        (a, b): round(float(np.linalg.norm(seen[a] - seen[b])), 1)
        for a, b in itertools.combinations(seen, 2)
        if np.linalg.norm(seen[a] - seen[b]) < LEAST_DISTANCE
    }
    assert near == {}
