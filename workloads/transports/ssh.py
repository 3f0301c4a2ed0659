# SPDX-License-Identifier: GPL-2.0-only
"""An SSH tunnel: a private sshd on the server's host, ssh with a forwarded port on the client's.

Both have keys and configuration of their own; those of the host and of its users are not read.
sshd runs as an unprivileged user, who may do nothing but forward to the server's port.

Options: `cipher` as OpenSSH calls it; ciphers without authentication use HMAC-SHA2-256. `session`:
whether a session runs besides the forwarding, as with `ssh -L`, or none, as with `ssh -N -L`. It
matters: only for a session does OpenSSH switch off Nagle's algorithm, and without one a connection
through the tunnel waits for delayed acknowledgements.
"""

import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import write_private
from tlstax.workloads.endpoint import Endpoint
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program
from tlstax.workloads.servers.server_directory import free_port
from tlstax.workloads.transports.linked import Linked
from tlstax.workloads.transports.model import Route, RouteProcess
from tlstax.workloads.transports.namespaces import scratch
from tlstax.workloads.transports.network import READY_PATIENCE_S, Link, not_ready
from tlstax.workloads.transports.processes import (
    LOOK_S,
    await_end,
    await_listening,
    version,
    written_bytes,
)

MAC: Final = "hmac-sha2-256"
# Not nobody: systemd tells every program that this account is locked, and sshd believes it.
USER: Final = "daemon"
AGREED: Final = re.compile(r"kex: server->client cipher: (\S+) MAC: (\S+)")
CARRIER: Final = re.compile(r"^User child is on pid (\d+)\n", re.MULTILINE)  # LogLevel VERBOSE
LOOPBACK: Final = "127.0.0.1"


