# SPDX-License-Identifier: GPL-2.0-only
"""Uprobes that other tools have set in the files of a process: BPF links and uprobe_events."""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from tlstax.collectors.host import bpf

_LINK_PERF_EVENT, _LINK_UPROBE_MULTI = 7, 12  # enum bpf_link_type
_PERF_EVENT_UPROBE, _PERF_EVENT_URETPROBE = 1, 2  # enum bpf_perf_event_type
_INFO_BYTES: Final = 128
_MULTI_PID_OFFSET: Final = 60  # 0: every process, or a kernel that does not tell it
_PATH_BYTES: Final = 4096
LINKS_MAX: Final = 4096
"""Links that are looked at, so that a host with very many delays nothing."""


def probed_paths(pid: int, uprobe_events: str | None) -> list[str]:
    """The file of each uprobe that the kernel tells, one entry for each link or event.

    Links to other processes than `pid` are left out, where the kernel tells their process.
    `uprobe_events` is the content of that file of tracefs. Without privilege, links are not seen.
    """
    found = []
    with suppress(OSError):
        found += list(_links(pid))
    return [*found, *_events(uprobe_events or "")]


def count_in(paths: Iterable[str], files: Iterable[tuple[int, int]]) -> int:
    """How many of the paths lead to one of the files, given by device and inode."""
    wanted = set(files)
    count = 0
    for path in paths:
        with suppress(OSError):
            seen = os.stat(path)
            count += (seen.st_dev, seen.st_ino) in wanted
    return count


def _events(text: str) -> Iterator[str]:
    """Paths in lines such as `p:group/name /usr/bin/x:0x1234`."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 1:
            yield fields[1].rpartition(":")[0]


def _links(pid: int) -> Iterator[str]:
    link_id: int | None = 0
    for _ in range(LINKS_MAX):
        link_id = bpf.next_id(bpf.Command.LINK_GET_NEXT_ID, link_id or 0)
        if link_id is None:
            return
        with suppress(OSError):  # the link went in the meantime
            if path := _path_of(link_id, pid):
                yield path


def _path_of(link_id: int, pid: int) -> str:
    """The file that a link probes, "" for a link of another kind or to another process."""
    fd = bpf.bpf(bpf.Command.LINK_GET_FD_BY_ID, struct.pack("<I", link_id))
    try:
        kind = struct.unpack_from("<I", _info(fd, b""))[0]
        path = ctypes.create_string_buffer(_PATH_BYTES)
        place = ctypes.addressof(path)
        if kind == _LINK_UPROBE_MULTI:
            # path, offsets, ref_ctr_offsets, cookies, path_size
            info = _info(fd, struct.pack("<16xQQQQI", place, 0, 0, 0, _PATH_BYTES))
            if struct.unpack_from("<I", info, _MULTI_PID_OFFSET)[0] not in (0, pid):
                return ""
        elif kind == _LINK_PERF_EVENT:
            info = _info(fd, struct.pack("<16xIIQI", 0, 0, place, _PATH_BYTES))
            if struct.unpack_from("<I", info, 16)[0] not in (
                _PERF_EVENT_UPROBE,
                _PERF_EVENT_URETPROBE,
            ):
                return ""
        return os.fsdecode(path.value)
    finally:
        os.close(fd)


def _info(fd: int, asked: bytes) -> bytes:
    """What the kernel tells of a link (struct bpf_link_info), with what it is asked for."""
    info = ctypes.create_string_buffer(asked, _INFO_BYTES)
    attributes = struct.pack("<IIQ", fd, _INFO_BYTES, ctypes.addressof(info))
    bpf.bpf(bpf.Command.OBJ_GET_INFO_BY_FD, attributes)
    return info.raw
