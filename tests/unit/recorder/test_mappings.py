# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's mappings.c: what is mapped anew at the same address is another mapping."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
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
void *output_put_alone(u16 type, size_t bytes)
{
	(void)type, (void)bytes;
	return NULL;
}
bool walks_has_table(const struct stream_mapping *mapping)
{
	(void)mapping;
	return false;
}
int known(const char *maps)
{
	place = maps;
	mappings_read(7);
	return (int)mapped.count;
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
