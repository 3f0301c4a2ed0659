# SPDX-License-Identifier: GPL-2.0-only
"""Names of the kernel's addresses: the same from the kernel and from its list of all of them."""

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tlstax.collectors.recording.stream.definition import definition
from tlstax.tests.kernel.recorder_runs import OK, Record, await_attached, frames_of, serve

pytestmark = [pytest.mark.root, pytest.mark.needs("btf")]

MOST, STEP = 16000, 7
NAME_BYTES = 96


class Name(ctypes.Structure):
    """`struct stream_kernel_name`."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("offset_bytes", ctypes.c_uint64),
        ("name", ctypes.c_char * NAME_BYTES),
    )


@pytest.fixture
def recorder(tmp_path: Path, repository: Path) -> Any:
    made = repository / "tests/testprogs/bin/kernel_names.so"
    assert made.exists(), "run `make testprogs`"
    # A library is loaded once for each path: its list would be that of all tests.
    own = str(shutil.copy(made, tmp_path))
    library = ctypes.CDLL(own)
    library.kernel_lookup_works.restype = ctypes.c_bool
    return library


def functions() -> list[tuple[int, int, str]]:
    """Start, end and name of the kernel's functions; those of a module in their own order.

    Without BPF programs, which come and go.
    """
    found: dict[int, tuple[str, str]] = {}
    for line in Path("/proc/kallsyms").read_text(encoding="ascii").splitlines():
        start, kind, name, *module = line.split()
        if module == ["[bpf]"] or name.startswith("$"):  # $x: what follows is code (arm64)
            continue
        found.setdefault(int(start, 16), (kind, name))
    starts = sorted(found)
    return [
        (start, end, found[start][1])
        for start, end in itertools.pairwise(starts)
        if found[start][0] in "tT" and not found[start][1].startswith(("__pfx_", "_etext"))
    ]


def named(recorder: Any) -> dict[int, tuple[str, int]]:
    count = recorder.name_all()
    rows = (Name * MOST).in_dll(recorder, "names")[:count]
    return {row.address: (row.name.decode(), row.offset_bytes) for row in rows}


def test_a_name_is_the_same_from_the_kernel_and_from_its_list(recorder: Any) -> None:
    """Of every seventh function, inside of it and at its first byte, in turns."""
    wanted = {}
    for number, (start, end, name) in enumerate(functions()[::STEP][:MOST]):
        address = start + (min(end - start - 1, 5) if number % 2 else 0)
        wanted[address] = name[: NAME_BYTES - 1], address - start
        recorder.kernel_address_add(ctypes.c_uint64(address))
    assert len(wanted) > 1000
    by_list = named(recorder)
    recorder.kernel_lookup_prepare()
    if not recorder.kernel_lookup_works():
        pytest.skip("this kernel has no programs that are run by a system call (Linux 5.14)")
    by_kernel = named(recorder)
    assert by_kernel == by_list
    differing = {a: (wanted[a], by_list.get(a)) for a in wanted if wanted[a] != by_list.get(a)}
    assert not differing


def test_an_address_of_no_function_has_no_name(recorder: Any) -> None:
    recorder.kernel_lookup_prepare()
    if not recorder.kernel_lookup_works():
        pytest.skip("this kernel has no programs that are run by a system call (Linux 5.14)")
    recorder.kernel_address_add(ctypes.c_uint64(16))
    assert named(recorder) == {}


def test_a_recorder_without_most_privileges_names_them(
    recorded_server: "subprocess.Popen[bytes]", record_it: Record
) -> None:
    recorder = record_it("--sample-hz", "999")
    await_attached(recorder)
    serve(recorded_server)
    recorder.terminate()
    stream, errors = recorder.communicate(timeout=60)
    assert recorder.returncode == OK, errors
    assert frames_of(stream)[0][definition().number("KERNEL_NAME")]
