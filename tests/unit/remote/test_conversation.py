# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's answers, and planning from them. Nothing is attached.

ssh is a script that runs the command on this host (conftest.py).
"""

import io
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.host.probe_costs.prices import HostCosts, Prices
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.preflight.examination import examine
from tlstax.collectors.preflight.judge import Status
from tlstax.collectors.preflight.safety import Safety, restrictions
from tlstax.collectors.process.target import open_target
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import Frame, Reading, read_frames
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.collectors.recording.stream.recorded_files import recorded_objects
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.destination import Destination
from tlstax.collectors.remote.image import Image
from tlstax.collectors.remote.remote_plan import (
    SYMBOLS,
    PlanRequest,
    fetch,
    find,
    findings_on,
    plan_there,
)
from tlstax.probes.definitions import load_definitions
from tlstax.probes.model import Level
from tlstax.tests.unit.remote.conftest import PROGRAM, SECRET

NUMBERS = definition()


def untold(_text: str) -> None:
    """Nobody is told."""


def test_the_plan_is_that_of_the_process_host(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    told: list[str] = []
    request = PlanRequest(target.pid, None)
    image = Image(tmp_path / "image", connection)
    made = plan_there(image, fetch(image, request, told.append), request, untold, refuse=False)
    here = open_target(target.pid)
    expected = plan(here, load_definitions(), host_costs=HostCosts(), limits=made.safety.limits)
    expected = expected.as_asked(networks=False)
    assert len(expected.sites) > 10
    places = [
        [(site.boundary, site.event, site.object.path, site.file_offset) for site in each.sites]
        for each in (made.plan, expected)
    ]
    assert places[0] == places[1]
    assert [site.function for site in made.plan.sites] == [s.function for s in expected.sites]
    text = made.text()
    assert f"kernel {os.uname().release}\n" in text
    assert f"file 0 build-id={expected.sites[0].object.build_id[:4]}"[:5] in text
    again = Image(tmp_path / "again", connection)
    assert "once for each build" in told[0]
    fetch(again, request, told.append)
    assert len([text for text in told if "fetching" in text]) == 1, "they were fetched already"


def test_probes_are_placed_alike_but_priced_for_their_host(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    lines = "uprobe_multi {0} 1 {1}\nuprobe_multi {0} 64 {2}\nuretprobe_multi {0} 1 900\n"
    lines = lines.format("emulated", "700 " * 9, "750 " * 9) + "uprobe_multi stepped 1 9000\n"
    monkeypatch.setattr(Image, "prices_text", lambda _: lines)
    request = PlanRequest(target.pid, None)
    image = Image(tmp_path / "image", connection)
    pid = fetch(image, request, untold)
    made = plan_there(image, pid, request, untold, refuse=False)
    assert made.plan.host_costs.prices == Prices(700.0, 9000.0, 200.0)
    assert {site.cost_ns for site in made.plan.sites} == {700.0}
    assert "price-ns=700 " in made.text()
    monkeypatch.setattr("tlstax.collectors.remote.remote_plan.costs_there", lambda *_: HostCosts())
    defaults = plan_there(image, pid, request, untold, refuse=False)
    assert {site.cost_ns for site in defaults.plan.sites} == {HostCosts().prices.emulated_ns}
    places = [
        [(s.boundary, s.event, s.file_offset) for s in m.plan.sites] for m in (made, defaults)
    ]
    assert places[0] == places[1]


def test_a_process_is_found_by_name(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    image = Image(tmp_path / "image", connection)
    assert find(image, PlanRequest(None, f"tl-{target.pid}")) == target.pid
    other = Image(tmp_path / "other", connection)
    with pytest.raises(TlstaxError, match="No process is called no-such-name") as raised:
        find(other, PlanRequest(None, "no-such-name"))
    assert raised.value.exit_code == ExitCode.TARGET


def test_no_argument_of_a_process_is_sent(
    connection: Connection, target: "subprocess.Popen[bytes]"
) -> None:
    for request in (f"find tl-{target.pid}", f"facts {target.pid} schedule"):
        sent = b"".join(frame.content for frame in connection.ask(request))
        assert len(sent) > 20
        assert SECRET.encode() not in sent
        assert os.environ["HOME"].encode() + b"=" not in sent


def test_hazards_are_those_that_the_host_itself_finds(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """Of the kernel's version, and of the process: cgroups, memory, mounts, tracers."""
    image = Image(tmp_path / "image", connection)
    image.add_process(target.pid, SYMBOLS, untold)
    found = {
        finding.hazard.id: finding.status
        for finding in findings_on(image, target.pid, ())
        if finding.hazard.kind in ("table", "target")
    }
    assert found.pop("other-probes") == Status.UNKNOWN
    assert len(found) > 10
    here = {each.hazard.id: each.status for each in examine(target.pid)}
    assert found == {name: here[name] for name in found}


