# SPDX-License-Identifier: GPL-2.0-only
"""Record on arm64: boot Debian's arm64 kernels in QEMU and measure them over ssh from this host.

    python tests/kernels/arm64.py [--kernel bookworm|trixie]... [--connections COUNT]

The guest runs an sshd and a MariaDB; planning, captures and reports are made here, as for any other
host (docs/agentless.md). A storm of new TLS connections is recorded: each handshake must be in the
capture, as a success. Then a program whose stacks are hard to walk: each frame must be the one that
is written there. An emulated CPU keeps no time limits, so times are not compared.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.kernels import guest

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tlstax-arm64"
TLSTAX: Final = [sys.executable, "-m", "tlstax"]
SSHD_PORT, SERVER_PORT = 22, 3306
STACKS: Final = REPOSITORY / "tests/testprogs/bin/arm64/stacks"
STACKS_THERE: Final = "/tmp/stacks"
SPIN_MS: Final = 20_000
_HELD: Final = ["st_hold", "st_spin"]
_BEGUN: Final = ["thread", "st_run", "st_each"]
KINDS: Final = {
    "recursion": [*_BEGUN, *["st_recursive"] * 100, *_HELD],
    "tail": [*_BEGUN, "st_tail", "st_tail_end", *_HELD],
    "alloca": [*_BEGUN, "st_alloca", *_HELD],
    "signal": [*_BEGUN, "st_signal", "handler", *_HELD],
    "counter": [*_BEGUN, "st_counter", *_HELD],
}
"""The calls of each kind, outermost first. What raises a signal is libc's."""
BOOT_S, LINE_S, RECORD_S = 900.0, 600.0, 60
# What the guest does until the folder that it shares has a file `over`.
SERVE: Final = """
set -e
shared=/run/guest/shared
mkdir -p /run/sshd
chmod 1777 /tmp
install -m 600 $shared/host_key /run/host_key
install -m 600 $shared/client_key.pub /run/authorized_keys
$(command -v sshd) -f $shared/sshd_config -h /run/host_key
if [ -d $shared/data ]; then
    cp -a $shared/data $shared/*.pem $shared/init.sql /tmp
    chown -R mysql /tmp/data /tmp/*.pem /tmp/init.sql
    mariadbd --no-defaults --datadir=/tmp/data --socket=/tmp/mysql.sock --user=mysql --port=3306 \\
        --ssl-key=/tmp/server-key.pem --ssl-cert=/tmp/server-cert.pem --skip-name-resolve \\
        --connect-timeout=600 --init-file=/tmp/init.sql --innodb-buffer-pool-size=32M \\
        --innodb-log-file-size=8M > /run/guest/shared/mariadb.log 2>&1 &
fi
touch $shared/ready
while [ ! -e $shared/over ]; do sleep 1; done
"""
USERS: Final = "CREATE USER sb@'%' IDENTIFIED BY 'sb' REQUIRE SSL;\n"
SSHD: Final = """
Port 22
AuthorizedKeysFile /run/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
"""


class FailedError(Exception):
    """What is not as it must be."""


def require(condition: bool, what: str) -> None:
    """Raise FailedError, unless."""
    print(f"{'ok' if condition else 'FAILED'}: {what}", flush=True)
    if not condition:
        raise FailedError(what)


class Guest:
    """A running guest and how to reach it."""

    def __init__(self, shared: Path, ssh: Path, sshd_port: int, server_port: int) -> None:
        self.shared, self.server_port = shared, server_port
        self.name = f"ssh://root@127.0.0.1:{sshd_port}"
        self._environment = {**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}"}

    def run(self, command: str, timeout_s: float = LINE_S) -> str:
        """The output of a command in the guest."""
        line = ["ssh", self.name, command]
        return subprocess.run(
            line, env=self._environment, check=True, capture_output=True, text=True,
            timeout=timeout_s,
        ).stdout  # fmt: skip

    def start(self, command: str) -> "subprocess.Popen[str]":
        """A command in the guest, with its input and output."""
        line, pipe = ["ssh", self.name, command], subprocess.PIPE
        environment = self._environment
        return subprocess.Popen(line, env=environment, stdin=pipe, stdout=pipe, text=True)

    def tlstax(self, *words: str) -> "subprocess.Popen[str]":
        """Tlstax on this host, about the guest."""
        line = [*TLSTAX, *words, "--ssh", self.name]
        pipe = subprocess.PIPE
        return subprocess.Popen(line, env=self._environment, stderr=pipe, text=True)


@contextmanager
def running(suite: str) -> Iterator[Guest]:
    """A guest with sshd and MariaDB."""
    ports = [free_port(), free_port()]
    with tempfile.TemporaryDirectory(prefix="tlstax-arm64-") as name:
        keys = Path(name)
        ssh = keys / "bin/ssh"
        prepare(keys, ssh)
        command = ["bash", "/run/guest/shared/serve"]
        forwarded = dict(zip(ports, (SSHD_PORT, SERVER_PORT), strict=True))
        with guest.booted(
            CACHE, suite, REPOSITORY, command, root=CACHE / "root", ports=forwarded,
            shared=keys / "shared",
        ) as (qemu, control):  # fmt: skip
            there = Guest(control / "shared", ssh, *ports)
            deadline_s = time.monotonic() + BOOT_S
            while not (there.shared / "ready").exists():
                ended = qemu.poll() is not None or time.monotonic() > deadline_s
                if ended or (control / "status").exists():
                    texts = [control / "output", control / "console"]
                    said = "".join(one.read_text()[-2000:] for one in texts if one.exists())
                    raise FailedError(f"the guest did not come up: {said}")
                time.sleep(1)
            yield there
            (there.shared / "over").touch()


