# SPDX-License-Identifier: GPL-2.0-only
"""The OpenSSL of another server, for one that loads it: the same program, another version.

Within OpenSSL 3 the interface keeps, so a server that was linked with one version runs with the
files of another, found by LD_LIBRARY_PATH. They must not need a C library that is newer than the
server's: a server of Debian trixie takes the files of Debian 12 and, so far, of sid.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers import installing
from tlstax.workloads.servers.catalogue import find_kind

HOST = "host"
"""The name of this host's own OpenSSL."""
FILES = ("libssl.so.3", "libcrypto.so.3")
Say = Callable[[str], None]


def files_of(name: str, say: Say = lambda line: None) -> tuple[Path, ...]:
    """Where this host (HOST) or a server of the catalogue has its OpenSSL; it is installed first.

    Raises TlstaxError (HOST) where there is no shared OpenSSL 3.
    """
    find = _finder(name, say)
    found = []
    for file in FILES:
        path = find(file)
        if path is None:
            raise TlstaxError(
                f"cannot take the OpenSSL of '{name}'",
                f"it has no {file}",
                "Name a server with a shared OpenSSL 3: `tlstax lab servers list`",
                ExitCode.HOST,
            )
        found.append(path)
    return tuple(found)


def _finder(name: str, say: Say) -> Callable[[str], Path | None]:
    if name != HOST:
        kind = find_kind(name)
        installing.install(kind, say)
        below = installing.place_of(kind)
        return lambda file: next(iter(sorted(below.glob(f"usr/lib/*/{file}"))), None)
    command = ["ldconfig", "-p"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""  # a host without it has no libraries that a server could be told of
    lines = said.splitlines()
    known = {line.split()[0]: Path(line.split()[-1]) for line in reversed(lines) if "=>" in line}
    return known.get


def copy_to(directory: Path, files: tuple[Path, ...]) -> None:
    """Copies that any user may read: a server cannot see the files of another one's root."""
    directory.mkdir(mode=0o755)
    for path in files:
        target = directory / path.name
        shutil.copyfile(path, target)
        target.chmod(0o644)
