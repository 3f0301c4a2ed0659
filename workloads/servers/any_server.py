# SPDX-License-Identifier: GPL-2.0-only
"""Any server program of the MySQL family that is on this host: what it is, how it is started.

It is asked for its version and searched for names that only servers define, and those around it
are looked for: its messages, its libraries, the script that makes a data directory.
"""

import mmap
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers.catalogue import Start

ANSWER_PATIENCE_S = 20.0
SERVER_NAME = b"_Z16dispatch_command"  # every server exports it for its plugins; no client has it
YASSL_NAME = b"\0yaSSL_accept\0"
PROGRAM_DIRECTORIES = ("bin", "sbin", "libexec")
SCRIPT_DIRECTORIES = ("bin", "scripts", "sbin", ".")
SCRIPT_NAMES = ("mariadb-install-db", "mysql_install_db")
LIBRARY_DIRECTORIES = ("lib", "lib/private", "libs", ".")
MESSAGE_DIRECTORIES = ("share", "share/mysql", "share/mariadb", "share/percona-server")
MESSAGE_FILE = "english/errmsg.sys"
INITIALIZE_SINCE, CREATE_USER_REQUIRES_SINCE = (5, 7, 6), (5, 7, 6)


@dataclass(frozen=True)
class Found:
    """A server program."""

    path: Path
    family: str  # mysql | mariadb
    version: str  # as it says it, such as '8.0.36-28' or '10.11.5-MariaDB'
    home: Path  # what its package calls basedir
    messages: Path | None  # the directory of its error messages
    start: Start


def examine(path: Path) -> Found:
    """What the program at `path` is; TlstaxError (TARGET) where it is no server."""
    path = path.resolve()
    contents = _names(path)
    if not contents.has_server:
        raise _refuse(path, "it defines no dispatch_command, so it is no server of this family")
    home = path.parent.parent if path.parent.name in PROGRAM_DIRECTORIES else path.parent
    library_path, text = _ask(path, home)
    said = re.search(r" Ver (\d+)\.(\d+)\.(\d+)(\S*)", text)
    if said is None:
        first = (text.strip().splitlines() or ["nothing"])[0]
        raise _refuse(path, f"asked for its version it said: {first[:200]}")
    numbers = (int(said[1]), int(said[2]), int(said[3]))
    family = "mariadb" if "MariaDB" in text else "mysql"
    start = Start(
        program=str(path),
        data=_data_maker(path, home, family, numbers),
        library_path=library_path,
        options=("loose_mysqlx = OFF", "skip_log_bin"),
        yassl=contents.has_yassl,
        grant_requires=numbers < CREATE_USER_REQUIRES_SINCE,
    )
    return Found(path, family, "".join(said[0].split()[1:]), home, _messages(home), start)


@dataclass(frozen=True)
class _Names:
    has_server: bool
    has_yassl: bool


def _names(path: Path) -> _Names:
    """Which of the names that matter are in the program's symbol tables."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                raise _refuse(path, "it is no ELF program (a script that starts one?)")
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                return _Names(content.find(SERVER_NAME) >= 0, content.find(YASSL_NAME) >= 0)
    except OSError as error:
        raise _refuse(path, str(error.strerror or error)) from error


def _ask(path: Path, home: Path) -> tuple[str, str]:
    """(LD_LIBRARY_PATH below `home` that it needs, what it says about its version)."""
    present = [name for name in LIBRARY_DIRECTORIES if list((home / name).glob("lib*.so*"))]
    text = ""
    for name in ("", *present):
        environment = {"PATH": os.defpath, "LC_ALL": "C"}
        if name:
            environment["LD_LIBRARY_PATH"] = str(home / name)
        try:
            done = subprocess.run(
                [str(path), "--no-defaults", "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=ANSWER_PATIENCE_S,
                check=False,
                env=environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refuse(path, f"it cannot be asked for its version ({error})") from error
        text = done.stdout.decode(errors="replace")
        if done.returncode == 0:
            return name, text
    return "", text


def _data_maker(path: Path, home: Path, family: str, numbers: tuple[int, int, int]) -> str:
    """How its data directory is made, as Start.data says it."""
    if family == "mysql" and numbers >= INITIALIZE_SINCE:
        return "initialize"
    for directory in (path.parent, *(home / name for name in SCRIPT_DIRECTORIES)):
        for name in SCRIPT_NAMES:
            if (directory / name).is_file():
                return str((directory / name).resolve())
    raise _refuse(
        path,
        f"nothing that makes a data directory is near it: no {' or '.join(SCRIPT_NAMES)} in"
        f" {path.parent} or in {', '.join(SCRIPT_DIRECTORIES[:-1])} of {home}",
        "Put that script next to it",
    )


def _messages(home: Path) -> Path | None:
    for name in MESSAGE_DIRECTORIES:
        if (home / name / MESSAGE_FILE).is_file():
            return home / name
    return None


def _refuse(path: Path, why: str, do: str = "Name a mysqld or mariadbd") -> TlstaxError:
    return TlstaxError(f"cannot start {path} as a server", why, do, ExitCode.TARGET)