def test_what_is_only_tried_counts_as_harmful(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    image = Image(tmp_path / "image", connection)
    image.add_process(target.pid, SYMBOLS, untold)
    limits = restrictions(findings_on(image, target.pid, ())).limits
    assert not limits.nop5
    assert not limits.stepped
    accepted = ("red-zone", "rip-relative")
    assert restrictions(findings_on(image, target.pid, accepted)).limits.stepped


def test_names_are_found_in_files_that_were_fetched(
    connection: Connection, target: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    Image(tmp_path / "image", connection).add_process(target.pid, (), untold)
    library = next(each for each in open_target(target.pid).objects if "libssl" in each.name)
    mapping = NUMBERS.layout("mapping")(inode=1, build_id_bytes=len(library.build_id) // 2)
    mapping.build_id[: mapping.build_id_bytes] = bytes.fromhex(library.build_id)
    (found,) = recorded_objects([(mapping, b"/opt/elsewhere/libssl.so.3")], ())
    with Elf(found.open_path) as elf:
        assert elf.build_id == library.build_id
        assert elf.find(re.compile("SSL_read"))


def test_a_process_that_is_not_there(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="there is no such process") as raised:
        Image(tmp_path / "image", connection).add_process(1 << 22, (), print)
    assert raised.value.exit_code == ExitCode.TARGET
    assert connection.can_be_asked, "it costs its own answer only: others may be there"
    Image(tmp_path / "other", connection).add_process(os.getpid(), (), untold)


def test_an_answer_that_was_not_read_to_its_end(connection: Connection) -> None:
    """What follows would be taken for the answer to another request."""
    next(connection.ask(f"facts {os.getpid()} schedule"))
    assert not connection.can_be_asked


def test_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TlstaxError, match="ssh cannot be started") as raised:
        Connection(Destination("db1"), recorder_path())
    assert raised.value.exit_code == ExitCode.HOST


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo Permission denied >&2; exit 255", "Permission denied"),
        ("echo Welcome to db1, have a nice day; cat >/dev/null", "writes text at login"),
        ("exit 7", "status 7"),
        ("printf '\\033[2J' >&2; exit 1", "db1 cannot be recorded"),
    ],
)
def test_an_ssh_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, said: str
) -> None:
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(TlstaxError, match=said) as raised:
        Connection(Destination("db1"), recorder_path())
    assert "\033" not in str(raised.value)


# ---- the recorder alone ----


def serve(
    program: Path, requests: bytes, *options: str
) -> tuple[list[Frame], "subprocess.CompletedProcess[bytes]"]:
    done = subprocess.run(
        [program, "--serve", *options], input=requests, capture_output=True, check=False
    )
    return list(read_frames(io.BytesIO(done.stdout), Reading())), done


def copied(folder: Path) -> Path:
    folder.mkdir()
    return Path(shutil.copy(PROGRAM, folder / "tlstax-recorder"))


def test_it_deletes_only_itself(tmp_path: Path) -> None:
    alone, beside, kept = (copied(tmp_path / name) for name in ("alone", "beside", "kept"))
    (tmp_path / "beside/other").touch()
    for program in (alone, beside):
        assert serve(program, b"", "--remove-self")[1].returncode == ExitCode.OK
    serve(kept, b"")
    assert kept.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside", "kept"]
    assert [path.name for path in (tmp_path / "beside").iterdir()] == ["other"]


