# SPDX-License-Identifier: GPL-2.0-only
"""Whether a process's cgroup is frozen, and how much memory its limits leave (cgroup v1, v2)."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from tlstax.collectors.capture.printable import whole_number

PROC: Final = Path("/proc")
# A v1 limit above this is none: the kernel rounds the largest number down to a page.
_NO_LIMIT_BYTES: Final = 1 << 60
_RECLAIMABLE: Final = ("inactive_file", "active_file", "total_inactive_file", "total_active_file")


class Group(NamedTuple):
    """The directory of a process's cgroup for one controller, and where its hierarchy begins."""

    place: Path
    top: Path
    is_v2: bool

    def upwards(self) -> Iterator[Path]:
        """The group and the groups above it."""
        place = self.place
        while True:
            yield place
            if place == self.top or self.top not in place.parents:
                return
            place = place.parent


def group_of(pid: int | str, controller: str, proc: Path = PROC) -> Group | None:
    """The cgroup of a process for a v1 controller, else the v2 group; None if not visible.

    `proc` as in `process.mappings`: the mounts of that host are beside it.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text(errors="surrogateescape").splitlines()
        mounts = (proc / "self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    paths = {}
    for line in lines:  # of any host: what is not as Linux writes it tells nothing
        _, names, path = [*line.split(":", 2), "", "", ""][:3]
        for name in names.split(","):
            if path:
                paths[name] = path
    v2 = None
    for line in mounts:
        fields = line.split(" ")
        behind = fields[fields.index("-", 5) + 1 :] if "-" in fields[5:] else []
        if not behind:
            continue
        kind, options = behind[0], behind[-1].split(",")
        if kind == "cgroup" and controller in options and controller in paths:
            return _below(proc.parent, fields, paths[controller], is_v2=False)
        if kind == "cgroup2" and "" in paths:
            v2 = _below(proc.parent, fields, paths[""], is_v2=True)
    return v2


def _below(top: Path, fields: list[str], path: str, *, is_v2: bool) -> Group | None:
    """The directory of a group below a mount, whose root may be a group itself."""
    root, top = PurePosixPath(fields[3]), top / fields[4].lstrip("/")
    group = PurePosixPath(path)
    if not group.is_relative_to(root):
        return None
    return Group(top / group.relative_to(root), top, is_v2)


def is_frozen(pid: int, proc: Path = PROC) -> bool | None:
    """Whether the process's cgroup is frozen, or is about to be; None if that cannot be read."""
    found = [_is_frozen(group) for name in ("freezer", "") if (group := group_of(pid, name, proc))]
    known = [one for one in found if one is not None]
    return any(known) if known else None


def _is_frozen(group: Group) -> bool | None:
    if not group.is_v2:
        state = _text(group.place / "freezer.state")
        return None if state is None else state != "THAWED"
    events = _text(group.place / "cgroup.events")
    if events is None:  # the group at the top has no such file, because it cannot be frozen
        return False if group.place == group.top else None
    return "frozen 1" in events.splitlines()


def memory_left_bytes(pid: int | str, proc: Path = PROC) -> int | None:
    """How much more the process's cgroup may use, with the page cache freed; None if unlimited."""
    group = group_of(pid, "memory", proc)
    if group is None:
        return None
    left = [bytes_ for place in group.upwards() if (bytes_ := _left_in(place)) is not None]
    return min(left, default=None)


def _left_in(place: Path) -> int | None:
    for names in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, usage = (whole_number(_text(place / name) or "") for name in names)
        if limit is not None and usage is not None and limit < _NO_LIMIT_BYTES:
            return max(0, limit - usage + _reclaimable_bytes(place))
    return None


def _reclaimable_bytes(place: Path) -> int:
    values = {}
    for line in (_text(place / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        number = whole_number(value)
        if name in _RECLAIMABLE and number is not None:
            values[name.removeprefix("total_")] = number
    return sum(values.values())


def _text(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()  # another host may have sent it
    return None
