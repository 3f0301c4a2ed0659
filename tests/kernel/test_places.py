# SPDX-License-Identifier: GPL-2.0-only
"""Which file is probed, and whose process: replaced files, other roots, copies, neighbours."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Handshake, Probe, Target
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.tests.patience import COMMAND_S

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

Process = subprocess.Popen[bytes]
Started = Callable[..., Process]
Breakpoints = Callable[[int], int]


class Recording:
    """`tlstax attach` to a process, from when it is attached until `finish`."""

    def __init__(self, pid: int, capture: Path, definitions: Path) -> None:
        self.capture = capture
        command = [sys.executable, "-m", "tlstax", "attach", str(pid), "-o", str(capture)]
        self.process = subprocess.Popen(
            [*command, "--quiet", "--definitions", str(definitions), "--window", "100ms"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "attached to" not in line:
            _, more = self.process.communicate()
            raise AssertionError(line + more)

    def finish(self) -> CaptureReader:
        """Detach, and open the capture."""
        self.process.terminate()
        _, errors = self.process.communicate(timeout=COMMAND_S)
        assert self.process.returncode == 0, errors
        return CaptureReader.open(self.capture)


@pytest.fixture
def record(repository: Path, tmp_path: Path) -> Iterator[Callable[[Process], Recording]]:
    """A function that attaches tlstax to a truth program."""
    recordings = []

    def attach(process: Process) -> Recording:
        capture = tmp_path / f"{process.pid}.tlstax"
        recordings.append(Recording(process.pid, capture, repository / "tests/testprogs"))
        return recordings[-1]

    yield attach
    for recording in recordings:
        recording.process.kill()
        recording.process.communicate()


def serve(process: Process) -> None:
    """Let a truth program make its handshakes."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"g")
    while line := process.stdout.readline():
        if json.loads(line)["kind"] == "done":
            return
    raise AssertionError("the program ended")


def library_of(program: Path, stem: str) -> Path:
    """The file of a shared library that a program is linked with."""
    found = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return Path(next(line.split()[2] for line in found.splitlines() if f"{stem}.so" in line))


def copy_as_another_build(source: Path, target: Path) -> str:
    """Copy a file with another build-id, which is returned."""
    with Elf(source) as elf:
        build_id = bytes.fromhex(elf.build_id)
    other = bytes(byte ^ 0xFF for byte in build_id)
    content = source.read_bytes()
    assert content.count(build_id) == 1
    fresh = target.with_name(f"{target.name}.dpkg-new")  # as dpkg does: written beside, renamed
    fresh.write_bytes(content.replace(build_id, other))
    fresh.chmod(0o755)
    fresh.rename(target)
    return other.hex()


def build_ids(reader: CaptureReader, stem: str) -> set[str]:
    """Build-ids of the probed files of that name."""
    return {row.build_id for row in reader.rows(Probe) if Path(row.object).name.startswith(stem)}


@pytest.mark.parametrize("when", ["before attaching", "while attached"])
def test_replaced_files_are_not_what_is_probed(
    program: Path, started: Started, record: Callable[[Process], Recording], tmp_path: Path,
    when: str,
) -> None:  # fmt: skip
    directory = tmp_path / "installed"
    directory.mkdir()
    own = directory / program.name
    library = directory / library_of(program, "libssl").name
    mine = copy_as_another_build(program, own)
    theirs = copy_as_another_build(library_of(program, "libssl"), library)

    def upgrade() -> None:
        for path in (own, library):
            copy_as_another_build(path, path)

    process = started("env", f"LD_LIBRARY_PATH={directory}", own, "tls", "sss")
    if when == "before attaching":
        upgrade()
    recording = record(process)
    if when == "while attached":
        upgrade()
    serve(process)
    with recording.finish() as reader:
        assert len(list(reader.rows(Handshake))) == 3
        assert build_ids(reader, "truth") == {mine}
        assert build_ids(reader, "libssl") == {theirs}


