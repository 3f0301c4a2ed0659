# SPDX-License-Identifier: GPL-2.0-only
"""Every BPF object: taken by this kernel's verifier, small, and laid out as its reader believes."""

import ctypes
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.capture.vocabulary import LOSS_KINDS, LOSSES, PHASES, STATES
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.libbpf import tracepoint_argument_counts
from tlstax.collectors.recording.programs import ledger_layout as layout
from tlstax.collectors.recording.programs.names import SOCKET_FUNCTIONS, SOCKET_TRACEPOINTS
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.function_points import SOURCES
from tlstax.collectors.recording.stream.function_totals import LOSS_NAMES
from tlstax.probes.objects import object_paths
from tlstax.tests.loader import program_memory
from tlstax.tests.loader.libbpf import BpfObject
from tlstax.tests.loader.loaded import program_verified_count

BPF_FOLDER = Path(__file__).resolve().parents[2] / "probes/bpf"
# Instructions of an object that the verifier looks at, each as often as it does. On Linux 6.18
# 33,000 of the ledger: 150,000 while its loops and rare code were not in global functions.
VERIFIED_MOST = 50_000
SOURCES_BY_OBJECT = {path.with_suffix(".o").name: path for path in BPF_FOLDER.glob("*.bpf.c")}
OBJECTS = [object_paths()[name] for name in sorted(SOURCES_BY_OBJECT)]
SECTION = re.compile(r'^SEC\("(?!license|\.)[^"]+"\)\s+int\s+(?:BPF_\w+\()?(\w+)', re.MULTILINE)
STRUCTURES: dict[str, Any] = {
    "config": program_memory.Config,
    "cpu_counts": program_memory.CpuCounts,
    "control": program_memory.Control,
    "frame": program_memory.Frame,
    "function_sum": definition().structures["function_sum"].layout,
    "handshake": layout.HandshakeRecord,
    "lifecycle": program_memory.Lifecycle,
    "network": layout.Network,
    "process_counts": program_memory.ProcessCounts,
    "offcpu_key": layout.OffcpuKey,
    "sample_key": layout.SampleKey,
    "thread_counts": program_memory.ThreadCounts,
    "thread_slot": program_memory.ThreadSlot,
}


def programs_of(source: Path) -> set[str]:
    """The programs of a source and of the headers beside it that it includes."""
    waiting, seen, found = [source], set[Path](), set[str]()
    while waiting:
        if (file := waiting.pop()) in seen or not file.exists():
            continue
        seen.add(file)
        found.update(SECTION.findall(text := file.read_text()))
        waiting += [
            file.parent / name for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE)
        ]
    return found


def enumerators(header: Path, prefix: str) -> list[str]:
    """The names of an enumeration in its order, less its prefix, in lower case."""
    names = re.findall(rf"^\t{prefix}_([A-Z_]+),", header.read_text(), re.MULTILINE)
    return [name.lower() for name in names]


@pytest.mark.root
@pytest.mark.needs("btf")
@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_verifier_takes_every_program(path: Path) -> None:
    """All but those whose events the kernel does not have, which it says itself.

    And without much work: that is most of the CPU time until a recorder is attached.
    """
    programs = programs_of(SOURCES_BY_OBJECT[path.name])
    assert programs
    with BpfObject(path) as bpf:
        counts = tracepoint_argument_counts(*SOCKET_TRACEPOINTS.values())
        lacking = {
            program
            for program, tracepoint in SOCKET_TRACEPOINTS.items()
            if program in programs and not counts[tracepoint]
        }
        lacking |= SOCKET_FUNCTIONS.keys() & programs if not HOST.socket_functions else set()
        for program in programs:
            bpf.set_autoload(program, program not in lacking)
        bpf.load()
        assert {name for name in programs if bpf.program_fd(name) >= 0} == programs - lacking
        verified = {
            name: program_verified_count(bpf.program_fd(name)) for name in programs - lacking
        }
    assert sum(verified.values()) <= VERIFIED_MOST, verified


def test_a_closed_object_is_not_read() -> None:
    bpf = BpfObject(OBJECTS[0])
    bpf.close()
    for read in (bpf.map, bpf.map_ending):
        with pytest.raises(RuntimeError, match="closed"):
            read(".bss")


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_object_is_what_ships(path: Path) -> None:
    content = path.read_bytes()
    assert b".BTF.ext\0" in content
    assert b".debug_info" not in content, "DWARF is not stripped"
    assert str(BPF_FOLDER).encode() not in content, "it names the folder that it was built in"


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("PHASE", PHASES),
        ("STATE", STATES),
        ("LOSS", [kind.name for kind in LOSS_KINDS]),
        ("ACTION", [action.name.lower() for action in layout.Action]),
        ("WAIT", [wait.name.lower() for wait in program_memory.Wait]),
    ],
)
def test_enumerations_agree(prefix: str, names: Iterable[str]) -> None:
    assert enumerators(BPF_FOLDER / "ledger.h", prefix) == list(names)


def test_enumerations_of_functions_agree() -> None:
    header = BPF_FOLDER / "functions.h"
    assert enumerators(header, "SIZE") == list(SOURCES)
    names = [f"function_{name}" for name in enumerators(header, "FUNCTION_LOSS")]
    assert names == list(LOSS_NAMES)
    assert set(names) <= set(LOSSES)


@pytest.fixture(scope="module")
def compiled_structures() -> dict[str, Any]:
    """The structures of the objects by name, from their BTF."""
    found: dict[str, Any] = {}
    for path in OBJECTS:
        command = ["bpftool", "btf", "dump", "-j", "file", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        types = json.loads(done.stdout)["types"]
        found |= {entry["name"]: entry for entry in types if entry["kind"] == "STRUCT"}
    return found


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_agree(compiled_structures: dict[str, Any], name: str) -> None:
    structure, compiled = STRUCTURES[name], compiled_structures[name]
    offsets = {
        field[0]: getattr(structure, field[0]).offset
        for field in structure._fields_  # the one way to list a ctypes structure's fields
    }
    assert offsets == {member["name"]: member["bits_offset"] // 8 for member in compiled["members"]}
    assert ctypes.sizeof(structure) == compiled["size"]
