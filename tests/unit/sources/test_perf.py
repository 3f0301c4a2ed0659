# SPDX-License-Identifier: GPL-2.0-only
"""perf's output becomes samples with phases, system calls and names; strange output is refused."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.capture import schema
from tlstax.collectors.host.tool_process import last_words
from tlstax.collectors.sources.perf.recording import (
    CLOCK,
    HARDWARE,
    Perf,
    choose_events,
    find_perf,
    group,
)
from tlstax.collectors.sources.perf.rows import PerfRows, read_leader
from tlstax.collectors.sources.perf.script import PerfFrame, PerfSample, parse
from tlstax.collectors.sources.stacks.boundary_aliases import read_aliases
from tlstax.collectors.sources.stacks.stack_phases import StackPhases
from tlstax.probes.definitions import load_definitions

SCRIPT = """\
 3726 13232.307462335: cpu-clock:ppp:
\tffffffff81a0 tcp_ack+0x10 ([kernel.kallsyms])
\t          29c463 [unknown] (/usr/lib/x86_64-linux-gnu/libcrypto.so.3)
\t          29f911 operator new(unsigned long)+0x1 (/a dir/lib (deleted))

    7 1.000000001:       4711 cycles:
\t 10 main (/bin/x)
"""
# A group of which the first event samples, as perf 6.1 printed it.
GROUP = """\
 1776 24279.588878462:    2057411        cpu-clock:
\t           14f02 intel_check_word.constprop.0+0x122 (/lib/ld-linux-x86-64.so.2)

 1776 24279.588878462:        131      page-faults:
\t           14f02 intel_check_word.constprop.0+0x122 (/lib/ld-linux-x86-64.so.2)

"""
DISPATCH = "_Z16dispatch_command19enum_server_commandP3THDPcjb"
CONNECTION = ["_Z24do_handle_one_connectionP7CONNECTb", "start_thread", "clone3"]
COMMAND = [DISPATCH, "_Z10do_commandP3THDb", *CONNECTION]
PREPARE = "_Z22thd_prepare_connectionP3THD"


def test_samples_are_read_as_perf_wrote_them() -> None:
    first, second = parse(SCRIPT.splitlines(keepends=True))
    assert first[:3] == (3726, 13232307462335, "cpu-clock:ppp")
    assert first.frames == (
        PerfFrame(0xFFFFFFFF81A0, "tcp_ack", 0x10, "[kernel.kallsyms]"),
        PerfFrame(0x29C463, "[unknown]", 0, "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"),
        PerfFrame(0x29F911, "operator new(unsigned long)", 1, "/a dir/lib (deleted)"),
    )
    assert second.frames == (PerfFrame(0x10, "main", 0, "/bin/x"),)
    assert (first.period, second.period) == (0, 4711)
    assert (first.counter, second.counter) == ("cpu-clock", "cycles")


# As perf prints it by itself, with --header.
PLAIN = """\
# captured on: today
# cmdline : perf record -F 99
#
mariadbd 36/3368 [001] 38742.191391:   10101010 cpu-clock:
\t           ff950 ASN1_TYPE_new+0x0 (/lib/libcrypto.so.3)
\t          954a99 do_command+0x359 (/sbin/mariadbd)

V8 Worker 7  3368 38742.192: nothing
"""


def test_what_perf_prints_by_itself_is_read_and_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PLAIN.partition("V8")[0]
    (sample,) = parse(text.splitlines(keepends=True)[3:])
    assert sample[:3] == (3368, 38742191391000, "cpu-clock")
    assert sample.period == 10101010
    assert [frame.symbol for frame in sample.frames] == ["ASN1_TYPE_new", "do_command"]
    script, capture = tmp_path / "script.txt", tmp_path / "c.tlstax"
    script.write_text(text * 3)
    command = ["import", str(script), "-o", str(capture)]
    assert main(command) == ExitCode.USAGE
    assert main([*command, "--hz", "1000"]) == ExitCode.FAILED  # the head comes again
    script.write_text(text + text.rpartition("#\n")[2] * 2)
    assert main([*command, "--hz", "1000"]) == 0
    assert main(["export", str(capture), "--format", "folded", "-o", "-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["3000000"]
    assert lines[0].rpartition(" ")[0].endswith("do_command;ASN1_TYPE_new")
    script.write_text(PLAIN)
    assert main([*command, "--force", "--hz", "1000"]) == ExitCode.FAILED
    assert "unknown form of line" in capsys.readouterr().err


def test_events_that_were_only_counted_are_no_samples() -> None:
    rows = PerfRows([], {}, leader="cpu-clock")
    for sample in parse(GROUP.splitlines(keepends=True)):
        rows.add(sample)
    made = rows.rows(schema.Window(1, None, 0, 9, 1, "sample", "perf"), 1e7)
    assert [row.sample_count for row in made if isinstance(row, schema.SampleStack)] == [1]
    metrics = [row for row in made if isinstance(row, schema.Metric)]
    assert [(row.object, row.name, row.value) for row in metrics] == [
        ("unknown", "page-faults_count", 131.0)
    ]


@pytest.mark.parametrize(
    ("text", "leader"),
    [
        ("cpu-clock:ppp: sample_freq=99\n", ("cpu-clock", 99.0)),
        ("cycles: sample_freq=997\ninstructions: sample_period=0\n", ("cycles", 997.0)),
        ("cycles: sample_period=100000\n", ("", 0.0)),
    ],
)
def test_the_event_that_samples_is_told(text: str, leader: tuple[str, float]) -> None:
    assert read_leader(text) == leader


def test_a_handshake_without_a_name_is_filed_as_one() -> None:
    """Debian's libssl does it in functions that have none, and its MariaDB jumps out of its own."""
    (path,) = Path("/usr/lib").glob("*/libssl.so.3")
    with Elf(path) as elf:
        aliases = read_aliases(elf, load_definitions())
    assert len(aliases.nameless) >= 2
    assert set(aliases.nameless.values()) == {"SSL_do_handshake"}
    with Elf("/usr/sbin/mariadbd") as elf:
        aliases = read_aliases(elf, load_definitions())
    assert set(aliases.nameless.values()) & {"sslaccept", "sslconnect"}
    phases = StackPhases(load_definitions())
    stack = ["sslaccept", "_Z16acl_authenticateP3THDj", PREPARE, *CONNECTION]
    assert phases.phase(stack) == "handshake"
    assert phases.phase(stack[1:]) == "connect"


