# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment makes on the host, written down before it is made, so that it can be removed.

tlstax-bench-XXXXXXXX/     0700, in the directory for temporary files; scratch for configuration
  resources.jsonl          one line for each thing: {"kind", "name", ...}, appended and synced
                           before the thing is made; {"released": kind, "name"} once it is gone

Processes are started with a parent-death signal: the kernel kills them when tlstax ends, however
it ends. Namespaces (with the interfaces in them), interfaces, mounts and cgroups outlive tlstax;
`tlstax lab clean` removes those of directories whose owner is gone, in the reverse order.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Literal, Self

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers import supervisor
from tlstax.workloads.servers.server_directory import process_start_ticks

Kind = Literal["process", "namespace", "interface", "mount", "cgroup", "loop", "directory"]
PREFIX: Final = "tlstax-bench-"
STOP_PATIENCE_S: Final = 5.0
# How each kind is removed; {} is its name. Processes and directories are removed in Python.
REMOVE: Final[Mapping[str, tuple[str, ...]]] = {
    "namespace": ("ip", "netns", "delete", "{}"),
    "interface": ("ip", "link", "delete", "{}"),
    "mount": ("umount", "--lazy", "{}"),
    "loop": ("losetup", "--detach", "{}"),
}
EXISTS: Final[Mapping[str, str]] = {
    "namespace": "/run/netns/{}",
    "interface": "/sys/class/net/{}",
    "cgroup": "{}",
    "directory": "{}",
}


@dataclass(frozen=True)
class Resource:
    """One thing that was made, or was about to be."""

    kind: Kind
    name: str  # of a process: its pid
    start_ticks: int | None = None  # of a process

    def exists(self) -> bool:
        """Whether it is still there."""
        if self.kind == "process":
            return process_start_ticks(int(self.name)) == self.start_ticks is not None
        if self.kind == "mount":
            return _is_mounted(self.name)
        if self.kind == "loop":
            return Path(f"/sys/block/{Path(self.name).name}/loop/backing_file").exists()
        return Path(EXISTS[self.kind].format(self.name)).exists()

    def remove(self) -> None:
        """Remove it; TlstaxError (IO) if that fails."""
        if not self.exists():
            return
        if self.kind == "process":
            _end_process(int(self.name), self.start_ticks)
        elif self.kind == "namespace":
            self._remove_namespace()
        elif self.kind == "cgroup":
            Path(self.name).rmdir()
        elif self.kind == "directory" and Path(self.name).is_dir():
            shutil.rmtree(self.name, ignore_errors=True)
        elif self.kind == "directory":  # a single file outside of ours, such as a control socket
            Path(self.name).unlink(missing_ok=True)
        else:
            command = [part.format(self.name) for part in REMOVE[self.kind]]
            subprocess.run(command, capture_output=True, check=False)
        if self.exists():
            raise TlstaxError(
                f"cannot remove the {self.kind} {self.name}",
                "it is still there afterwards",
                "Remove it by hand",
                ExitCode.IO,
            )

    def _remove_namespace(self) -> None:
        """With what still runs in it: children that a tunnel left keep its interfaces alive."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False
        )
        for pid in map(int, listed.stdout.split()):
            _end_process(pid, process_start_ticks(pid))
        command = [part.format(self.name) for part in REMOVE[self.kind]]
        subprocess.run(command, capture_output=True, check=False)


class Resources:
    """The things of one experiment; a context manager whose end removes them all."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    @property
    def directory(self) -> Path:
        """Made on first use, so that an experiment without resources can leave nothing behind.

        TlstaxError (IO) if there can be none.
        """
        if self._directory is None:
            try:
                self._directory = Path(tempfile.mkdtemp(prefix=PREFIX))
                self.register("process", str(os.getpid()))
            except OSError as error:
                raise TlstaxError(
                    f"cannot make a directory in {tempfile.gettempdir()}",
                    str(error.strerror or error),
                    "Set TMPDIR to a directory that you may write to",
                    ExitCode.IO,
                ) from error
        return self._directory

    @property
    def tag(self) -> str:
        """Eight characters that no other experiment has, for names of interfaces (15 at most)."""
        return self.directory.name.removeprefix(PREFIX)

    def register(self, kind: Kind, name: str) -> str:
        """Write down what is about to be made (of a process: what has just been); its name."""
        fact: dict[str, object] = {"kind": kind, "name": name}
        if kind == "process":
            fact["start_ticks"] = process_start_ticks(int(name))
        self._append(fact)
        return name

    def release(self, kind: Kind, name: str) -> None:
        """Remove it, and write down that it is gone. Nothing happens if it was never made."""
        for resource in self.listed():
            if (resource.kind, resource.name) == (kind, name):
                resource.remove()
        self._append({"released": kind, "name": name})

    def start(
        self,
        command: Sequence[str],
        *,
        namespace: str | None = None,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> "subprocess.Popen[bytes]":
        """Start a process that ends with tlstax; its output goes to `log`. It must not fork away.

        End it with `stop`. TlstaxError (HOST) if its program is missing.
        """
        prefix = ["ip", "netns", "exec", namespace] if namespace else []
        log = log or self.directory / f"{Path(command[0]).name}.log"
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [*prefix, *command],
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    cwd=self.directory,
                    env={"PATH": os.defpath + ":/usr/sbin:/sbin", "LC_ALL": "C"}
                    | dict(environment or {}),
                    start_new_session=True,
                    preexec_fn=supervisor.die_with_parent,
                )
        except FileNotFoundError as error:
            raise TlstaxError(
                f"cannot start {command[0]}",
                "it is not installed",
                "Install it; `tlstax lab show` says what a recipe needs",
                ExitCode.HOST,
            ) from error
        self.register("process", str(process.pid))
        return process

    def stop(self, process: "subprocess.Popen[bytes]") -> None:
        """End a process that `start` started, and its session; safe to repeat."""
        supervisor.stop(process, STOP_PATIENCE_S)
        self.release("process", str(process.pid))

    def listed(self) -> list[Resource]:
        """What may still be there, in the order it was made; the owner is not part of it."""
        return _read(self._directory)[1] if self._directory else []

    def close(self) -> None:
        """Remove everything, in the reverse order."""
        for resource in reversed(self.listed()):
            resource.remove()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, fact: Mapping[str, object]) -> None:
        with (self.directory / "resources.jsonl").open("a", encoding="utf-8") as file:
            _write_synced(file, json.dumps(fact) + "\n")


