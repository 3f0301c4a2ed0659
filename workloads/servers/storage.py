# SPDX-License-Identifier: GPL-2.0-only
"""How a private server keeps its data: on the disk, encrypted or not, with which logs.

Both families encrypt tables, redo log, undo log and binary log: MariaDB by its plugin
file_key_management, MySQL by a component (at_rest.py says how each is set up). Keys are made for
each server and removed with it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError

BYTES_PER_MB = 1024 * 1024
BUFFER_POOL_MB_MIN = 5  # what InnoDB accepts
IN_MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class Storage:
    """What is asked for; data pages go past the page cache (O_DIRECT) in any case."""

    encrypted: bool = False  # tables, redo and undo log, and what else there is
    binlog: bool = False
    adaptive_hash_index: bool | None = None  # None: as the server has it
    buffer_pool_mb: int | None = None  # smaller than the data: pages come and go
    durable: bool = False  # logs are synced at each commit

    def __post_init__(self) -> None:
        pool_mb = self.buffer_pool_mb
        if pool_mb is not None and pool_mb < BUFFER_POOL_MB_MIN:
            raise TlstaxError(
                f"cannot give a server a buffer pool of {pool_mb} MB",
                f"the least that InnoDB accepts is {BUFFER_POOL_MB_MIN} MB",
                f"Set buffer_pool_mb to {BUFFER_POOL_MB_MIN} or more",
                ExitCode.USAGE,
            )

    @property
    def options(self) -> tuple[str, ...]:
        """Lines of the option file, encryption apart; of a repeated one the last counts."""
        lines = ["loose_innodb_flush_method = O_DIRECT"]
        if self.buffer_pool_mb is not None:
            lines.append(f"innodb_buffer_pool_size = {self.buffer_pool_mb * BYTES_PER_MB}")
        if self.adaptive_hash_index is not None:
            lines.append(
                f"innodb_adaptive_hash_index = {'ON' if self.adaptive_hash_index else 'OFF'}"
            )
        if self.binlog:
            lines += ["log_bin = binlog", "server_id = 1", "binlog_format = ROW"]
            lines.append(f"sync_binlog = {int(self.durable)}")
        if self.durable:
            lines.append("innodb_flush_log_at_trx_commit = 1")
        return tuple(lines)


def require_disk(directory: Path) -> None:
    """TlstaxError (HOST) where files of `directory` would only be in memory."""
    where = os.path.realpath(directory)
    found, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mounted = before.split()[4]
        inside = where == mounted or where.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(found):
            found, kind = mounted, after.split()[0]
    if kind in IN_MEMORY:
        raise TlstaxError(
            f"cannot keep a server's data in {directory}",
            f"{found} is a {kind}, in memory, and this experiment is about disks",
            "Set TMPDIR to a directory on a disk",
            ExitCode.HOST,
        )
