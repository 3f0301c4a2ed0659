# SPDX-License-Identifier: GPL-2.0-only
"""What a file without names costs: counted, and said with its consequence."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.placement.model import Plan
from tlstax.collectors.placement.placement import plan
from tlstax.collectors.process.mappings import REPLACED
from tlstax.collectors.process.target import Target
from tlstax.probes.definitions import load_definitions

Compile = Callable[..., Path]
MakeTarget = Callable[..., Target]
HAS_SERVER = """
int dispatch_me(int n) { return n * 3; }
int main(void) { return dispatch_me(1); }
"""


def gaps_of(planned: Plan) -> dict[str, str]:
    return {gap.boundary: gap.consequence for gap in planned.gaps}


def test_a_stripped_library_says_how_many_names_it_has(tls_process: Target) -> None:
    gaps = gaps_of(plan(tls_process, load_definitions()))
    text = next(text for subject, text in gaps.items() if subject.startswith("names in libcrypto"))
    named, total = (int(word.replace(",", "")) for word in text.split()[:3:2])
    assert 1000 < named < total
    assert "cipher, digest and big-number code is classified by its instructions" in text
    (entry,) = [entry for entry in tls_process.objects if "libcrypto" in entry.name]
    assert entry.build_id in text


def test_a_program_that_is_no_known_server_is_named(tls_process: Target) -> None:
    text = gaps_of(plan(tls_process, load_definitions()))["server"]
    assert tls_process.exe in text
    assert "connecting, commands and idle time have no phases" in text


def test_a_file_that_cannot_be_opened_is_named(tls_process: Target) -> None:
    objects = tuple(
        replace(entry, open_path="", unreachable=REPLACED)
        if entry.name.startswith("libc.")
        else entry
        for entry in tls_process.objects
    )
    planned = plan(replace(tls_process, objects=objects), load_definitions())
    (text,) = [text for subject, text in gaps_of(planned).items() if "names in libc." in subject]
    assert "map_files" in text
    assert "neither timed nor named" in text


def test_a_debug_file_fills_the_gap(
    target_of: MakeTarget, libraries: dict[str, Path], tmp_path: Path
) -> None:
    """A copy of libssl that says where its names are has no gap, once they are there."""
    library = tmp_path / libraries["libssl"].name
    shutil.copy(os.path.realpath(libraries["libssl"]), library)
    full = tmp_path / "full.debug"
    full.write_bytes(library.read_bytes())  # it has no .symtab: it fills nothing
    subprocess.run(["objcopy", f"--add-gnu-debuglink={full}", library], check=True)
    target = target_of(Path("/usr/bin/true"), library, libraries["libcrypto"])
    assert f"names in {library.name}" in gaps_of(plan(target, load_definitions()))


def test_without_any_name_nothing_can_be_recognised(
    compile_c: Compile, target_of: MakeTarget
) -> None:
    program = compile_c(HAS_SERVER, "-static", "-s")
    target = target_of(program)
    with pytest.raises(TlstaxError, match="is stripped of all names") as caught:
        plan(target, load_definitions())
    assert caught.value.exit_code is ExitCode.TARGET
    assert "ciphers and digests" in caught.value.why
    assert target.program.build_id in caught.value.do


def test_a_library_whose_connections_are_not_understood_is_named(tls_process: Target) -> None:
    (openssl,) = [entry for entry in load_definitions() if entry.id == "openssl3"]
    assert "handshake facts" not in gaps_of(plan(tls_process, [openssl]))
    text = gaps_of(plan(tls_process, [replace(openssl, accessors=())]))["handshake facts"]
    assert "TLS version, cipher, group and resumption" in text
