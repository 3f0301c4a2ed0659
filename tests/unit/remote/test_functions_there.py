# SPDX-License-Identifier: GPL-2.0-only
"""`--functions` for a process of another host: planned here, from the files that were fetched."""

import json
import subprocess
from pathlib import Path

import pytest

from tlstax.__main__ import main
from tlstax.collectors.placement.function_sites import plan_functions
from tlstax.collectors.placement.model import FunctionPlan
from tlstax.collectors.process.target import open_target
from tlstax.collectors.recording.stream.plan_file import read_plan_file
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.image import Image
from tlstax.collectors.remote.remote_plan import PlanRequest, fetch, plan_there
from tlstax.probes.definitions import load_definitions

NAMES = ("cipher", "digest", "asymmetric")


def untold(_text: str) -> None:
    """Nobody is told."""


def places(planned: FunctionPlan | None) -> list[tuple[object, ...]]:
    assert planned is not None
    return [
        (one.primitive.id, one.function, one.object.path, site.event, site.kind, site.file_offset)
        for one in planned.functions
        for site in one.sites
    ]


def test_they_are_those_of_the_process_host(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    request = PlanRequest(target.pid, None, functions=NAMES)
    image = Image(tmp_path / "image", connection)
    made = plan_there(image, fetch(image, request, untold), request, untold, refuse=False)
    limits = made.safety.limits
    here = plan_functions(open_target(target.pid), load_definitions(), NAMES, limits)
    assert len(here.functions) > 5
    assert places(made.functions) == places(here)
    assert not any(site.stepped for one in here.functions for site in one.sites)
    read = read_plan_file(made.text()).functions
    assert places(read) == places(here)
    assert read is not None
    assert (read.asked, read.absent, read.unsafe) == (NAMES, here.absent, here.unsafe)


@pytest.mark.parametrize("form", ["json", "text", "file"])
def test_probes_plan_shows_them(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path, form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert connection.can_be_asked
    command = ["probes", "plan", str(target.pid), "--ssh", "db1", "--functions", "cipher"]
    command += ["--remote-dir", str(tmp_path / "there")]
    more = {"json": ["--json"], "text": [], "file": ["--output", str(tmp_path / "a.plan")]}
    code = main([*command, *more[form]])
    said = capsys.readouterr()
    if form == "file" and code:  # a hazard of this kernel
        assert "--functions is not safe here" in said.err
    elif form == "file":
        assert read_plan_file((tmp_path / "a.plan").read_text()).functions
    elif form == "json":
        document = json.loads(said.out)
        assert {one["category"] for one in document["functions"]} == {"cipher"}
    else:
        assert "encrypt_update: cipher" in said.out
