# SPDX-License-Identifier: GPL-2.0-only
"""One program in every form that a server binary has: probes and names are right in each.

The truth program is built, stripped and split as distributions do it, and makes real handshakes
under the engine.
"""

import lzma
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import Target
from tlstax.collectors.recording.stream.plan_file import plan_file_text
from tlstax.tests.safe_programs import is_guarded
from tlstax.tests.truth.by_recorder import record

pytestmark = [pytest.mark.root, pytest.mark.needs("btf", "uprobes")]

FLAGS = ["-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread"]
LIBRARIES = ["-lssl", "-lcrypto", "-lm"]
DIALECTS = {
    "pie": ["-fPIE", "-pie"],
    "fixed": ["-no-pie"],
    "prelinked": ["-no-pie", "-Wl,-Ttext-segment=0x70000000"],
    "static": ["-static"],
    "static-pie": ["-static-pie", "-fPIE"],
}
Build = Callable[..., Path]
Started = Callable[..., "subprocess.Popen[bytes]"]


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


@pytest.fixture
def build(repository: Path, tmp_path: Path) -> Build:
    """A function that compiles the truth program in a dialect."""

    def compile_truth(dialect: str = "pie", *more: str) -> Path:
        program = tmp_path / "truth"
        source = repository / "tests/testprogs/truth.c"
        run("gcc", *FLAGS, *DIALECTS[dialect], *more, "-o", program, source, *LIBRARIES)
        return program

    return compile_truth


def split_debug(program: Path, debug: Path) -> None:
    """Move the symbols of a program to a file of their own, as packages do."""
    run("objcopy", "--only-keep-debug", program, debug)
    run("strip", "--strip-all", program)


def exported_only(program: Path) -> None:
    run("strip", "--strip-all", program)


def beside_by_link(program: Path) -> None:
    (program.parent / ".debug").mkdir()
    debug = program.parent / ".debug/truth.debug"
    split_debug(program, debug)
    run("objcopy", f"--add-gnu-debuglink={debug}", program)


def compressed_inside(program: Path) -> None:
    debug, packed = program.with_name("debug"), program.with_name("packed")
    split_debug(program, debug)
    run("strip", "--strip-debug", debug)
    packed.write_bytes(lzma.compress(debug.read_bytes()))
    run("objcopy", f"--add-section=.gnu_debugdata={packed}", program)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_way_of_linking(build: Build, started: Started, dialect: str) -> None:
    measured = Measured(started(build(dialect), "tls", "ss"))
    assert measured.handshakes_count == 2
    assert measured.sources == {"symtab"}
    (library,) = [entry for entry in measured.plan.libraries if entry.kind == "tls"]
    assert library.linkage == ("static" if "static" in dialect else "shared")


@pytest.mark.parametrize(
    ("split", "source", "more"),
    [
        (exported_only, "dynsym", ["-rdynamic"]),
        (beside_by_link, "debuglink", []),
        (compressed_inside, "debugdata", []),
    ],
)
@pytest.mark.parametrize("dialect", ["pie", "fixed"])
def test_every_place_of_names(
    build: Build,
    started: Started,
    dialect: str,
    split: Callable[[Path], None],
    source: str,
    more: list[str],
) -> None:
    program = build(dialect, *more)
    split(program)
    measured = Measured(started(program, "tls", "ss"))
    assert measured.handshakes_count == 2
    assert measured.sources == {source}


def test_debug_files_below_the_root_of_the_target(
    build: Build, started: Started, tmp_path: Path
) -> None:
    """A debug file by build-id, for a program in a chroot and mount namespace of its own."""
    program, debug, root = build("static"), tmp_path / "debug", tmp_path / "root"
    split_debug(program, debug)
    run("mkdir", "-p", root / "proc")
    run("cp", program, root / "truth")
    build_id = _build_id(program)
    directory = root / "usr/lib/debug/.build-id" / build_id[:2]
    run("mkdir", "-p", directory)
    debug.rename(directory / f"{build_id[2:]}.debug")
    script = f"mount -t proc proc {root}/proc && exec chroot {root} /truth tls ss"
    measured = Measured(started("unshare", "--mount", "sh", "-c", script))
    assert measured.handshakes_count == 2
    assert measured.sources == {"buildid"}


def test_a_nameless_program_with_a_shared_library_still_has_handshakes(
    build: Build, started: Started
) -> None:
    program = build()
    run("strip", "--strip-all", program)
    measured = Measured(started(program, "tls", "ss"), has_server=False)
    assert measured.handshakes_count == 2
    gaps = {gap.boundary: gap.consequence for gap in measured.plan.gaps}
    assert "connecting, commands and idle time have no phases" in gaps["server"]


def test_a_nameless_static_program_is_refused_with_the_consequence(
    build: Build, started: Started, repository: Path
) -> None:
    program = build("static")
    run("strip", "--strip-all", program)
    process = started(program, "tls", "ss")
    with pytest.raises(TlstaxError, match="stripped of all names") as caught:
        plan_in_child(process.pid, extra=repository / "tests/testprogs")
    assert caught.value.exit_code is ExitCode.TARGET
    assert "phases, handshakes, ciphers and digests are unknown" in caught.value.why
    assert _build_id(program) in caught.value.do


class Measured:
    """A run of the truth program under the recorder, and what its probes are called."""

    def __init__(self, process: "subprocess.Popen[bytes]", has_server: bool = True) -> None:
        definitions = Path(__file__).resolve().parents[1] / "testprogs"
        target, self.plan = plan_in_child(process.pid, extra=definitions)
        own = [site for site in self.plan.sites if site.boundary in OWN_BOUNDARIES]
        assert {site.boundary for site in own} == (OWN_BOUNDARIES if has_server else set())
        self.sources = _sources(target, self.plan)

        def go() -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"g")
            while b'"done"' not in (line := process.stdout.readline()):
                assert line, "the target ended"

        text = plan_file_text(target, self.plan, Safety(guarded=is_guarded()))
        with TemporaryDirectory() as folder:
            recorded = record(process.pid, text, Path(folder), go)
        records = recorded.handshake_records()
        hits = dict(zip(self.plan.sites, recorded.site_hits(), strict=True))
        assert process.stdin is not None
        self.handshakes_count = sum(each.outcome == 0 for each in records)
        bounds = [count for site, count in hits.items() if site.boundary == "handshake"]
        assert bounds == [2] * len(bounds)
        process.stdin.write(b"x")
        assert process.wait(120) == 0


OWN_BOUNDARIES = {"handshake", "connect_thread", "command_states", "write_send", "lock_wait"}


def _sources(target: Target, plan: Plan) -> set[str]:
    """Where the names of the server's functions come from; each must be the planned one."""
    symbolizer = Symbolizer(target)
    sources = set()
    try:
        for site in plan.sites:
            if not site.function.startswith("tt_"):
                continue
            for segment in site.object.segments:
                distance = site.file_offset - segment.file_offset
                if 0 <= distance < segment.end - segment.start:
                    place = symbolizer.user(segment.start + distance)
                    assert place.symbol == site.function
                    sources.add(place.source)
    finally:
        symbolizer.close()
    return sources


def _build_id(program: Path) -> str:
    with Elf(program) as elf:
        return elf.build_id
