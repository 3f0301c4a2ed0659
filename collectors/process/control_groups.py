# SPDX-License-Identifier: GPL-2.0-only
"""Which systemd unit, container and pod a process belongs to, by its control groups.

The paths of /proc/PID/cgroup name all three, in the manner of systemd, Docker, Podman, containerd,
CRI-O, LXC and the kubelet, with cgroup version 1 and 2.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

_UNIT_KINDS: Final = ("service", "scope", "slice")
# docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope, docker/ID, SLICE:cri-containerd:ID
_CONTAINER_ID: Final = re.compile(r"(?:^|[-:.])([0-9a-f]{64}|[0-9a-f]{32})(?:\.scope)?$")
# lxc.payload.NAME; machine-NAME.scope, and systemd-nspawn@NAME.service of `machinectl start`
_NAMED: Final = re.compile(
    r"^(?:(?:lxc\.payload\.|machine-)(.+?)(?:\.scope)?|systemd-nspawn@(.+)\.service)$"
)
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")  # what systemd writes for a hyphen in a name
# pod2f1e..., kubepods-burstable-pod2f1e_....slice
_POD: Final = re.compile(r"(?:^|-)pod([0-9a-f]+(?:[-_][0-9a-f]+)*)(?:\.slice)?(?=$|:)")
_WORD: Final = re.compile(r"[0-9A-Za-z]+")
_DIGITS: Final = frozenset("0123456789abcdef")
_MONITORS: Final = ("crio-conmon-", "libpod-conmon-")  # they watch a container from outside
UID_LEAST: Final = 8
"""So many digits of a pod's uid must be given; fewer mean none."""
ID_LEAST: Final = 6
"""So many digits of a container's id."""


class Group(NamedTuple):
    """What a process must belong to; "" does not matter."""

    unit: str = ""
    container: str = ""
    pod: str = ""

    def __str__(self) -> str:
        """As part of a sentence."""
        given = [f"{kind} {name}" for kind, name in self._asdict().items() if name]
        return " and ".join(given)

    @property
    def has_short_uid(self) -> bool:
        """Whether the pod's uid is too short to mean one."""
        return bool(self.pod) and len(_plain_uid(self.pod)) < UID_LEAST

    @property
    def has_short_id(self) -> bool:
        """Whether the container's id is too short to mean one, unless it is a name."""
        return 0 < len(self.container) < ID_LEAST and not set(self.container.lower()) - _DIGITS

    @property
    def word(self) -> str:
        """What the names of its processes' control groups contain, as capital or small letters.

        Names are written differently there, but never letters and digits. "": it has none of them.
        """
        name, dot, kind = self.unit.rpartition(".")
        unit = name if dot and kind in _UNIT_KINDS else self.unit
        return max(_WORD.findall(f"{unit} {self.container} {self.pod}"), key=len, default="")

    def holds(self, cgroup: str) -> bool:
        """Whether a process with this text of /proc/PID/cgroup belongs to it."""
        parts = [part for line in cgroup.splitlines() for part in line.split(":", 2)[-1].split("/")]
        return all(
            any(matches(part, wanted) for part in parts)
            for wanted, matches in zip(self, (_is_unit, _is_container, _is_pod), strict=True)
            if wanted
        )


def group_text(process: Path) -> str:
    """/proc/PID/cgroup; "" if the process has ended, or hides it."""
    try:
        return (process / "cgroup").read_text(errors="surrogateescape")
    except OSError:
        return ""


def _is_unit(part: str, name: str) -> bool:
    if name.rpartition(".")[2] in _UNIT_KINDS:
        return part == name
    return part in {f"{name}.{kind}" for kind in _UNIT_KINDS}


def _is_container(part: str, name: str) -> bool:
    """By its id, or the beginning of it; LXC's and systemd-nspawn's by name."""
    found = None if part.startswith(_MONITORS) else _CONTAINER_ID.search(part)
    if found and len(name) >= ID_LEAST and found.group(1).startswith(name.lower()):
        return True
    named = _NAMED.match(part)
    written = (named.group(1) or named.group(2)) if named else ""
    return bool(written) and name in (written, _unescaped(written))


def _unescaped(name: str) -> str:
    """A name as it was before systemd made it part of the name of a unit."""
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), name)


def _is_pod(part: str, uid: str) -> bool:
    """By its uid, or the beginning of it; systemd's slices have _ for -."""
    wanted = _plain_uid(uid)
    found = _POD.search(part)
    if not found or len(wanted) < UID_LEAST:
        return False
    return found.group(1).replace("_", "-").startswith(wanted)


def _plain_uid(uid: str) -> str:
    return uid.lower().replace("_", "-").removeprefix("pod")
