# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's mappings.c: what is mapped anew at the same address is another mapping."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
MAPPINGS_MOST: Final = 1024
# With a file in the place of /proc/PID/maps. Its files cannot be opened.
SOURCE: Final = """
#include "proc.h"
#include "session.h"
static struct session only;
struct session *session = &only;
static const char *place;
static bool lines_open_at(struct lines *lines, const char *path)
{
	(void)path;
	return lines_open(lines, place);
}
#define lines_open lines_open_at
#include "mappings.c"
u32 build_id_of(int fd, u64 start, u8 *id)
{
	(void)fd, (void)start, (void)id;
	return 0;
}
bool code_address_of(int fd, u64 start, u64 offset, u64 *address)
{
	(void)fd, (void)start, (void)offset, (void)address;
	return false;
}
int has_room = 1, has_table;
size_t sessions_end_bytes(void)
{
	return 0;
}
bool output_has_room(size_t bytes)
{
	(void)bytes;
	return has_room;
}
static int sent;
void *output_put_alone(u16 type, size_t bytes)
{
	static u8 record[65536];
	sent += type == STREAM_MAPPING && bytes <= sizeof(record);
	return record;
}
bool walks_has_table(const struct stream_mapping *mapping)
{
	(void)mapping;
	return has_table;
}
int known_of(const char *maps, int pid)
{
	place = maps;
	mappings_read(pid);
	return (int)mapped.count;
}
int known(const char *maps)
{
	return known_of(maps, 7);
}
/* How many are sent now; below 0: there was no room for all of them. */
int sends(const char *maps)
{
	struct target target = {.pid = 7};
	place = maps;
	sent = 0;
	return target_send_mappings(&target) ? sent : -1;
}
int mapped_now(void)
{
	static struct code code[TARGET_CODE_MOST];
	return (int)target_code(NULL, code);
}
"""
BEFORE: Final = "7f0000000000-7f0000002000 r-xp 00001000 08:01 42 /lib/a.so\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mappings")
    source, made = folder / "mappings_test.c", folder / "mappings_test.so"
    source.write_text(SOURCE)
    subprocess.run(
        [
            *("clang", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-Wall"),
            *("-Wextra", "-Werror", "-I", str(ROOT / "probes/bpf")),
            *("-I", str(ROOT / "collectors/recorder"), "-o", str(made), str(source)),
            str(ROOT / "collectors/recorder/proc.c"),
        ],
        check=True,
    )
    return made


@pytest.fixture
def library(built: Path, tmp_path: Path) -> Any:
    """A copy: it has seen no mapping yet."""
    return ctypes.CDLL(str(shutil.copy(built, tmp_path)))


@pytest.mark.parametrize(
    ("after", "count"),
    [
        (BEFORE, 1),
        (BEFORE.replace("2000 ", "3000 "), 1),
        (BEFORE.replace("00001000", "00005000"), 2),
        (BEFORE.replace("08:01", "08:02"), 2),
        (BEFORE.replace("08:01", "09:01"), 2),
        (BEFORE.replace(" 42 ", " 43 "), 2),
        (BEFORE.replace("7f0000000000", "7f0000001000"), 2),
    ],
    ids=["same", "longer", "other offset", "other minor", "other major", "other file", "elsewhere"],
)
def test_what_is_mapped_anew_is_another_mapping(
    library: Any, tmp_path: Path, after: str, count: int
) -> None:
    """Its addresses would be named as those of what was there before."""
    maps = tmp_path / "maps"
    maps.write_text(BEFORE)
    assert library.known(str(maps).encode()) == 1
    maps.write_text(after)
    assert library.known(str(maps).encode()) == count
    assert library.mapped_now() == 1


def line(number: int, *, path: str = "/lib/a.so") -> str:
    start = 0x7F0000000000 + number * 0x10000
    return f"{start:x}-{start + 0x1000:x} r-xp 00000000 08:01 {number + 1} {path}\n"


def test_another_process_has_none_of_the_first_ones(library: Any, tmp_path: Path) -> None:
    """One connection may ask for the facts of several processes (`--serve`)."""
    maps = tmp_path / "maps"
    maps.write_text(line(1) + line(2))
    assert library.known_of(str(maps).encode(), 7) == 2
    maps.write_text(line(3))
    assert library.known_of(str(maps).encode(), 8) == 1
    maps.write_text(line(1))
    assert library.sends(str(maps).encode()) == 1


def test_more_than_there_is_room_for_costs_no_other_mapping(library: Any, tmp_path: Path) -> None:
    """A process that maps and unmaps code for weeks: all stacks would have lost their tables."""
    maps = tmp_path / "maps"
    name = str(maps).encode()
    maps.write_text("".join(map(line, range(MAPPINGS_MOST + 5))))
    assert library.sends(name) == MAPPINGS_MOST
    assert library.known(name) == MAPPINGS_MOST
    assert library.mapped_now() == MAPPINGS_MOST
    maps.write_text("".join(map(line, range(MAPPINGS_MOST - 4))))
    assert library.known(name) == MAPPINGS_MOST
    maps.write_text("".join(map(line, (*range(MAPPINGS_MOST - 4), MAPPINGS_MOST + 9))))
    assert library.sends(name) == 1
    assert library.known(name) == MAPPINGS_MOST - 3
    assert library.mapped_now() == MAPPINGS_MOST - 3


def test_what_is_gone_and_was_not_sent_is_kept(library: Any, tmp_path: Path) -> None:
    """Samples may be in it."""
    maps = tmp_path / "maps"
    name = str(maps).encode()
    maps.write_text("".join(map(line, range(MAPPINGS_MOST))))
    assert library.known(name) == MAPPINGS_MOST
    maps.write_text(line(0))
    assert library.known(name) == library.known(name) == MAPPINGS_MOST
    assert library.sends(name) == MAPPINGS_MOST


def test_what_had_no_room_is_sent_later(library: Any, tmp_path: Path) -> None:
    maps, has_room = tmp_path / "maps", ctypes.c_int.in_dll(library, "has_room")
    name = str(maps).encode()
    maps.write_text(line(1))
    assert [library.sends(name), library.sends(name)] == [1, 0]
    ctypes.c_int.in_dll(library, "has_table").value = 1  # its unwind table has come
    has_room.value = 0
    assert library.sends(name) == -1
    has_room.value = 1
    assert [library.sends(name), library.sends(name)] == [1, 0]
    maps.write_text(line(1).replace("1000 r-xp", "3000 r-xp"))  # it is longer now
    assert [library.sends(name), library.sends(name)] == [1, 0]