def test_what_a_return_probe_cut_off_is_taken_to_be_inside_of_a_handshake() -> None:
    phases = StackPhases(load_definitions())
    cut = ["bn_mul", "EVP_DigestSign", "[return probe]"]
    assert phases.phase(cut) == "unknown"
    assert phases.phase(cut, cut=True) == "sign"


def test_missing_counters_are_found_by_trying_and_named() -> None:
    events, lacking = choose_events(find_perf())
    if Path("/sys/bus/event_source/devices/cpu").exists():  # not on the virtual machines of CI
        assert events == HARDWARE
        return
    assert events == (CLOCK,)
    assert "instructions per cycle are unknown" in lacking


def test_branch_records_that_are_not_there_are_refused_with_the_way_out(tmp_path: Path) -> None:
    if list(Path("/sys/bus/event_source/devices").glob("cpu*/caps/branches")):
        return  # whether the kernel lets them be used is the machine's affair
    with pytest.raises(TlstaxError, match="branch records") as found:
        Perf(1, tmp_path, call_graph="lbr").start()
    assert found.value.exit_code == ExitCode.HOST
    assert "--perf-call-graph dwarf" in found.value.do
    assert list(tmp_path.iterdir()) == []


def test_hardware_counters_are_asked_for_as_a_group() -> None:
    assert group(HARDWARE) == "{cycles,instructions}:S"
    assert group((CLOCK,)) == "cpu-clock"


@pytest.mark.parametrize("line", ["# nonsense\n", " 12 34: x:\n", "\x00\n"])
def test_a_line_of_no_known_form_is_refused(line: str) -> None:
    with pytest.raises(TlstaxError, match="unknown form of line"):
        list(parse([line]))


@pytest.mark.parametrize(
    ("functions", "phase"),
    [
        (["_Z11mysql_parse", *COMMAND], "command"),
        (["my_net_read", "_Z10do_commandP3THDb", *CONNECTION], "record_read"),
        (["write", "net_real_write", *COMMAND], "record_write"),
        (["write", "net_real_write", PREPARE, *CONNECTION], "connect"),
        (["EVP_DigestSign", "x", "sslaccept", PREPARE, *CONNECTION], "sign"),
        (["EVP_DigestSign", "_Z8sha2_sql", *COMMAND], "command"),
        (["rsaz", "SSL_do_handshake@@OPENSSL_3.0.0", "y", PREPARE, *CONNECTION], "handshake"),
        (["page_cleaner", "start_thread", "clone3"], "background"),
        (["sha_block"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_innermost_boundary_tells_the_phase(functions: list[str], phase: str) -> None:
    assert StackPhases(load_definitions()).phase(functions) == phase


def kernel(*symbols: str) -> tuple[PerfFrame, ...]:
    return tuple(PerfFrame((1 << 64) - 1 - n, name, 0, "[k]") for n, name in enumerate(symbols))


@pytest.mark.parametrize(
    ("frames", "syscall"),
    [
        ((*kernel("tcp_ack", "__sys_sendto", "entry_SYSCALL_64_after_hwframe"),), 44),
        ((*kernel("schedule", "entry_SYSCALL_64_after_hwframe"),
          PerfFrame(1, "__libc_write", 0, "libc")), 1),
        ((*kernel("asm_sysvec_apic_timer_interrupt"), PerfFrame(1, "write", 0, "libc")), -1),
        ((PerfFrame(1, "write", 0, "libc"),), -1),
    ],
)  # fmt: skip
def test_the_system_call_is_known(frames: tuple[PerfFrame, ...], syscall: int) -> None:
    rows = PerfRows([], {})
    rows.add(PerfSample(1, 5, "cpu-clock", frames))
    window = schema.Window(1, None, 0, 9, 1, "sample", "perf")
    (found,) = (row for row in rows.rows(window, 1e7) if isinstance(row, schema.SampleStack))
    assert found.syscall == syscall
    assert found.sample_count == 1


def test_what_is_no_recording_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange, out = tmp_path / "perf.data", tmp_path / "x.tlstax"
    strange.write_bytes(b"not perf")
    for name in (strange, tmp_path / "absent"):
        assert main(["import", str(name), "--hz", "9", "-o", str(out)]) == ExitCode.FAILED
        assert "cannot" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", "nothing"),
        ("one\n two \n\n", "two"),
        ("mmap of /data/customers/x.ibd failed", "mmap of …/x.ibd failed"),
        ("'/data/with space/x' and ../up/y", "'…/with space/x' and ../up/y"),
        ("see /proc/sys/kernel/perf_event_paranoid", "see /proc/sys/kernel/perf_event_paranoid"),
        ("\x1b[31mred\x07", "?[31mred?"),
        ("x" * 999, "x" * 200),
    ],
)
def test_last_words_are_fit_for_a_capture(said: str, kept: str) -> None:
    assert last_words(said) == kept
