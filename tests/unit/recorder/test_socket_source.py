# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's socket_events.c: what it tries on which kernel, and why it says it has nothing."""

import ctypes
import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
NONE: Final = 1
# On a kernel without the tracepoints, with or without the struct; programs are refused.
SOURCE: Final = """
#include <errno.h>
#include "socket_events.c"
static struct btf *types;
static int tries_count;
int given;
const struct btf *kernel_types(void)
{
	return types;
}
int event_map(u32 kinds)
{
	(void)kinds;
	return given ? given : dup(0);
}
int count_returns(int map, u32 kind, int pid, u32 function)
{
	(void)map, (void)kind, (void)pid, (void)function;
	tries_count++;
	errno = EPERM;
	return -EPERM;
}
int count_tracepoint(int map, u32 kind, int pid, const char *tracepoint)
{
	(void)tracepoint;
	return count_returns(map, kind, pid, 0);
}
u64 events_counted(int map, u32 kind, bool of_others)
{
	(void)map, (void)kind, (void)of_others;
	return 0;
}
void watchdog_beat(void)
{
	errno = EBADF;
}
void watchdog_arm(bool on)
{
	(void)on;
	errno = EBADF;
}
int find(const char *safe_type, int map_error, const char **lack)
{
	types = btf__new_empty();
	s32 word = btf__add_int(types, "int", 4, BTF_INT_SIGNED);
	if (*safe_type)
		btf__add_struct(types, safe_type, 8);
	s32 kind = btf__add_func_proto(types, word);
	for (int i = 0; i < SEND_ARGUMENTS; i++)
		btf__add_func_param(types, "", word);
	btf__add_func(types, "inet_sendmsg", BTF_FUNC_STATIC, kind);
	given = map_error;
	enum socket_source found = sockets_source();
	*lack = sockets_lack();
	return tries_count * 100 + (int)found;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sockets")
    source, made = folder / "sockets_test.c", folder / "sockets_test.so"
    source.write_text(SOURCE)
    subprocess.run(
        [
            *("clang", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-Wall"),
            *("-Wextra", "-Werror", "-I", str(ROOT / "probes/bpf")),
            *("-I", str(ROOT / "collectors/recorder"), "-o", str(made), str(source), "-lbpf"),
        ],
        check=True,
    )
    return made


@pytest.fixture
def find(built: Path, tmp_path: Path) -> Any:
    """The source that is found, tries * 100 + its number, and why there is none."""
    library = ctypes.CDLL(str(shutil.copy(built, tmp_path)))  # a copy: it has found none yet

    def found(safe_type: str, map_error: int = 0) -> tuple[int, str]:
        lack = ctypes.c_char_p()
        answer = library.find(safe_type.encode(), map_error, ctypes.byref(lack))
        return answer, (lack.value or b"").decode()

    return found


@pytest.mark.parametrize("other", ["", "bpf_tramp_images"])
def test_a_kernel_that_frees_code_in_use_is_not_tried(find: Any, other: str) -> None:
    """Before Linux 5.12 a thread that waits in a receive would return to freed memory."""
    answer, lack = find(other)
    assert (answer, lack) == (
        NONE,
        "programs at the returns of its socket functions are not safe",
    ), "no program was attached"


def test_why_programs_are_refused_is_the_kernel_s_answer(find: Any) -> None:
    """Heartbeats between the refusal and the message have errors of their own."""
    answer, lack = find("bpf_tramp_image")
    assert answer == 100 + NONE, "they were tried"
    assert lack.endswith(f"refused ({os.strerror(errno.EPERM)})")


def test_why_there_is_no_map_is_the_kernel_s_answer(find: Any) -> None:
    answer, lack = find("bpf_tramp_image", -errno.ENOMEM)
    assert answer == NONE
    assert lack.endswith(f"refused ({os.strerror(errno.ENOMEM)})")
