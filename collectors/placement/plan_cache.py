# SPDX-License-Identifier: GPL-2.0-only
"""Plans that are kept between runs, so that planning is paid once for each build of a server.

A plan depends on the files of the process, the definitions, the rules and prices of this host, and
on tlstax's own code. All of that is in its key: where something of it changes, there is no plan of
that key, and the next run plans again. Files are told apart by build-id, or where they have none by
inode, size and time; separate debug files, which name functions, by the folders that hold them.
Files that other hosts sent are theirs alone: no plan of a process of this host is made of them.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tlstax import cache_directory
from tlstax.collectors.binary.rooted_files import path_below
from tlstax.collectors.host.kept_file import keep_file, read_kept, turn
from tlstax.collectors.host.probe_costs.prices import HostCosts
from tlstax.collectors.placement.model import Limits, Plan
from tlstax.collectors.placement.plan_text import NoFitError, from_text, in_order, text_of, to_text
from tlstax.collectors.process.mappings import PROC, MappedObject
from tlstax.collectors.process.target import Target, may_read_memory
from tlstax.probes.model import Level

FOLDER: Final = "plans"
TURNS_FOLDER: Final = "plan-turns"
PLANS_MOST: Final = 64
WAIT_S: Final = 20.0
"""For the plan of another process: that takes some seconds, and longer on a busy host."""
_TURNS_HEX: Final = 2
"""Digits of a key that name its lock: 256 files that stay, as removing a lock file is a race."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_CODE: Final = (
    "collectors/binary", "collectors/host", "collectors/placement", "collectors/process", "probes",
)  # fmt: skip
_DECODERS: Final = ("iced_x86", "capstone")
_DEBUG: Final = Path("usr/lib/debug")


def key_of(
    target: Target,
    definitions: Sequence[bytes],
    level: Level,
    role: str,
    host_costs: HostCosts,
    limits: Limits,
) -> str:
    """What the plan of a process depends on, as one name. `definitions`: their files' contents."""
    digest = hashlib.sha256()
    of_files = (hashlib.sha256(content).hexdigest() for content in definitions)
    of_process = [level, role, host_costs, limits, target.proc == PROC, may_read_memory(target)]
    for part in (*_code(), *of_files, text_of(of_process)):
        digest.update(part.encode() + b"\0")
    for mapped in in_order(target.objects):
        digest.update("\0".join(_identity(target, mapped)).encode(errors="surrogateescape"))
    return digest.hexdigest()[:40]


def has_plans() -> bool:
    """Whether any plan may be kept."""
    return (cache_directory() / FOLDER).is_dir()


def kept_plan(key: str, target: Target) -> Plan | None:
    """The plan of that name, for this process; None if there is none that fits."""
    try:
        return from_text(read_kept(_path(key)).decode(), target.pid, target.objects)
    except (OSError, ValueError, NoFitError):
        return None


def planning_turn(key: str) -> AbstractContextManager[bool]:
    """Wait until no other process makes the plan of that name: afterwards it may be kept.

    The wait is bounded, and where there can be no lock it is none: whoever gets no turn plans, too.
    Hold it only while files of this host are read: other processes wait meanwhile. Two plans whose
    keys begin alike share a lock, and rarely wait for each other.
    """
    return turn(cache_directory() / TURNS_FOLDER / key[:_TURNS_HEX], WAIT_S)


def keep_plan(key: str, target: Target, plan: Plan) -> None:
    """Store a plan; if that fails, the next run plans again. The oldest of too many go."""
    try:
        text = to_text(plan, target.objects)
    except (NoFitError, ValueError):
        return
    if f"{target.proc}/{target.pid}/" in text:  # something of this process alone is in it
        return
    path = _path(key)
    with suppress(OSError):
        keep_file(path, text.encode())
        by_age = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-PLANS_MOST]:
            old.unlink()


def _path(key: str) -> Path:
    return cache_directory() / FOLDER / f"{key}.json"


def _code() -> Iterator[str]:
    """The files of tlstax that planning runs."""
    for room in _CODE:
        for path in sorted((_ROOT / room).rglob("*.py")):
            yield hashlib.sha256(path.read_bytes()).hexdigest()
    for package in _DECODERS:  # which instructions they know; importing them takes longer
        found = find_spec(package)
        yield _state(Path(found.origin)) if found and found.origin else ""


def _identity(target: Target, mapped: MappedObject) -> Iterator[str]:
    yield mapped.path
    yield f"{mapped.deleted} {mapped.unreachable}"
    yield ";".join(f"{each.file_offset} {each.end - each.start}" for each in mapped.segments)
    yield mapped.build_id or _state(Path(mapped.open_path))
    folder = Path(mapped.path).parent
    for root in {target.proc / str(target.pid) / "root", Path("/")}:
        inside = str(folder).lstrip("/")
        yield _state_below(root, f"{_DEBUG}/.build-id/{mapped.build_id[:2]}")
        for place in (inside, f"{inside}/.debug", f"{_DEBUG}/{inside}"):
            yield _state_below(root, place)


def _state_below(root: Path, place: str) -> str:
    with suppress(OSError):
        return _state(path_below(root, place))
    return ""


def _state(path: Path) -> str:
    """Inode, size and time of a file or folder; "" where there is none."""
    with suppress(OSError):
        found = path.stat()
        return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
    return ""
