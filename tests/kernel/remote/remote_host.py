# SPDX-License-Identifier: GPL-2.0-only
"""Another host for tests of --ssh: an sshd of this host in its own network and mount namespaces.

Its user `dba` may become root only for the recorder, by the line of sudoers that
docs/agentless.md shows. Accounts, sudoers, /dev/shm and /run are those of the namespace.
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tlstax.tests.processes import name_of

USER, USER_ID, PORT = "dba", 54321, 4022
_ENTER: Final = """
set -e
mount --make-rprivate /
for name in passwd shadow group sudoers; do mount --bind "$1/$name" /etc/$name; done
mount -t tmpfs tmpfs /dev/shm; chmod 1777 /dev/shm
mount -t tmpfs tmpfs /run; mkdir -m 755 /run/sshd
ip link set lo up
exec /usr/sbin/sshd -D -e -f "$1/sshd_config"
"""
_SSHD: Final = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers {user}
"""
INSIDE: Final = "-inside"
"""Behind the name of a host: its sshd by way of itself as a jump host (ProxyJump)."""
_SSH: Final = """\
Host {name} {name}{inside}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking accept-new
  BatchMode yes
  LogLevel ERROR
Host {name}{inside}
  HostName 127.0.0.1
  Port {port}
  ProxyJump {name}
Host {name}
  ProxyCommand nsenter --net --target {pid} {python} {line} {port}
"""


class RemoteHost:
    """The host of that name of an ssh that is in `path`, to be put before PATH."""

    def __init__(self, folder: Path, recorder: Path, python: str, name: str = "box") -> None:
        self.folder = folder
        self.installed = folder / "installed/tlstax-recorder"
        folder.mkdir(mode=0o755)
        self._write_accounts(recorder)
        for file in ("host_key", "key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / file)]
            subprocess.run(command, check=True)
        (folder / "authorized_keys").write_bytes((folder / "key.pub").read_bytes())
        (folder / "authorized_keys").chmod(0o644)
        settings = {"folder": folder, "user": USER, "port": PORT}
        (folder / "sshd_config").write_text(_SSHD.format(**settings))
        self._log = (folder / "sshd.log").open("wb")
        self.sshd = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", _ENTER, "sh", folder],
            stderr=self._log,
            stdout=self._log,
        )
        line = Path(__file__).with_name("line.py")
        settings |= {"python": python, "line": line, "pid": self.sshd.pid, "name": name}
        self.ssh_config = folder / "ssh_config"
        self.ssh_config.write_text(_SSH.format(**settings, inside=INSIDE))
        self.path = ssh_of(folder / "bin", self.ssh_config)
        self._await_listening()

    def _write_accounts(self, recorder: Path) -> None:
        self.installed.parent.mkdir(mode=0o755)
        self.installed.write_bytes(recorder.read_bytes())
        self.installed.chmod(0o755)
        home = self.folder / "home"
        home.mkdir()
        os.chown(home, USER_ID, USER_ID)
        rows = {
            "passwd": f"{USER}:x:{USER_ID}:{USER_ID}::{home}:/bin/sh",
            "group": f"{USER}:x:{USER_ID}:",
            "shadow": f"{USER}:*:19000:0:99999:7:::",
        }
        for name, row in rows.items():
            path = self.folder / name
            path.write_text(f"{Path('/etc', name).read_text()}{row}\n")
            path.chmod(0o600 if name == "shadow" else 0o644)
        digest = hashlib.sha256(recorder.read_bytes()).hexdigest()
        command = "tlstax-*/tlstax-recorder --serve --remove-self"
        sudoers = self.folder / "sudoers"
        sudoers.write_text(
            "Defaults use_pty\nroot ALL=(ALL) ALL\n"
            f"{USER} ALL=(root) NOPASSWD: sha256:{digest} /dev/shm/{command}\n"
            f"{USER} ALL=(root) NOPASSWD: sha256:{digest} {home}/{command}\n"
            f"{USER} ALL=(root) NOPASSWD: {self.installed} --serve\n"
        )
        sudoers.chmod(0o440)

    def _await_listening(self) -> None:
        end = time.monotonic() + 10
        log = self.folder / "sshd.log"
        while "Server listening" not in log.read_text():
            assert self.sshd.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def hide(self, pids: Iterable[int]) -> None:
        """Leave these processes out of its /proc: they are those of other hosts."""
        for pid in pids:
            target = ["nsenter", "--mount", "--target", str(self.sshd.pid)]
            hidden = f"mkdir -p /run/hidden && mount --bind /run/hidden /proc/{pid:d}"
            subprocess.run([*target, "sh", "-c", hidden], check=True)

    def show(self, path: str, text: str) -> None:
        """Have this text there in a file of /proc, as another host would."""
        shown = self.folder / path.strip("/").replace("/", "-")
        shown.write_text(text)
        shown.chmod(0o644)
        target = ["nsenter", "--mount", "--target", str(self.sshd.pid)]
        subprocess.run([*target, "mount", "--bind", shown, path], check=True)

    def processes(self, name: str = "") -> list[int]:
        """Those in its mount namespace besides sshd itself, or those of that name."""
        own = os.stat(f"/proc/{self.sshd.pid}/ns/mnt").st_ino
        return [pid for pid in _pids() if pid != self.sshd.pid and _is(pid, own, name)]

    def files(self) -> list[str]:
        """What is in its memory-backed storage."""
        return sorted(
            path.name for path in Path(f"/proc/{self.sshd.pid}/root", "dev/shm").iterdir()
        )

    def await_nothing_left(self, seconds: float) -> float:
        """How long it takes until no process and no file of a session is there."""
        before_s = time.monotonic()
        while self.processes() or self.files():
            spent_s = time.monotonic() - before_s
            assert spent_s < seconds, ([name_of(pid) for pid in self.processes()], self.files())
            time.sleep(0.05)
        return time.monotonic() - before_s

    def close(self) -> None:
        """End sshd and what it started."""
        for pid in self.processes():
            subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
        self.sshd.kill()
        self.sshd.wait()
        self._log.close()


def ssh_of(folder: Path, config: Path) -> Path:
    """A folder with an ssh that reads this configuration."""
    folder.mkdir()
    wrapper = folder / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
    wrapper.chmod(0o755)
    return folder


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _is(pid: int, namespace: int, name: str) -> bool:
    try:
        if os.stat(f"/proc/{pid}/ns/mnt").st_ino != namespace:
            return False
        return not name or name_of(pid) == name
    except OSError:  # it has ended
        return False
