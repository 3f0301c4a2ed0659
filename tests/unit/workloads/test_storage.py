# SPDX-License-Identifier: GPL-2.0-only
"""How a server keeps its data: option lines, recipes that ask for it, the search for a text."""

import tomllib
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.matrix.recipe import Recipe
from tlstax.workloads.matrix.recipe_file import parse
from tlstax.workloads.recipe_table import RecipeTable
from tlstax.workloads.servers.at_rest import mariadb_at_rest
from tlstax.workloads.servers.plaintext_search import BLOCK_BYTES, search
from tlstax.workloads.servers.storage import Storage

RECIPE = """
kind = "matrix"
title = "x"
collect = ["iostat"]
[matrix]
servers = ["small"]
encryption = ["off", "on"]
scenarios = ["read_write"]
[server.small]
kind = "mariadb102"
binlog = true
adaptive_hash_index = false
buffer_pool_mb = 16
[scale.smoke]
[scale.standard]
[scale.paper]
"""


def read(text: str) -> Recipe:
    return parse(Path("x.toml"), RecipeTable(Path("x.toml"), "", tomllib.loads(text)), "smoke")


def test_a_recipe_says_how_data_is_kept() -> None:
    recipe = read(RECIPE)
    assert recipe.servers["small"].storage == Storage(
        binlog=True, adaptive_hash_index=False, buffer_pool_mb=16
    )
    assert {cell.encryption for cell in recipe.cells} == {"off", "on"}
    assert recipe.collect == ("iostat",)


def test_nothing_said_is_nothing_asked() -> None:
    lines = [line for line in RECIPE.splitlines() if not line.startswith(("bin", "adap", "buf"))]
    assert read("\n".join(lines)).servers["small"].storage is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["off", "on"]', '["off", "full"]', "encryption names 'full', and known are off, on"),
        ('["iostat"]', '["vmstat"]', "collect = 'vmstat', and known are procfs, iostat"),
        ("binlog = true", 'binlog = "yes"', "binlog = 'yes', which is no bool"),
        ("buffer_pool_mb = 16", "buffer_pool_mb = 1", "buffer pool of 1 MB"),
    ],
)
def test_a_wrong_entry_is_named(old: str, new: str, said: str) -> None:
    with pytest.raises(TlstaxError) as caught:
        read(RECIPE.replace(old, new))
    assert said in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_options_are_those_that_were_asked_for() -> None:
    assert Storage().options == ("loose_innodb_flush_method = O_DIRECT",)
    lines = Storage(binlog=True, adaptive_hash_index=True, buffer_pool_mb=8, durable=True).options
    assert "innodb_buffer_pool_size = 8388608" in lines
    assert "innodb_adaptive_hash_index = ON" in lines
    assert "sync_binlog = 1" in lines
    assert "innodb_flush_log_at_trx_commit = 1" in lines


def test_each_server_has_a_key_of_its_own(tmp_path: Path) -> None:
    plugin = tmp_path / "lib/plugin/file_key_management.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    first, second = (mariadb_at_rest(Storage(True), Path("/s"), tmp_path) for _ in range(2))
    assert first.plugin == plugin
    assert first.files["keys"] != second.files["keys"]
    assert len(first.files["keys"]) == len("1;") + 64 + 1
    assert not [line for line in first.options if first.files["keys"].decode()[2:66] in line]
    assert "encrypt_binlog = ON" not in first.options


def test_every_file_is_searched(tmp_path: Path) -> None:
    (tmp_path / "data/bench").mkdir(parents=True)
    for name, content in (
        ("data/bench/t.ibd", b"...needle..needleneedle"),
        ("data/ib_logfile0", b"need" * 9 + b"le"),
        ("data/binlog.000001", b"needle"),
        ("data/ibdata1", b"pin"),
        ("data/empty", b""),
        ("data/undo001", b"x" * (BLOCK_BYTES - 3) + b"needle"),  # across two blocks
        ("data/aria_log.00000001", b"other pin"),
    ):
        (tmp_path / name).write_bytes(content)
    assert search(tmp_path, [b"needle", b"pin"]) == {
        "binary log": 1,
        "other files": 1,
        "redo log": 1,
        "tables": 3,
        "undo log and system tables": 2,
    }
