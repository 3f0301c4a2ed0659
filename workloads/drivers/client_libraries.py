# SPDX-License-Identifier: GPL-2.0-only
"""The client libraries: how each is found on this host, or fetched, and started.

Python's come from its package index by exact version, into an environment of their own next to the
fetched servers. PHP's and Perl's are packages of the distribution.
"""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError, cache_directory
from tlstax.workloads.drivers.clients import FOLDER, ClientDriver
from tlstax.workloads.servers.cache import only_builder
from tlstax.workloads.servers.programs import find_program

# The newest Connector/Python whose C extension loads with an OpenSSL of 3.0 on the host.
# cryptography: what PyMySQL needs for caching_sha2_password in plaintext.
PACKAGES = ("mysql-connector-python==9.4.0", "PyMySQL==1.2.4", "cryptography==50.0.2")
INSTALL_PATIENCE_S, TRY_PATIENCE_S = 300.0, 20.0


def python_environment() -> Path:
    """The interpreter that has the libraries; its environment is made if it is missing.

    TlstaxError: HOST where no environment can be made, IO where the packages cannot be fetched.
    """
    digest = hashlib.sha256("\n".join((sys.version, *PACKAGES)).encode()).hexdigest()[:12]
    place = cache_directory() / "clients" / f"libraries-{digest}"
    if not place.exists():
        with only_builder(place) as prefix:
            if not place.exists():
                _make_environment(place.with_name(f"{prefix}python"), place)
    return place / "bin" / "python"


def _make_environment(made: Path, place: Path) -> None:
    """Made aside and renamed when whole, so that one that was interrupted is never believed.

    Its interpreter finds its packages beside itself; the scripts in it would not, and are not used.
    """
    _run([sys.executable, "-m", "venv", str(made)], "apt-get install python3-venv")
    pip = [str(made / "bin" / "python"), "-m", "pip", "install", "-q"]
    packages = ["--disable-pip-version-check", "--only-binary", ":all:", *PACKAGES]
    _run([*pip, *packages], "check the network, and run it again")
    made.rename(place)


def _run(command: list[str], do: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_PATIENCE_S, check=False
        )
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        failed, why = done.returncode != 0, said[-1] if said else "it said nothing"
    except subprocess.TimeoutExpired:
        failed, why = True, f"it had not ended after {INSTALL_PATIENCE_S:.0f} s"
    if failed:
        raise TlstaxError(
            "cannot install the Python clients", why[:300], f"On Debian: {do}", ExitCode.HOST
        )


class PyMySql(ClientDriver):
    """PyMySQL, with one TLS context for all connections."""

    name, title = "pymysql", "PyMySQL"
    resumes = True

    def program(self) -> list[str]:
        """In the environment of its own."""
        return [str(python_environment()), "-I", str(FOLDER / "python_client.py")]


class ConnectorPython(PyMySql):
    """MySQL's Connector/Python, pure: with a TLS context for each connection, as it is."""

    name, title = "connector-python", "Connector/Python"
    socket_tls = False

    def _further_orders(self) -> dict[str, Any]:
        return {"keeps_context": bool(self._options.get("keeps_context", False))}


class ConnectorC(ConnectorPython):
    """The same with its C extension, which has its own copy of OpenSSL."""

    name, title = "connector-python-c", "Connector/Python with its C extension"
    resumes = False


class PhpMysqli(ClientDriver):
    """PHP's mysqli."""

    name, title = "php-mysqli", "PHP mysqli"
    socket_tls = False

    def program(self) -> list[str]:
        """PHP with mysqli."""
        php = str(find_program("php", "php-cli"))
        _require([php, "-r", "exit(extension_loaded('mysqli') ? 0 : 1);"], "mysqli", "php-mysql")
        return [php, str(FOLDER / "php_client.php")]


class PerlDbdMariadb(ClientDriver):
    """Perl's DBI with DBD::MariaDB."""

    name, title = "perl-dbd-mariadb", "Perl DBD::MariaDB"
    module, package = "DBD::MariaDB", "libdbd-mariadb-perl"

    def program(self) -> list[str]:
        """Perl with the module."""
        perl = str(find_program("perl", "perl"))
        _require([perl, f"-M{self.module}", "-e", "1"], self.module, self.package)
        return [perl, str(FOLDER / "perl_client.pl")]


class PerlDbdMysql(PerlDbdMariadb):
    """Perl's DBI with DBD::mysql, which in Debian has the same library under it."""

    name, title = "perl-dbd-mysql", "Perl DBD::mysql"
    module, package = "DBD::mysql", "libdbd-mysql-perl"


def _require(command: list[str], what: str, package: str) -> None:
    done = subprocess.run(command, capture_output=True, timeout=TRY_PATIENCE_S, check=False)
    if done.returncode != 0:
        raise TlstaxError(
            f"cannot find {what}",
            "it is not installed, or cannot be loaded",
            f"On Debian: apt-get install {package}",
            ExitCode.HOST,
        )