def clean() -> tuple[list[str], list[Path]]:
    """Remove what experiments left whose tlstax is gone: (what was removed, what is in use)."""
    removed: list[str] = []
    in_use: list[Path] = []
    for directory in left_over():
        owner, resources = _read(directory)
        if owner is not None and owner.exists():
            in_use.append(directory)
            continue
        for resource in reversed(resources):
            if resource.exists():
                resource.remove()
                removed.append(f"{resource.kind} {resource.name}")
        shutil.rmtree(directory, ignore_errors=True)
        removed.append(str(directory))
    return removed, in_use


def left_over() -> Iterator[Path]:
    """Directories of this user's experiments, running or not."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with suppress(OSError):
            status = path.lstat()
            if path.is_dir() and not path.is_symlink() and status.st_uid == os.geteuid():
                yield path


def _read(directory: Path) -> tuple[Resource | None, list[Resource]]:
    """(the owner, what it made and did not release); a line that was cut off counts as none."""
    owner: Resource | None = None
    found: dict[tuple[str, str], Resource] = {}
    try:
        lines = (directory / "resources.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None, []
    for line in lines:
        try:
            fact = json.loads(line)
        except ValueError:
            continue
        if "released" in fact:
            found.pop((fact["released"], fact["name"]), None)
            continue
        resource = Resource(fact["kind"], fact["name"], fact.get("start_ticks"))
        if owner is None:
            owner = resource
        else:
            found[(resource.kind, resource.name)] = resource
    return owner, list(found.values())


def _write_synced(file: IO[str], text: str) -> None:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _is_mounted(path: str) -> bool:
    text = Path("/proc/self/mounts").read_text(encoding="utf-8")
    return any(line.split()[1] == path for line in text.splitlines())


def _end_process(pid: int, start_ticks: int | None) -> None:
    """End a process and its session, which we may not be the parent of; wait until it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_PATIENCE_S
    while process_start_ticks(pid) == start_ticks is not None and time.monotonic() < deadline:
        time.sleep(0.02)