class Ssh(Linked):
    """See above."""

    name = "ssh"
    programs = (
        ("ssh", "openssh-client"),
        ("sshd", "openssh-server"),
        ("setpriv", "util-linux"),
    )

    @contextmanager
    def through(self, link: Link, server: PrivateServer) -> Iterator[Route]:
        """sshd, then ssh, then the port that it listens on in the client's namespace."""
        directory = self._directory()
        port = free_port()
        user = pwd.getpwnam(USER)
        with self._sshd(directory, link, server.port, port, user) as sshd:
            await_listening(sshd, port, directory / "sshd.log")
            local = free_port()
            with self._ssh(directory, link, f"{local}:{LOOPBACK}:{server.port}", port) as ssh:
                await_listening(ssh, local, directory / "ssh.log")
                pids = ssh.pid, _await_carrier(sshd, directory / "sshd.log")
                processes = tuple(
                    RouteProcess(pid, name, "tunnel")
                    for pid, name in zip(pids, ("ssh", "sshd"), strict=True)
                )
                yield Route(
                    Endpoint(host=LOOPBACK, port=local, namespace=link.client),
                    processes,
                    written_bytes(pids[:1]),
                    link.round_trip.median_ns,
                    link.facts | self._facts(directory / "ssh.log"),
                )
            await_end(pids[1])  # it ends with the connection, and sshd must reap it

    # ---- parts ----

    def _directory(self) -> Path:
        """Where keys, configuration and logs are; sshd's user may pass through to its own."""
        directory = scratch(self.resources, "ssh")
        for path in (directory, self.resources.directory):
            path.chmod(0o711)
        return directory

    @contextmanager
    def _sshd(
        self, directory: Path, link: Link, target: int, port: int, user: pwd.struct_passwd
    ) -> Iterator["subprocess.Popen[bytes]"]:
        own = directory / "sshd"
        own.mkdir(mode=0o700)
        host_key, client_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        write_private(own / "host_key", _private_text(host_key))
        write_private(own / "authorized_keys", _public_text(client_key) + b"\n")
        write_private(directory / "client_key", _private_text(client_key))
        address = f"[{link.server_address}]:{port} ".encode()
        write_private(directory / "known_hosts", address + _public_text(host_key) + b"\n")
        write_private(own / "sshd_config", self._sshd_config(own, link, target, port).encode())
        for path in (own, *own.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
        become = [
            str(find_program("setpriv", "util-linux")),
            f"--reuid={user.pw_uid}",
            f"--regid={user.pw_gid}",
            "--clear-groups",
            "--pdeathsig=KILL",  # changing the user has cleared it
        ]
        # sshd insists on its full path, because it executes itself again for each connection.
        sshd = [str(find_program("sshd", "openssh-server")), "-D", "-e", "-f"]
        process = self.resources.start(
            [*become, *sshd, str(own / "sshd_config")],
            namespace=link.server,
            log=directory / "sshd.log",
        )
        try:
            yield process
        finally:
            self.resources.stop(process)

    def _sshd_config(self, own: Path, link: Link, target: int, port: int) -> str:
        return f"""\
ListenAddress {link.server_address}
Port {port}
HostKey {own}/host_key
AuthorizedKeysFile {own}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding local
PermitOpen {LOOPBACK}:{target}
X11Forwarding no
AllowAgentForwarding no
PermitTTY no
Subsystem sftp internal-sftp
ForceCommand internal-sftp
LogLevel VERBOSE
Ciphers {self._cipher}
MACs {MAC}
"""

    @contextmanager
    def _ssh(
        self, directory: Path, link: Link, forward: str, port: int
    ) -> Iterator["subprocess.Popen[bytes]"]:
        write_private(
            directory / "ssh_config",
            f"""\
Host *
IdentityFile {directory}/client_key
IdentitiesOnly yes
IdentityAgent none
UserKnownHostsFile {directory}/known_hosts
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
ExitOnForwardFailure yes
LogVerbose kex.c:*:*
Ciphers {self._cipher}
MACs {MAC}
""".encode(),
        )
        ssh = [str(find_program("ssh", "openssh-client")), "-F", str(directory / "ssh_config")]
        ssh += ["-L", f"{LOOPBACK}:{forward}", "-p", str(port)]
        # The session does nothing until its input ends; it needs no shell.
        there = f"{USER}@{link.server_address}"
        command = [*ssh, there, "-s", "sftp"] if self._has_session else [*ssh, "-N", there]
        process = self.resources.start(
            command,
            namespace=link.client,
            log=directory / "ssh.log",
            stdin=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            self.resources.stop(process)
            if process.stdin:
                process.stdin.close()

    @property
    def _has_session(self) -> bool:
        return bool(self.options.get("session", True))

    @property
    def _cipher(self) -> str:
        return self.option("cipher", "aes256-ctr")

    def _facts(self, log: Path) -> dict[str, str]:
        agreed = AGREED.search(log.read_text(errors="replace"))
        if agreed is None or agreed[1] != self._cipher:
            raise TlstaxError(
                "the SSH tunnel uses another cipher",
                f"ssh reported {agreed[0] if agreed else 'no cipher'}",
                "Look at ssh's own cipher list: `ssh -Q cipher`",
                ExitCode.FAILED,
            )
        mac = agreed[2]
        return {
            "cipher": self._cipher,
            "mac": "implicit in the cipher" if mac == "<implicit>" else mac,
            "session": "yes" if self._has_session else "no, with Nagle's algorithm",
            "ssh": version(str(find_program("ssh", "openssh-client")), "-V"),
        }


def _await_carrier(sshd: "subprocess.Popen[bytes]", log: Path) -> int:
    """The process of sshd's that carries the connection.

    sshd makes it when the user has proved who they are, after ssh has been told so and listens;
    until then other processes of sshd's hold the connection.
    """
    deadline = time.monotonic() + READY_PATIENCE_S
    while (found := CARRIER.search(log.read_text(errors="replace"))) is None:
        if sshd.poll() is not None or time.monotonic() > deadline:
            raise not_ready(sshd, log)
        time.sleep(LOOK_S)
    return int(found[1])


def _private_text(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def _public_text(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
