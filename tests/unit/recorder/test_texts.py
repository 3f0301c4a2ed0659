# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's proc.c: what a target chooses (names of files, long paths) does not mislead it."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
LINE_MOST: Final = 65535


class Lines(ctypes.Structure):
    _fields_ = (
        ("fd", ctypes.c_int),
        ("used", ctypes.c_size_t),
        ("at", ctypes.c_size_t),
        ("flags", ctypes.c_bool * 2),
        ("text", ctypes.c_char * (LINE_MOST + 1)),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = tmp_path_factory.mktemp("proc") / "proc.so"
    subprocess.run(
        [
            *("clang", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-Wall"),
            *("-Wextra", "-Werror", "-I", str(ROOT / "probes/bpf"), "-o", str(made)),
            str(ROOT / "collectors/recorder/proc.c"),
        ],
        check=True,
    )
    loaded = ctypes.CDLL(str(made))
    loaded.lines_next.restype = ctypes.c_char_p
    return loaded


def lines_of(library: Any, path: Path) -> list[bytes]:
    lines, found = Lines(), []
    assert library.lines_open(ctypes.byref(lines), str(path).encode())
    while (line := library.lines_next(ctypes.byref(lines))) is not None:
        found.append(bytes(line))
    library.lines_close(ctypes.byref(lines))
    return found


@pytest.mark.parametrize("length", [3 * LINE_MOST, LINE_MOST + 1, LINE_MOST, LINE_MOST - 1])
@pytest.mark.parametrize("ending", [b"\nafter\n", b"\nafter", b"\n", b""])
def test_the_rest_of_a_long_line_is_no_line(
    library: Any, tmp_path: Path, length: int, ending: bytes
) -> None:
    """A path may be as long as a process likes, and its end may look like a mapping."""
    path = tmp_path / "maps"
    path.write_bytes(b"before\n" + b"x" * length + ending)
    expected = [b"before", b"x" * min(length, LINE_MOST), *ending.split()]
    assert lines_of(library, path) == expected


def test_only_regular_files_are_opened(library: Any, tmp_path: Path) -> None:
    """A target chooses what is at the path of its files: a pipe would be waited for."""
    regular, pipe = tmp_path / "regular", tmp_path / "pipe"
    regular.write_bytes(b"text")
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(regular)
    before = len(os.listdir("/proc/self/fd"))
    for name in (pipe, tmp_path, Path("/dev/zero"), tmp_path / "none"):
        assert library.open_regular(str(name).encode()) < 0
    for name in (regular, tmp_path / "link", Path("/proc/self/exe")):
        descriptor = library.open_regular(str(name).encode())
        assert os.fstat(descriptor).st_ino == name.stat().st_ino
        assert os.get_inheritable(descriptor) is False
        os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == before


# quota.c, with the files of a folder in the place of /proc and the control groups.
QUOTA: Final = """
#include <fcntl.h>
#include <stdio.h>
#include "proc.h"
#include "output.h"
static char folder[256];
static bool lines_open_below(struct lines *lines, const char *path)
{
	char name[8192];
	snprintf(name, sizeof(name), "%s%s", folder, path);
	return lines_open(lines, name);
}
static int open_below(const char *path, int flags)
{
	char name[8192];
	snprintf(name, sizeof(name), "%s%s", folder, path);
	return open(name, flags);
}
#define lines_open lines_open_below
#define open open_below
#include "quota.c"
void *output_put(u16 type, size_t bytes)
{
	(void)type;
	(void)bytes;
	return NULL;
}
u32 groups_opened(const char *below)
{
	snprintf(folder, sizeof(folder), "%s", below);
	static struct quota quota;
	quota_open(&quota, 7);
	return quota.groups_count;
}
"""


@pytest.mark.parametrize(
    ("group", "count"), [("/docker/abc/x", 2), ("/docker/abc", 1), ("/docker/abcd", 0)]
)
def test_a_group_with_a_longer_name_is_not_below_another(
    tmp_path: Path, group: str, count: int
) -> None:
    """Its throttling would be taken for that of the process."""
    source, made = tmp_path / "quota_test.c", tmp_path / f"quota{count}.so"
    source.write_text(QUOTA)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/7/cgroup").write_text(f"4:cpu,cpuacct:{group}\n")
    mount = "30 25 0:26 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    (tmp_path / "proc/self/mountinfo").write_text(mount)
    for place in ("", "/x"):
        (tmp_path / f"sys/fs/cgroup/cpu{place}").mkdir(parents=True)
        (tmp_path / f"sys/fs/cgroup/cpu{place}/cpu.stat").write_text("nr_periods 1\n")
    subprocess.run(
        [
            *("clang", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-Wall"),
            *("-Wextra", "-Werror", "-I", str(ROOT / "probes/bpf")),
            *("-I", str(ROOT / "collectors/recorder"), "-o", str(made), str(source)),
            str(ROOT / "collectors/recorder/proc.c"),
        ],
        check=True,
    )
    assert ctypes.CDLL(str(made)).groups_opened(str(tmp_path).encode()) == count