def free_port() -> int:
    """A TCP port of this host that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def prepare(folder: Path, ssh: Path) -> None:
    """Keys, an ssh that uses them, and the data directory of a new server: made on this host."""
    shared = folder / "shared"
    shared.mkdir()
    for key in (folder / "client_key", shared / "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(command, check=True)
    shutil.copy(folder / "client_key.pub", shared)
    (shared / "serve").write_text(SERVE)
    (shared / "sshd_config").write_text(SSHD)
    ssh.parent.mkdir()
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    (shared / "init.sql").write_text(USERS)
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -i {folder}/client_key {options} "$@"\n')
    ssh.chmod(0o755)
    subject = ["-subj", "/CN=arm64", "-days", "9", "-nodes", "-newkey", "rsa:2048", "-x509"]
    pair = ["-keyout", str(shared / "server-key.pem"), "-out", str(shared / "server-cert.pem")]
    subprocess.run(["openssl", "req", *subject, *pair], check=True, capture_output=True)
    install = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
    install += ["--innodb-log-file-size=8M"]
    install += ["--skip-test-db", "--user=root", f"--datadir={shared / 'data'}"]
    subprocess.run(install, check=True, capture_output=True)


# ---- what is tested ----


def storm(there: Guest, folder: Path, connections: int) -> None:
    """Each of some new TLS connections is a handshake record of the capture."""
    server, capture = there.run("pidof mariadbd").strip(), folder / "storm.tlstax"
    words = ("--level", "record", "--budget", "none", "--for", f"{RECORD_S}s", "-o", str(capture))
    recording = there.tlstax("attach", server, *words)
    await_attached(recording)
    client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{there.server_port}", "-usb", "-psb"]
    for _ in range(connections):
        subprocess.run([*client, "--ssl", "-e", "select 1"], check=True, capture_output=True)
    said = recording.communicate(timeout=LINE_S)[1]
    require(recording.returncode == 0, f"attach ended well ({said.strip()})")
    with CaptureReader.open(capture) as reader:
        found = [(one.outcome, one.tls_version) for one in reader.rows(schema.Handshake)]
    print(found)
    successes = [one for one in found if one[0] == "success"]
    require(len(successes) == connections, f"{len(successes)} of {connections} handshakes")
    require({version for _, version in successes} == {"TLSv1.3"}, "their TLS version is known")


def stacks(there: Guest, folder: Path) -> None:
    """Every sampled stack of tests/testprogs/stacks.c has the frames of one of its kinds."""
    shutil.copy(STACKS, there.shared / "stacks")
    there.run(f"install -m 755 /run/guest/shared/stacks {STACKS_THERE}")
    program = there.start(f"{STACKS_THERE} each {SPIN_MS}")
    assert program.stdin is not None
    assert program.stdout is not None
    require(program.stdout.readline() == "ready\n", "the program of stacks runs")
    pid, capture = there.run(f"pidof {STACKS_THERE}").strip(), folder / "stacks.tlstax"
    words = ("--level", "record", "--budget", "none", "--for", "600s", "-o", str(capture))
    recording = there.tlstax("attach", pid, *words)
    await_attached(recording)
    program.stdin.write("g")
    program.stdin.flush()
    require(program.stdout.readline() == "done\n", "it has done its work")
    program.communicate("g", timeout=LINE_S)
    said = recording.communicate(timeout=LINE_S)[1]
    require(
        recording.returncode != 0, f"attach says that the process ended ({said[-300:].strip()})"
    )
    command = [*TLSTAX, "flamegraph", str(capture), "--format", "folded", "-o", "-"]
    folded = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, int] = {}
    for line in folded.splitlines():
        path, _, _ = line.rpartition(" ")
        names = path.partition(";[interrupt]")[0].split(";")
        if names[-1] == "st_spin":
            kind = next((one for one in KINDS if is_of_kind(names, KINDS[one])), "")
            if not kind:
                raise FailedError(f"frames of {path}")
            found[kind] = found.get(kind, 0) + 1
    require(found.keys() == KINDS.keys(), f"stacks of all kinds: {sorted(found)}")


def is_of_kind(names: list[str], kind: list[str]) -> bool:
    """Whether a stack, outermost function first, is phase, start of a thread, and these calls."""
    first = names.index("thread") if "thread" in names else 0
    calls = names[first:]
    if kind == KINDS["signal"]:
        return calls[: len(kind) - 3] == kind[:-3] and calls[-3:] == kind[-3:]
    return 1 <= first <= 3 and calls == kind


def await_attached(recording: "subprocess.Popen[str]") -> None:
    """Return once the probes are there."""
    assert recording.stderr is not None
    for line in recording.stderr:
        print(line, end="", flush=True)
        if "attached to" in line:
            return


def main() -> int:
    """Run it on every chosen kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", choices=("bookworm", "trixie"))
    parser.add_argument("--connections", type=int, default=10)
    options = parser.parse_args()
    suites = [f"{name}-arm64" for name in options.kernel or ("trixie",)]
    subprocess.run([Path(__file__).with_name("fetch"), CACHE, *suites], check=True)
    for suite in suites:
        with running(suite) as there, tempfile.TemporaryDirectory() as folder:
            print(suite, there.run("uname -rm").strip(), flush=True)
            storm(there, Path(folder), options.connections)
            stacks(there, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
