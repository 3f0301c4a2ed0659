# SPDX-License-Identifier: GPL-2.0-only
"""The programs of this host that experiments run: where they are, and how to get a missing one."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError

# Debian keeps servers in /usr/sbin, which is not on every user's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])


@dataclass(frozen=True)
class Binaries:
    """The programs that a private server needs."""

    server: Path
    install: Path
    client: Path

    @classmethod
    def find(cls, search_path: str = SEARCH_PATH) -> "Binaries":
        """Look them up; TlstaxError (HOST) names the missing one and its Debian package."""
        return cls(
            server=find_program("mariadbd", "mariadb-server-core", search_path),
            install=find_program("mariadb-install-db", "mariadb-server-core", search_path),
            client=find_program("mariadb", "mariadb-client-core", search_path),
        )


def find_program(name: str, package: str, search_path: str = SEARCH_PATH) -> Path:
    """The path of a program; TlstaxError (HOST) names the Debian package of a missing one."""
    found = shutil.which(name, path=search_path)
    if found is None:
        raise TlstaxError(
            f"cannot find {name}",
            "it is not installed, or not on the PATH",
            f"On Debian: apt-get install {package}",
            ExitCode.HOST,
        )
    return Path(found)
