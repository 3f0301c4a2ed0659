# SPDX-License-Identifier: GPL-2.0-only
"""bcc's tools: which is which, what they print (saved from real runs), and how they fail."""

import os
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.syscalls import NUMBERS
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources.bcc import rows as bcc_rows
from tlstax.collectors.sources.bcc import source as bcc
from tlstax.collectors.sources.bcc import tools as bcc_tools
from tlstax.collectors.sources.bcc.rows import BccRows, wait_state
from tlstax.collectors.sources.bcc.text import (
    BccFrame,
    BccStack,
    missed_stacks,
    parse_histogram,
    parse_stacks,
)
from tlstax.collectors.sources.bcc.tools import ToolRun, find_tool
from tlstax.collectors.sources.stacks.stack_phases import StackPhases
from tlstax.collectors.sources.stacks.stack_syscalls import syscall_of
from tlstax.probes.definitions import load_definitions
from tlstax.tests.unit.conftest import MakeTarget

SAVED = Path(__file__).parent / "bcc"
ARGP = 'case "$1" in --help) echo "Usage: x [OPTION...]"; echo " -D -p -u -v -m -d -F --usage\
 --stack-storage-size=N";; --version) echo "x 9.9";; *) {};; esac'
NOT_A_TARGET = bcc.Watched(pid=os.getpid())


def saved(name: str) -> str:
    return (SAVED / name).read_text(encoding="ascii")


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def test_waits_of_libbpf_tools_have_threads_addresses_and_states() -> None:
    futex, poll, preempted = parse_stacks(saved("offcputime-libbpf-0.26.txt"))
    assert (futex.comm, futex.tid, futex.value) == ("mariadbd", 7139, 1_060_782)
    assert futex.user == (BccFrame(0x7EFC6D0A3F16, "__nptl_death_event"),)
    states = [wait_state([one.name for one in stack.kernel]) for stack in (futex, poll, preempted)]
    assert states == ["blocked_futex", "blocked_network", "runnable"]
    calls = [syscall_of([one.name for one in stack.kernel]) for stack in (futex, poll, preempted)]
    assert calls == [NUMBERS["futex"], NUMBERS["poll"], -1]
    # A frame pointer that was used as a number leads out of the address space: still one stack.
    assert preempted.user[-1] == BccFrame(0x5352006E6F697470, "[unknown]")


def test_waits_become_rows_whose_sums_agree() -> None:
    stacks = list(parse_stacks(saved("offcputime-libbpf-0.26.txt")))
    rows = BccRows(0, StackPhases(load_definitions())).waits(stacks, 5)
    waits = [row for row in rows if isinstance(row, schema.OffcpuStack)]
    ledger = [row for row in rows if isinstance(row, schema.Ledger)]
    total_ns = 1000 * sum(stack.value for stack in stacks)
    assert sum(row.time_ns for row in waits) == sum(row.time_ns for row in ledger) == total_ns
    assert {(row.phase, row.state) for row in waits} == {
        ("unknown", "blocked_futex"), ("connect", "blocked_network"), ("unknown", "runnable")
    }  # fmt: skip
    assert {row.wait_count for row in waits} == {0}
    frames = [row for row in rows if isinstance(row, schema.Frame)]
    assert not any("bpf" in row.symbol or row.symbol == "__schedule" for row in frames)
    assert min(row.frame_id for row in frames) >= bcc_rows.FIRST_ID


def test_samples_in_lines_and_folded() -> None:
    bare, sending, command = parse_stacks(saved("profile-libbpf-0.31.txt"))
    assert (bare.kernel, len(bare.user)) == ((), 1)
    assert sending.user == (BccFrame(0, "write"),)
    assert sending.kernel[-1].name == "entry_SYSCALL_64_after_hwframe"
    phases = StackPhases(load_definitions())
    assert phases.phase([frame.name for frame in command.user]) == "command"
    interrupted, writing, *plain = parse_stacks(saved("profile-bcc-0.26.txt"))
    assert [frame.name for frame in interrupted.user] == ["malloc_consolidate"]
    assert interrupted.kernel[-1].name == "asm_sysvec_apic_timer_interrupt"
    assert writing.kernel[-1].name == "entry_SYSCALL_64_after_hwframe"
    assert all(not stack.kernel and stack.value == 1 for stack in plain)


def test_kernel_and_user_frames_without_addresses_and_delimiter() -> None:
    frames = "    tcp_sendmsg\n    entry_SYSCALL_64_after_hwframe\n    write\n"
    text = f"{frames}    -  x (1)\n        3\n\n"
    (stack,) = parse_stacks(text)
    assert [frame.name for frame in stack.user] == ["write"]


@pytest.mark.parametrize(
    ("name", "count", "low_ns", "high_ns", "disk"),
    [
        ("funclatency-bcc-0.26.txt", 342, 2_097_152, 67_108_864, ""),
        ("biolatency-libbpf-0.26.txt", 11_395, 8_000, 262_144_000, "vda"),
    ],
)
def test_histograms(name: str, count: int, low_ns: int, high_ns: int, disk: str) -> None:
    buckets = parse_histogram(saved(name))
    assert sum(one.times for one in buckets) == count
    assert (buckets[0].low_ns, buckets[-1].high_ns) == (low_ns, high_ns)
    assert {one.disk for one in buckets} == {disk}


