# SPDX-License-Identifier: GPL-2.0-only
"""What stands in a server's way: CPUs, quotas, locks, name servers, lists of certificates."""

import datetime
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tlstax import TlstaxError
from tlstax.certs.generate import Certificates, KeyKind, generate, write_private
from tlstax.tests.truth.causes.programs import HERE, ready, started
from tlstax.workloads.servers import configuration
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.transports.namespaces import ip

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
"""Of a CPU quota, the kernel's default."""


@contextmanager
def starved(pid: int, count: int) -> Iterator[None]:
    """The server on one CPU, which it shares with programs that never wait.

    All of them in the server's own session, so that the scheduler weighs them one by one.
    """
    cpu = min(os.sched_getaffinity(0))
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpu})
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(started(["sh", "-c", "while :; do :; done"]))
            os.sched_setaffinity(process.pid, {cpu})
        yield


@contextmanager
def locking(server: PrivateServer, held_s: float, free_s: float) -> Iterator[None]:
    """Another session that locks the table for writing again and again.

    It connects before the load begins, which may leave it no CPU time to do so. AssertionError if
    it ended: what was recorded has no lock in it.
    """
    over = threading.Event()
    failed: list[TlstaxError] = []

    def work(session: StatusSession) -> None:
        try:
            while not over.is_set():
                session.query(f"LOCK TABLES {configuration.DATABASE}.sbtest1 WRITE")
                over.wait(held_s)
                session.query("UNLOCK TABLES")
                over.wait(free_s)
        except TlstaxError as error:
            failed.append(error)

    with server.open_administrator() as session:
        thread = threading.Thread(target=work, args=(session,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not failed, f"the table was not locked: {failed[0]}"


@contextmanager
def limited(pid: int, cpus: float) -> Iterator[None]:
    """The process may use so many CPUs, by a control group of its own."""
    is_old = (CGROUPS / "cpu").is_dir()
    parent = CGROUPS / "cpu" if is_old else CGROUPS
    if not is_old:
        with (parent / "cgroup.subtree_control").open("w") as file:
            file.write("+cpu")
    group = parent / f"tlstax-cause-{os.getpid()}"
    group.mkdir()
    quota = group / ("cpu.cfs_quota_us" if is_old else "cpu.max")
    quota.write_text(str(round(cpus * PERIOD_US)))
    (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextmanager
def slow_names(namespace: str, delay_ms: float) -> Iterator[None]:
    """The host's name server as the namespace sees it, which answers late and knows nobody."""
    lines = Path("/etc/resolv.conf").read_text(encoding="ascii", errors="replace").splitlines()
    address = next(line.split()[1] for line in lines if line.startswith("nameserver "))
    if not address.startswith("127."):
        ip("addr", "add", f"{address}/32", "dev", "lo", namespace=namespace)
    with ready("resolver.py", address, delay_ms, namespace=namespace):
        yield


def write_revoked(path: Path, of: Certificates, count: int) -> None:
    """A list of `count` certificates that the CA has revoked; none of them is in use."""
    authority = x509.load_pem_x509_certificate(of.ca.read_bytes())
    key = serialization.load_pem_private_key(of.ca_key.read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateRevocationListBuilder(
        authority.subject, now - day, now + 30 * day,
        revoked_certificates=[
            x509.RevokedCertificateBuilder(1_000_000 + number, now - day).build()
            for number in range(count)
        ],
    )  # fmt: skip
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def write_expired(of: Certificates) -> None:
    """The server's certificate again, with the same key, valid until yesterday.

    The one that is valid stays beside it, in `valid.pem`.
    """
    write_private(of.directory / "valid.pem", of.server.read_bytes())
    authority = x509.load_pem_x509_certificate(of.ca.read_bytes())
    signer = serialization.load_pem_private_key(of.ca_key.read_bytes(), None)
    own = x509.load_pem_x509_certificate(of.server.read_bytes())
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    builder = x509.CertificateBuilder(
        authority.subject, own.subject, own.public_key(), x509.random_serial_number(),
        now - 30 * day, now - day, list(own.extensions),
    )  # fmt: skip
    signed = builder.sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    write_private(of.server, signed.public_bytes(serialization.Encoding.PEM), replace=True)


def write_chain(of: Certificates, count: int) -> None:
    """Certificates of others behind the server's own, as of a bundle that was copied too often."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt").read_bytes()
    end = b"-----END CERTIFICATE-----\n"
    others = [text + end for text in bundle.split(end)[:count]]
    write_private(of.server, of.server.read_bytes() + b"".join(others), replace=True)


def strangers_files(manner: str, directory: Path) -> tuple[Path, ...]:
    """What a stranger reads: the CA that it trusts, or a certificate of a CA of its own."""
    if manner == "trusting":
        return (directory / "ca.pem",)
    if manner != "unknown":
        return ()
    own = generate(directory / "of-stranger", KeyKind.parse("ec:p256"))
    return own.client, own.client_key


def long_locks(
    environment: tuple[tuple[str, str], ...], directory: Path
) -> tuple[tuple[str, str], ...]:
    """A server's environment, with long_locks.c preloaded if it is asked for."""
    if not any(name.startswith("LONG_") for name, _ in environment):
        return environment
    library = _compiled("long_locks", directory)
    return (*environment, ("LD_PRELOAD", str(library)))


def write_login(directory: Path) -> tuple[str, ...]:
    """The plug-in directory_login.c, and the lines of the option file that load it."""
    library = _compiled("directory_login", directory)
    return f"plugin_dir = {library.parent}", f"plugin_load_add = {library.stem}"


def _compiled(name: str, directory: Path) -> Path:
    library = directory / f"{name}.so"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(library), str(HERE / f"{name}.c")], check=True)
    library.chmod(0o755)
    return library