@pytest.mark.parametrize(
    "kind", ["tmpfs", pytest.param("overlay", marks=pytest.mark.needs("overlay"))]
)
def test_a_root_of_its_own(
    program: Path,
    started: Started,
    record: Callable[[Process], Recording],
    breakpoints: Breakpoints,
    tmp_path: Path,
    kind: str,
) -> None:
    """What the process maps exists in its mount namespace only, at paths that the host has too."""
    library = library_of(program, "libssl")
    other = tmp_path / "other"
    other.mkdir()
    wanted = copy_as_another_build(library, other / library.name)
    root, upper = tmp_path / "root", tmp_path / "upper"
    lines = [
        "set -e",
        f"mkdir {root} {upper}",
        f"mount -t tmpfs none {upper}",
        f"mkdir {upper}/data {upper}/work",
    ]
    if kind == "overlay":
        lines.append(
            f"mount -t overlay -o lowerdir=/,upperdir={upper}/data,workdir={upper}/work o {root}"
        )
    else:
        lines.append(f"mount --bind {upper}/data {root}")
        for path in [program, *_needed(program)]:
            lines.append(f"mkdir -p {root}{path.parent}; cp -L {path} {root}{path}")
    lines += [
        f"mkdir -p {root}/proc",
        f"mount -t proc proc {root}/proc",
        f"cp {other / library.name} {root}{library}",
        f"exec chroot {root} {program} tls ss",
    ]
    process = started("unshare", "--mount", "sh", "-c", "\n".join(lines))
    recording = record(process)
    assert breakpoints(process.pid) > 10
    serve(process)
    with recording.finish() as reader:
        assert len(list(reader.rows(Handshake))) == 2
        assert build_ids(reader, "libssl") == {wanted}
        (target,) = reader.rows(Target)
    assert target.exe == str(program)


def _needed(program: Path) -> list[Path]:
    """The libraries and the loader of a program."""
    found = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    words = [word for line in found.splitlines() for word in line.split()]
    return [Path(word) for word in words if word.startswith("/")]


def test_two_processes_of_one_binary_are_told_apart(
    program: Path,
    started: Started,
    record: Callable[[Process], Recording],
    breakpoints: Breakpoints,
) -> None:
    asked, other = started(program, "tls", "ss"), started(program, "tls", "sss")
    recording = record(asked)
    assert breakpoints(asked.pid) > 10
    assert breakpoints(other.pid) == 0, "the other's memory is as its files are"
    serve(other)
    assert breakpoints(other.pid) == 0
    with recording.finish() as reader:
        assert not list(reader.rows(Handshake))
        assert sum(row.hits_count for row in reader.rows(Probe) if row.object != "kernel") == 0


def test_two_recorders_at_two_processes_of_one_binary(
    program: Path, started: Started, record: Callable[[Process], Recording]
) -> None:
    counts = {started(program, "tls", "s" * count): count for count in (3, 5)}
    recordings = {process: record(process) for process in counts}
    for process in counts:
        serve(process)
    for process, recording in recordings.items():
        with recording.finish() as reader:
            shakes = list(reader.rows(Handshake))
            assert len(shakes) == counts[process]
            (target,) = reader.rows(Target)
            assert target.pid == process.pid


def test_a_child_is_not_traced_and_is_mentioned(
    program: Path, started: Started, record: Callable[[Process], Recording]
) -> None:
    from tlstax.collectors.capture.schema import Gap

    process = started(program, "fork", "5")
    recording = record(process)
    serve(process)
    with recording.finish() as reader:
        (text,) = [row.consequence for row in reader.rows(Gap) if row.subject.startswith("process")]
    assert text.startswith("1 were started while it was recorded; they are not measured")


def test_both_copies_of_a_library_are_planned(
    program: Path, repository: Path, tmp_path: Path
) -> None:
    """A plugin that brings a libssl and libcrypto of its own, loaded beside the system's."""
    names = [library_of(program, stem) for stem in ("libssl", "libcrypto")]
    for path in names:
        copy_as_another_build(path, tmp_path / path.name)
    code = (
        "import ctypes, os, ssl, sys\n"
        f"for n in {[str(tmp_path / path.name) for path in reversed(names)]!r}:\n"
        "    ctypes.CDLL(n, mode=os.RTLD_LOCAL | os.RTLD_DEEPBIND)\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                ["/usr/bin/python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        assert process.stdout is not None
        process.stdout.readline()
        _, plan = plan_in_child(process.pid, extra=repository / "tests/testprogs")
    called = [
        site for site in plan.sites if (site.boundary, site.event) == ("sign_digest", "enter")
    ]
    # It is probed where libssl calls it, and within libcrypto: in both copies of both.
    copies = {path: {str(path.resolve()), str(tmp_path / path.name)} for path in names}
    assert {site.object.path for site in called} == set().union(*copies.values())
    assert len({site.object.build_id for site in called}) == len(copies) * 2
