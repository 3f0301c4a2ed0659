# SPDX-License-Identifier: GPL-2.0-only
"""Costs of a TLS library in a file: kept whole, and refused where they are not costs."""

import json
import re
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import TlstaxError
from tlstax.collectors.capture import micro_costs
from tlstax.tests.unit.whatif.costs import COSTS


def test_costs_that_cannot_be_written_leave_the_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    micro_costs.save(COSTS, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(TlstaxError, match="cannot write"):
            micro_costs.save(replace(COSTS, hostname="elsewhere"), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert micro_costs.load(path) == COSTS
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_costs_stays_a_link(tmp_path: Path) -> None:
    """As does /dev/stdout, which leads to a file where the output is redirected."""
    file, link = tmp_path / "costs.json", tmp_path / "link.json"
    link.symlink_to(file)
    for _ in range(2):
        micro_costs.save(COSTS, link)
    assert link.is_symlink()
    assert micro_costs.load(file) == COSTS


def test_costs_survive_a_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    micro_costs.save(COSTS, path)
    assert micro_costs.load(path) == COSTS
    huge = re.sub(r'_ns": [\d.]+', f'_ns": 1{"0" * 400}', path.read_text())
    others = ('{"version": 9}', '{"version": 1, "keys": {"a": 1}}')
    for text in (huge, "[" * 100_000, "0" * (1 << 25), "", "[]", *others):
        path.write_text(text)
        with pytest.raises(TlstaxError, match="cannot read the costs"):
            micro_costs.load(path)


@pytest.mark.parametrize("edge", ["0", '"x"', "NaN", "-5", "null"])
def test_costs_that_are_no_times_are_refused(edge: str, tmp_path: Path) -> None:
    """It was a traceback of the prediction: a division by zero, or the logarithm of a text."""
    path = tmp_path / "costs.json"
    micro_costs.save(COSTS, path)
    document = json.loads(path.read_text())
    document["keys"]["rsa:2048"]["sign"]["value_ns"] = json.loads(edge)
    path.write_text(json.dumps(document))
    with pytest.raises(TlstaxError, match="cannot read the costs"):
        micro_costs.load(path)
