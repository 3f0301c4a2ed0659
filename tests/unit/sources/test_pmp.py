# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of pt-pmp, gdb and eu-stack are read alike, classified alike, and never taken unasked."""

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.collectors.commands import pmp
from tlstax.collectors.sources.pmp.snapshots import classify
from tlstax.collectors.sources.pmp.text import UNNAMED, parse
from tlstax.collectors.sources.stacks.stack_phases import StackPhases, spoken_name
from tlstax.probes.definitions import load_definitions

PT_PMP = """Sat Nov 21 09:09:16 UTC 2026
     10 libaio::??(libaio.so.1),os_aio_linux_collect,io_handler_thread,start_thread,clone3
      2 __GI___poll,vio_io_wait,f(std::map<a, b>, int),do_command,start_thread,clone3
"""
GDB = """[New LWP 7499]
Thread 2 (Thread 0x7fdc (LWP 7528) "mysqld"):
#0  0x00007fdc9831a26f in __GI___poll (fds=0x7f, nfds=1) at ../sysdeps/poll.c:29
#1  0x0000000000b7f347 in vio_io_wait (vio=<optimized out>) at viosocket.c:771
#2  do_command (thd=0x1) at sql_parse.cc:1

Thread 1 (Thread 0x7fdd (LWP 7498) "mysqld"):
#0  0x00007fdc9840064a in ?? () from ./libaio.so.1
#1  0x97bb in io_handler_thread (arg=0x0) at x.cc:3
"""
EU_STACK = """PID 7498 - process
TID 7498:
#0  0x00007fdc9831a26f __poll - /usr/lib/x86_64-linux-gnu/libc.so.6
#1  0x0000000000580a6a do_command(THD*) - /opt/my sql/mysqld
TID 7499:
#0  0x00007fdc9840064a - /opt/libaio.so.1
#1  0x000000000097bbdf io_handler_thread - /opt/mysqld
"""
CONNECTION = ["do_command", "do_handle_one_connection", "start_thread", "clone3"]
DISPATCH = ["dispatch_command", *CONNECTION]
FUTEX = ["__futex_abstimed_wait_common64", "___pthread_cond_timedwait64"]


@pytest.fixture(scope="module")
def phases() -> StackPhases:
    return StackPhases(load_definitions())


def test_pt_pmp_is_read() -> None:
    assert parse(PT_PMP) == {
        (UNNAMED, "os_aio_linux_collect", "io_handler_thread", "start_thread", "clone3"): 10,
        ("__GI___poll", "vio_io_wait", "f(std::map<a, b>, int)", "do_command", "start_thread",
         "clone3"): 2,
    }  # fmt: skip


def test_gdb_is_read() -> None:
    assert parse(GDB) == {
        ("__GI___poll", "vio_io_wait", "do_command"): 1,
        (UNNAMED, "io_handler_thread"): 1,
    }


def test_eu_stack_is_read() -> None:
    assert parse(EU_STACK) == {
        ("__poll", "do_command(THD*)"): 1,
        (UNNAMED, "io_handler_thread"): 1,
    }


@pytest.mark.parametrize("text", ["", "nonsense\n", "Thread 1 (x):\n"])
def test_what_holds_no_stack_is_refused(text: str) -> None:
    with pytest.raises(TlstaxError, match="no stack found"):
        parse(text)


@pytest.mark.parametrize(
    ("functions", "kind", "phase"),
    [
        (["__GI___poll", "vio_io_wait", *CONNECTION], "idle", "idle"),
        (["__poll", "vio_io_wait", "net_real_write", *DISPATCH], "network", "record_write"),
        ([*FUTEX, "MDL_wait::timed_wait", "x", *DISPATCH], "lock", "command"),
        ([*FUTEX, "MDL_wait::timed_wait(MDL_context_owner*, int)", *DISPATCH], "lock", "command"),
        (["__lll_lock_wait", "___pthread_mutex_lock", "x", *DISPATCH], "lock", "command"),
        ([*FUTEX, "something", *DISPATCH], "wait", "command"),
        (["fdatasync", "my_sync", *DISPATCH], "io", "command"),
        (["__libc_pread64", "os_file_read", "page_cleaner", "start_thread"], "io", "background"),
        ([*FUTEX, "srv_purge_coordinator_thread", "start_thread", "clone3"], "idle", "idle"),
        (["JOIN::exec", *DISPATCH], "running", "command"),
        (["TaoCrypt::Square8", "yaSSL_accept", "sslaccept", "thd_prepare_connection(THD*)",
          *CONNECTION], "running", "handshake"),
    ],
)  # fmt: skip
def test_a_stack_says_what_its_thread_did(
    functions: list[str], kind: str, phase: str, phases: StackPhases
) -> None:
    assert classify(functions, phases) == (kind, phase)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("_Z10do_commandP3THD*", "do_command"),
        ("_ZN8MDL_wait10timed_waitE*", "MDL_wait::timed_wait"),
        ("_ZL12timer_threadPv", "timer_thread"),
        ("net_real_write", ""),
        ("_ZNSt3mapIiE", ""),
        ("_Z99short", ""),
    ],
)
def test_a_mangled_pattern_has_a_spoken_name(pattern: str, name: str) -> None:
    assert spoken_name(pattern) == name


def test_endless_stacks_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pmp, "_LENGTH_MOST", 1 << 20)
    assert main(["pmp", "--from", "/dev/zero"]) == ExitCode.FAILED
    assert "1,048,576 characters" in capsys.readouterr().err


def test_a_server_is_not_stopped_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pmp", "1"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "--allow-pause" in error
    assert "stops the whole server" in error
