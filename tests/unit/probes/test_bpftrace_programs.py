# SPDX-License-Identifier: GPL-2.0-only
"""The bpftrace programs and what is made of them: headers, marks, output, refusals."""

import json
import stat
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.sources.bpftrace.output import lost_events, maps, unmatched
from tlstax.collectors.sources.bpftrace.process import Run, Tool, add_up, find_bpftrace
from tlstax.collectors.sources.bpftrace.program_text import Rendered, _short
from tlstax.collectors.sources.bpftrace.rows import Stacks, kernel_frames, rows, user_frames
from tlstax.probes import programs

NAMES = (
    "command", "crypto", "handshake", "io", "locks", "offcpu", "oncpu", "record", "tde",
)  # fmt: skip


def fake(tmp_path: Path, text: str) -> Path:
    """A program that prints a text whatever it is asked."""
    path = tmp_path / "bpftrace"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{text}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_every_program_is_there_with_its_whole_header() -> None:
    assert tuple(programs.names()) == NAMES
    for name in NAMES:
        program = programs.load(name)
        assert program.name == name
        assert set(programs.LABELS) == set(program.labels)
        assert "Attaching " in program.labels["Example"], "a real session"


def test_marks_pair_and_every_block_filters_by_process() -> None:
    for name in NAMES:
        blocks = [p for p in programs.load(name).pieces if isinstance(p, programs.Block)]
        assert blocks
        for block in blocks:
            assert block.body.startswith("/pid == $1"), (name, block.subject)
            kind = "uprobe:" if block.event == "enter" else "uretprobe:"
            assert all(point.startswith(kind) for point in block.points)


def test_a_program_that_is_not_there_or_has_no_header() -> None:
    with pytest.raises(TlstaxError, match="the programs are command, crypto") as caught:
        programs.load("nothing")
    assert caught.value.exit_code == ExitCode.USAGE
    with pytest.raises(TlstaxError, match="its header lacks Question"):
        programs.parse("BEGIN {}\n", "x")


def test_registers_are_spelled_as_bpftrace_does() -> None:
    assert [_short(name) for name in ("rdi", "rax", "r12", "r8", "rbp")] == [
        "di", "ax", "r12", "r8", "bp",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bpftrace v0.16.0", "too old"),
        ("fish 3.6", "no known version of bpftrace"),
        ("", "no known version of bpftrace"),
    ],
)
def test_a_bpftrace_that_does_not_serve(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TlstaxError, match=said) as caught:
        find_bpftrace(fake(tmp_path, text))
    assert caught.value.exit_code == ExitCode.HOST


def test_no_bpftrace(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="bpftrace not found"):
        find_bpftrace(tmp_path / "bpftrace")


def test_what_a_build_can_do_is_asked() -> None:
    messages = [
        {"type": "attached_probes", "data": {"probes": 3}},
        {"type": "stats", "data": {"@took_ns": {"command": {"count": 2, "total": 6}}}},
        {"type": "stats", "data": {"@fsync_ns": {"count": 1, "average": 5, "total": 5}}},
        {"type": "map", "data": {"@unmatched": {"exit without entry": 3}}},
        {"type": "lost_events", "data": {"events": 4}},
    ]
    found = maps(messages)
    assert found["@took_ns"] == ("stats", {"command": {"count": 2, "total": 6}})
    assert found["@fsync_ns"][1] == {"": {"count": 1, "average": 5, "total": 5}}
    assert unmatched(messages) == {"exit without entry": 3}
    assert lost_events(messages) == 4


def test_stacks_of_both_versions() -> None:
    stacks = Stacks()
    text = (
        "\n\t7f05593d1930 __GI___libc_malloc+0 (/usr/lib/libc.so.6)\n"
        "\t55a212f81d98 mysqld_main(int, char**)+4360 (/usr/sbin/mariadbd)\n"
        "\tb9 0xb9 ([unknown])\n"
    )
    assert stacks.number(user_frames(text)) == 1
    kernel = "\n    ext4_release_file+62\n\tffffffff816bd916 __fput+230\n"
    assert stacks.number(kernel_frames(kernel)) == 2
    assert stacks.number(user_frames("")) is None
    frames = [row for row in stacks.rows() if isinstance(row, schema.Frame)]
    assert [row.symbol for row in frames][:3] == [
        "__GI___libc_malloc", "mysqld_main(int, char**)", "[unknown]",
    ]  # fmt: skip
    assert [row.symbol for row in frames][3:] == ["ext4_release_file", "__fput"]


def test_the_system_call_of_a_sample_in_the_kernel_is_told_by_its_stacks() -> None:
    user = "\n\t7f05593d1930 {}+23 (/usr/lib/libc.so.6)\n\t55a2 do_command(THD*, bool)+4 (/x)\n"
    keys = {
        f"11,{user.format('__send')},\n    tcp_ack+9\n    __sys_sendto+5\n"
        "    entry_SYSCALL_64_after_hwframe+118\n": 3,
        f"10,{user.format('__read')},\n    schedule+9\n    entry_SYSCALL_64_after_hwframe+118\n": 2,
        f"12,{user.format('__read')},\n    asm_sysvec_apic_timer_interrupt+22\n": 1,
        f"12,{user.format('memcpy')},\n": 4,
    }
    rendered = Rendered("oncpu", "", (), (), ())
    run = Run(Tool("", (0, 17), "", offsets=False), rendered, 1)
    # 0.23 escapes the keys once more than JSON asks for.
    escaped = {json.dumps(key)[1:-1]: count for key, count in keys.items()}
    for of_version in (keys, escaped):
        messages = [{"type": "map", "data": {"@samples": of_version}}]
        made = [row for row in rows(messages, rendered, run) if isinstance(row, schema.SampleStack)]
        assert [(row.phase, row.syscall, row.sample_count) for row in made] == [
            ("record_write", 44, 3), ("record_read", 0, 2), ("command", -1, 1), ("command", -1, 4),
        ]  # fmt: skip
        assert [row.kernel_stack_id is None for row in made] == [False, False, False, True]
        assert all(row.user_stack_id for row in made)


def test_a_stack_that_is_printed_once_for_each_thread_is_added_up() -> None:
    text = (
        '{"type": "stats", "data": {"@waited_ns": {"4,2,x": {"count": 2, "average": 3, "total": 6},'
        ' "4,2,y": {"count": 1, "average": 1, "total": 1},'
        ' "4,2,x": {"count": 1, "average": 9, "total": 9}}}}'
    )
    (waited,) = json.loads(text, object_pairs_hook=add_up)["data"].values()
    assert waited["4,2,x"] == {"count": 3, "average": 5, "total": 15}
    assert waited["4,2,y"]["total"] == 1
    assert json.loads('{"a": 1, "b": 5, "a": 2}', object_pairs_hook=add_up) == {"a": 3, "b": 5}