@pytest.mark.parametrize(
    "request_",
    [
        b"read /etc/shadow\n",
        b"find\n",
        b"group\n",
        b"group \n",
        b"record\n",
        b"record together\n",
        b"record 1 0 --pid 1\n",
        b"target\n",
        b"target 0 0 --pid 1\n",
        b"target 99999999999 0 --pid 1\n",
        b"target 1 0 --pid 1 --output /nowhere/x\nx",
        b"target 1 0 --pid 1 --plan /etc/shadow\nx",
        b"target 1 0 --pid 1 --serve\nx",
        b"target 1 0 --pid 1 --control\nx",
        b"target 1 0 --pid 1 --tables /etc/shadow\nx",
        b"target 1 99999999999 --pid 1\nx",
        b"target 4 0 --pid 1\nnope",
        b"x" * 5000,
    ],
)
def test_what_it_does_not_know_is_refused(request_: bytes) -> None:
    frames, done = serve(PROGRAM, request_)
    if request_.endswith(b"\n") or b"target" in request_:
        assert done.returncode == ExitCode.USAGE, done.stderr
        assert frames[-1].type == NUMBERS.number("ERROR")
    assert not any(frame.type == NUMBERS.number("START") for frame in frames)
    assert b"root:" not in done.stdout
    # Root must not create or read files; standard input is that of the requests.
    if any(option in request_ for option in (b"--output", b"--plan", b"--tables", b"--control")):
        assert b"do not go with --serve" in frames[-1].content


def test_several_processes_are_taken_before_the_recording(
    target: "subprocess.Popen[bytes]",
) -> None:
    """Options of all are the first's; a process is there once."""
    nothing = Plan(target.pid, Level.SAMPLE, (), (), ())
    plan_ = plan_file_text(open_target(target.pid), nothing, Safety()).encode()
    one = f"target {len(plan_)} 0 --pid".encode()
    first = b"%s 7 --keep-going --for 1s\n%s" % (one, plan_)
    for further, why in (
        (b"%s 8 --for 1s\n" % one, b"stand before the first"),
        (b"%s 8 --keep-going\n" % one, b"stand before the first"),
        (b"%s 7\n" % one, b"process 7 was given twice"),
    ):
        frames, done = serve(PROGRAM, first + further + plan_)
        assert [frame.type for frame in frames] == [
            NUMBERS.number(name) for name in ("FACT", "ANSWERED", "ERROR")
        ]
        assert why in frames[-1].content
        assert done.returncode == ExitCode.USAGE
    many = b"".join(b"%s %d\n%s" % (one, pid, plan_) for pid in range(1, 18))
    frames, _ = serve(PROGRAM, many)
    assert [frame.type for frame in frames].count(NUMBERS.number("ANSWERED")) == 16
    assert b"16 processes at most" in frames[-1].content


def test_windows_end_together_only_without_a_budget(target: "subprocess.Popen[bytes]") -> None:
    """A budget chooses itself when windows end."""
    nothing = Plan(target.pid, Level.SAMPLE, (), (), ())
    plan_ = plan_file_text(open_target(target.pid), nothing, Safety()).encode()
    asked = b"".join(
        f"target {len(plan_)} 0 --pid {pid}{more}\n".encode() + plan_
        for pid, more in ((7, ""), (8, " --budget 5%"))
    )
    frames, done = serve(PROGRAM, asked + b"record together\n")
    assert done.returncode == ExitCode.USAGE
    assert b"only without --budget" in frames[-1].content
    assert not any(frame.type == NUMBERS.number("START") for frame in frames)


def test_prices_end_with_the_line() -> None:
    """Who asks and goes away waits for nobody, and nothing of the recorder stays."""
    before_s = time.monotonic()
    frames, done = serve(PROGRAM, b"prices\n")  # standard input ends behind it
    assert done.returncode == ExitCode.OK
    assert [frame.type for frame in frames] == [
        *([NUMBERS.number("FACT")] * 2),
        NUMBERS.number("ANSWERED"),
    ]
    assert b"no-prices" in frames[1].content, "it did not measure to the end"
    assert time.monotonic() - before_s < 5


def test_files_that_are_not_mapped_are_not_sent(target: "subprocess.Popen[bytes]") -> None:
    types = [frame.type for frame in serve(PROGRAM, f"file {target.pid} 0\n".encode())[0]]
    assert types == [NUMBERS.number("FACT"), NUMBERS.number("ANSWERED")]
