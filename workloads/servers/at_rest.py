# SPDX-License-Identifier: GPL-2.0-only
"""Setting up encryption at rest: keys, plugins, options; nothing of an installation is changed.

MariaDB: file_key_management with a key file that only the server can read. Packages without
plugins (the host's server-core, Maven's) get Debian's, which loads into every MariaDB of the
catalogue; with AES_CBC, because 10.11.5's wolfSSL was built without CTR and crashes with it.

MySQL: component_keyring_file, which a manifest next to the server's program names. The program is
started through a link in a directory of its own, so that the manifest is of this server only.
"""

import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tlstax import ExitCode, TlstaxError, cache_directory
from tlstax.certs.generate import write_private
from tlstax.workloads.servers.cache import only_builder
from tlstax.workloads.servers.server_directory import ServerUser
from tlstax.workloads.servers.status import StatusSession
from tlstax.workloads.servers.storage import Storage

MARIADB_PLUGIN, MYSQL_COMPONENT = "file_key_management.so", "component_keyring_file.so"
PLUGIN_DIRECTORIES = (
    "usr/lib/mysql/plugin",
    "lib/plugin",
    "lib64/mysql/plugin",
    "lib/mysql/plugin",
)
PLUGIN_PACKAGE = "mariadb-server"
KEY_BYTES = 32
FETCH_PATIENCE_S, ENCRYPT_PATIENCE_S, LOOK_S = 300.0, 60.0, 0.2
# Tablespaces without a row there are not encrypted either, and have not been looked at. The one
# of the system, which holds the undo log, is missing in the list of all.
_ENCRYPTED = (
    "SELECT 1 FROM INFORMATION_SCHEMA.INNODB_TABLESPACES_ENCRYPTION AS done"
    " WHERE done.MIN_KEY_VERSION > 0 AND done.SPACE = "
)
LEFT_TO_ENCRYPT = (
    "SELECT COUNT(*) FROM INFORMATION_SCHEMA.INNODB_SYS_TABLESPACES AS every"
    f" WHERE NAME <> 'innodb_temporary' AND NOT EXISTS ({_ENCRYPTED} every.SPACE)"
    f" UNION ALL SELECT EXISTS ({_ENCRYPTED} 0)"
)


@dataclass(frozen=True)
class AtRest:
    """What a server needs to encrypt; paths are relative to its directory."""

    plugin: Path  # copied to plugins/
    options: tuple[str, ...]  # of the server that serves, not of the one that makes the data
    files: Mapping[str, bytes]
    directories: tuple[str, ...] = ("plugins",)
    links: Mapping[str, str] = field(default_factory=dict)  # name -> what it leads to
    program: str = ""  # started instead of the program itself
    always: tuple[str, ...] = ()  # options that also the making of the data needs

    def write(self, directory: Path, user: ServerUser) -> None:
        """Put everything where the server, which runs as `user`, expects it."""
        for name in self.directories:
            (directory / name).mkdir(mode=0o700)
            user.own(directory / name)
        for name, content in self.files.items():
            write_private(directory / name, content)
            (directory / name).chmod(0o400)  # MySQL complains about a manifest it could write
            user.own(directory / name)
        for name, target in self.links.items():
            (directory / name).symlink_to(target)
        copied = directory / "plugins" / self.plugin.name
        shutil.copy(self.plugin, copied)
        user.own(copied)


def mariadb_at_rest(storage: Storage, seen: Path, home: Path | None) -> AtRest:
    """For a MariaDB whose directory it sees as `seen`; `home` is where it was unpacked."""
    lines = [
        f"plugin_dir = {seen}/plugins",
        "plugin_load_add = file_key_management",
        f"file_key_management_filename = {seen}/keys",
        "file_key_management_encryption_algorithm = AES_CBC",
        "innodb_encrypt_tables = FORCE",
        "innodb_encrypt_log = ON",
        "loose_innodb_encrypt_temporary_tables = ON",
        "innodb_encryption_threads = 1",
        "innodb_encryption_rotate_key_age = 1",
        "encrypt_tmp_files = ON",
    ]
    if storage.binlog:
        lines.append("encrypt_binlog = ON")
    key = f"1;{secrets.token_hex(KEY_BYTES)}\n".encode()
    plugin = _find(MARIADB_PLUGIN, home) or _find(MARIADB_PLUGIN, Path("/")) or _fetched_plugin()
    return AtRest(plugin, tuple(lines), {"keys": key})


