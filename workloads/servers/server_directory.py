# SPDX-License-Identifier: GPL-2.0-only
"""Where a private server lives: its directory, its port, the user it runs as, what is left over.

tlstax-lab-XXXXXXXX/      0710, ours; the server's group may pass through
  state.json              0600, ours: which processes belong to it
  certificates/           0700, ours: the CA, and the keys and certificates that it signed
  client/                 0700, ours: option files with passwords, client key and certificate
  server/                 0700, the server user's: data, socket, option file, key, log

It lies in the directory for temporary files; that of a server which is started by chroot, in the
tmp/ of its root.
"""

import json
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.servers.cache import server_cache

PREFIX = "tlstax-lab-"
SOCKET_PATH_BYTES_MAX = 107  # sun_path without its final zero byte (unix(7))
PORT_MIN = 10000
PORT_TRIES = 200
KILL_PATIENCE_S = 5.0
PF_EXITING = 0x4  # include/linux/sched.h


@dataclass(frozen=True)
class ServerUser:
    """The unprivileged account that the server runs as; uid and gid are None if we are it."""

    name: str
    uid: int | None
    gid: int | None

    @classmethod
    def choose(cls) -> "ServerUser":
        """`mysql` where it exists, else `nobody`; ourselves if we are not root."""
        if os.geteuid() != 0:
            return cls(cls.us(), None, None)
        for name in ("mysql", "nobody"):
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(name, entry.pw_uid, entry.pw_gid)
        raise TlstaxError(
            "cannot start a private server",
            "this host has neither a user 'mysql' nor a user 'nobody'",
            "Run tlstax as an unprivileged user, or install mariadb-server",
            ExitCode.HOST,
        )

    @staticmethod
    def us() -> str:
        """The operating system's name for who runs tlstax."""
        return pwd.getpwuid(os.geteuid()).pw_name

    def own(self, path: Path) -> None:
        """Give `path` to this user."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


@dataclass(frozen=True)
class ServerDirectory:
    """The paths of one private server."""

    root: Path

    @classmethod
    def create(cls, user: ServerUser, parent: Path | None = None) -> "ServerDirectory":
        """Make the directories with their modes; TlstaxError (IO) if that fails.

        `parent` is another directory than that for temporary files.
        """
        folder = str(parent or tempfile.gettempdir())
        setting = "XDG_CACHE_HOME" if parent else "TMPDIR"
        try:
            made = cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder)))
            made.write_state({"owner": os.getpid()})
            made.client.mkdir(mode=0o700)
            made.server.mkdir(mode=0o700)
            user.own(made.server)
            if user.gid is not None:
                os.chown(made.root, -1, user.gid)
                made.root.chmod(0o710)
        except OSError as error:
            raise TlstaxError(
                f"cannot make a directory in {folder}",
                str(error.strerror or error),
                f"Set {setting} to a directory that you may write to and that has 300 MB left",
                ExitCode.IO,
            ) from error
        if len(os.fsencode(made.socket)) > SOCKET_PATH_BYTES_MAX:
            shutil.rmtree(made.root, ignore_errors=True)
            raise TlstaxError(
                f"cannot put a server below {folder}",
                f"the path of its socket would exceed {SOCKET_PATH_BYTES_MAX} bytes",
                f"Set {setting} to a directory with a shorter name",
                ExitCode.IO,
            )
        return made

    @property
    def client(self) -> Path:
        """What clients read; also their working directory."""
        return self.root / "client"

    @property
    def certificates(self) -> Path:
        """Where the CA and its key are made; only copies of what is needed leave it."""
        return self.root / "certificates"

    @property
    def server(self) -> Path:
        """What the server owns."""
        return self.root / "server"

    @property
    def socket(self) -> Path:
        """The server's Unix socket."""
        return self.server / "mariadb.sock"

    @property
    def log(self) -> Path:
        """The server's error log; what installation says goes there too."""
        return self.server / "error.log"

    @property
    def state(self) -> Path:
        """Which processes belong to this directory."""
        return self.root / "state.json"

    def write_state(self, pids: dict[str, int]) -> None:
        """Record who belongs here as role -> pid, each with its start time (pids are reused)."""
        facts = {
            role: {"pid": pid, "start_ticks": process_start_ticks(pid)}
            for role, pid in pids.items()
        }
        temporary = self.root / "state.new"
        write_private(temporary, json.dumps(facts).encode(), replace=True)
        temporary.replace(self.state)

    def living(self) -> dict[str, int]:
        """Map role to pid of those recorded processes that still run."""
        try:
            facts = json.loads(self.state.read_bytes())
            recorded = {role: (fact["pid"], fact["start_ticks"]) for role, fact in facts.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # never written, or only in part: nothing was started yet
        return {
            role: pid
            for role, (pid, start_ticks) in recorded.items()
            if start_ticks is not None and process_start_ticks(pid) == start_ticks
        }


def process_start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (proc(5) stat, field 22), or None."""
    fields = _stat_from_state(pid)
    return int(fields[19]) if fields else None


def is_running(pid: int, start_ticks: int | None) -> bool:
    """Whether that process runs; not so once it has begun to end.

    A process that is killed closes its sockets on its way out: its clients know of its end before
    its entry in /proc is gone. The kernel's flag PF_EXITING (proc(5) stat, field 9) is set by then.
    """
    fields = _stat_from_state(pid)
    return bool(fields) and int(fields[19]) == start_ticks and not int(fields[6]) & PF_EXITING


def _stat_from_state(pid: int) -> list[str]:
    """The fields of proc(5) stat from the third on; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    # The name in parentheses may hold spaces and parentheses itself.
    return text.rpartition(")")[2].split()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on.

    It lies outside of the range from which the kernel takes ports for outgoing connections: a
    storm of them cannot take it between this look and the server's bind.
    """
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    candidates: list[int] = [*range(PORT_MIN, low), *range(high + 1, 65536)]
    for port in random.sample(candidates, min(PORT_TRIES, len(candidates))):
        if is_free(port):
            return port
    raise TlstaxError(
        "found no free TCP port",
        f"{PORT_TRIES} ports of 127.0.0.1 outside of {low}..{high} were tried and are in use",
        "Give one with --port",
        ExitCode.HOST,
    )


def is_free(port: int) -> bool:
    """True if a server could listen on 127.0.0.1:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def server_directories() -> Iterator[ServerDirectory]:
    """Every lab directory of this user, running or left over.

    Only directories that we own count: anybody can make one with this name, and its state file
    would tell us whom to kill.
    """
    in_roots = server_cache().glob(f"*/tmp/{PREFIX}*")
    for path in sorted([*Path(tempfile.gettempdir()).glob(f"{PREFIX}*"), *in_roots]):
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                yield ServerDirectory(path)


def clean() -> tuple[list[Path], list[Path]]:
    """Remove what crashed runs left: directories whose owner is gone, and their processes.

    Returns (removed, still in use by a living tlstax); TlstaxError (IO) if one cannot be removed.
    """
    removed, in_use = [], []
    for made in server_directories():
        living = made.living()
        if "owner" in living:
            in_use.append(made.root)
            continue
        for role in ("supervisor", "server"):
            if role in living:
                _kill(living[role])
        try:
            if not _remove(made.root):
                continue
        except OSError as error:
            raise TlstaxError(
                f"cannot remove {made.root}",
                f"{error.filename}: {error.strerror}",
                "Remove it by hand",
                ExitCode.IO,
            ) from error
        removed.append(made.root)
    return removed, in_use


def _remove(root: Path) -> bool:
    """Remove a directory that its own supervisor may be removing, too; whether it was still there.

    Raises OSError.
    """
    deadline = time.monotonic() + KILL_PATIENCE_S
    while True:
        try:
            shutil.rmtree(root)
        except FileNotFoundError:
            if not root.exists():  # its supervisor has removed it
                return False
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return True


def _kill(pid: int) -> None:
    """End a process that we may not be the parent of, and wait until it is gone."""
    start_ticks = process_start_ticks(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + KILL_PATIENCE_S
    while process_start_ticks(pid) == start_ticks is not None and time.monotonic() < deadline:
        time.sleep(0.02)