def test_stacks_that_found_no_room_are_counted() -> None:
    assert missed_stacks("", "    [Missed User Stack]\n    [Missed Kernel Stack]\n") == 2
    warning = "WARNING: 12 stack traces lost and could not be displayed.\n"
    assert missed_stacks("x;[Missed User Stack] 1\n", warning) == 12
    (stack,) = parse_stacks("mysqld;[Missed User Stack];-;entry_SYSCALL_64 5\n")
    assert stack.user == ()


@pytest.mark.parametrize("text", ["    frame\n    - x (1)\nnonsense\n", "a;b c\n", ";x 1\n"])
def test_stacks_of_no_known_form_are_refused(text: str) -> None:
    with pytest.raises(TlstaxError, match="cannot parse"):
        list(parse_stacks(text))


def test_a_histogram_without_its_unit_is_refused() -> None:
    with pytest.raises(TlstaxError, match="cannot parse"):
        parse_histogram(" 2 -> 3 : 1 |**|\n")


@pytest.mark.parametrize(
    ("kernel", "state"),
    [
        ([], "runnable"),
        (["__schedule", "schedule", "io_schedule", "folio_wait_bit_common"], "blocked_disk"),
        (["schedule", "exit_to_user_mode_loop", "do_syscall_64"], "runnable"),
        (["schedule", "do_nanosleep", "__x64_sys_nanosleep", "do_syscall_64"], "blocked_other"),
        (["schedule", "schedule_timeout", "wait_woken", "sk_wait_data"], "blocked_network"),
    ],
)
def test_states_of_waits(kernel: list[str], state: str) -> None:
    assert wait_state(kernel) == state


def test_names_without_an_address_get_the_file_that_defines_them(
    target_of: MakeTarget, libraries: dict[str, Path]
) -> None:
    target = target_of(libraries["libssl"], libraries["libc"])
    frames = tuple(BccFrame(0, name) for name in ("SSL_accept", "poll", "no_such", "[unknown]"))
    (stack,) = [BccStack("x", 1, frames, (), 3)]
    homes = bcc_rows.homes_of([stack], target)
    assert {name: home.path for name, home in homes.items()} == {
        "SSL_accept": str(libraries["libssl"]), "poll": str(libraries["libc"])
    }  # fmt: skip
    rows = BccRows(1, StackPhases(load_definitions()), homes=homes).samples([stack])
    objects = [row.object for row in rows if isinstance(row, schema.Frame)]
    assert objects == [str(libraries["libssl"]), str(libraries["libc"]), "unknown", "unknown"]


def test_a_build_of_libbpf_tools_is_preferred_to_bcc(tmp_path: Path) -> None:
    program(tmp_path / "profile-bpfcc", 'echo "usage: profile [-h] [-p PID]"')
    program(tmp_path / "profile", ARGP.format("exit 1"))
    tool = find_tool("profile", tmp_path)
    assert (tool.kind, tool.path) == ("libbpf-tools", str(tmp_path / "profile"))
    assert "x 9.9" in tool.version


def test_bcc_without_kernel_headers_offers_libbpf_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bcc_tools, "SEARCH_PATH", "/nonexistent")
    monkeypatch.setattr(bcc_tools, "lacking_headers", lambda: "X does not exist")
    program(tmp_path / "profile-bpfcc", 'echo "usage: profile [-h] [-p PID]"')
    with pytest.raises(TlstaxError, match=r"X does not exist.*Install libbpf-tools") as info:
        find_tool("profile", tmp_path)
    assert info.value.exit_code == ExitCode.HOST
    monkeypatch.setattr(bcc_tools, "lacking_headers", lambda: "")
    assert find_tool("profile", tmp_path).note


def test_one_that_is_missing_or_another_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bcc_tools, "SEARCH_PATH", "/nonexistent")
    with pytest.raises(TlstaxError, match="not found"):
        find_tool("biolatency", tmp_path)
    program(tmp_path / "biolatency", "echo hello")
    with pytest.raises(TlstaxError, match="belongs to neither bcc nor libbpf-tools"):
        find_tool("biolatency", tmp_path)


def test_a_version_that_lacks_an_option_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "profile", 'echo "Usage: profile [OPTION...] --usage -p"')
    tool = find_tool("profile", tmp_path)
    with pytest.raises(TlstaxError, match="a version that tlstax does not support") as info:
        ToolRun(tool, bcc.arguments(tool, NOT_A_TARGET)).start()
    assert info.value.exit_code == ExitCode.HOST


def test_one_that_cannot_attach_says_why(tmp_path: Path) -> None:
    program(tmp_path / "biolatency", ARGP.format("echo libbpf: not today >&2; exit 3"))
    sources = SourceSet([bcc.BccTool("biolatency", bcc.Watched(1, directory=tmp_path))])
    (row,) = sources.start()
    assert isinstance(row, schema.Collector)
    assert row.state == "missing"
    assert "libbpf: not today" in row.note
    assert len(sources.failures) == 1