def mysql_at_rest(storage: Storage, seen: Path, home: Path, program: Path) -> AtRest:
    """For a MySQL of 8.0.24 or later; TlstaxError (USAGE) where it has no such component.

    `seen` and `program` are paths as the server sees them.
    """
    component = _find(MYSQL_COMPONENT, home)
    if component is None:
        raise TlstaxError(
            f"cannot make {program} encrypt its data",
            f"its package has no {MYSQL_COMPONENT} and no other keyring",
            "Choose a MariaDB or mysql97, or leave out the encryption",
            ExitCode.USAGE,
        )
    lines = ["default_table_encryption = ON", "innodb_redo_log_encrypt = ON"]
    lines.append("innodb_undo_log_encrypt = ON")
    if storage.binlog:
        lines.append("binlog_encryption = ON")
    return AtRest(
        component,
        tuple(lines),
        {
            f"bin/{program.name}.my": b'{"components": "file://component_keyring_file"}\n',
            "plugins/component_keyring_file.cnf": (
                f'{{"path": "{seen}/keyring/keys", "read_only": false}}\n'.encode()
            ),
        },
        directories=("bin", "plugins", "keyring"),
        links={f"bin/{program.name}": str(program)},
        program=f"bin/{program.name}",
        always=(f"plugin_dir = {seen}/plugins",),
    )


def _find(name: str, home: Path | None) -> Path | None:
    places = [home / folder / name for folder in PLUGIN_DIRECTORIES] if home else []
    return next((place for place in places if place.is_file()), None)


def _fetched_plugin() -> Path:
    """Debian's, taken out of the package that this host's apt has, and kept."""
    place = cache_directory() / "plugins" / PLUGIN_PACKAGE
    plugin = place / MARIADB_PLUGIN
    if plugin.is_file():
        return plugin
    with only_builder(place) as prefix:
        if not plugin.is_file():
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=prefix) as name:
                _unpack(Path(name), place)
    return plugin


def _unpack(work: Path, place: Path) -> None:
    # apt's own unprivileged user could not write to the directory of root.
    get = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", PLUGIN_PACKAGE]
    why = ""
    try:
        done = subprocess.run(
            get, cwd=work, capture_output=True, text=True, timeout=FETCH_PATIENCE_S, check=False
        )
        why = (done.stderr.strip().splitlines() or ["apt-get downloaded nothing"])[-1]
        for package in work.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, work / "files"], check=True)
        found = _find(MARIADB_PLUGIN, work / "files")
        if found:
            place.mkdir(exist_ok=True)
            shutil.copy(found, place / MARIADB_PLUGIN)
            return
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    raise TlstaxError(
        f"cannot get {MARIADB_PLUGIN}",
        why,
        f"On Debian: apt-get install {PLUGIN_PACKAGE}",
        ExitCode.HOST,
    )


def await_encrypted(session: StatusSession) -> None:
    """Wait until a MariaDB has encrypted what was there before: its own tables are made without.

    It does so in a thread of its own, which would else work during the first runs. MySQL leaves
    them as they are. TlstaxError (TARGET) if it does not come to an end.
    """
    deadline = time.monotonic() + ENCRYPT_PATIENCE_S
    if not session.query("SHOW VARIABLES LIKE 'innodb_encryption_threads'"):
        return
    while True:
        ((left,), (has_system,)) = session.query(LEFT_TO_ENCRYPT)
        if left == "0" and has_system == "1":
            return
        if time.monotonic() > deadline:
            raise TlstaxError(
                "the server does not encrypt its tables",
                f"{left} tablespaces are still unencrypted after {ENCRYPT_PATIENCE_S:.0f} s",
                "Look at its log",
                ExitCode.TARGET,
            )
        time.sleep(LOOK_S)
