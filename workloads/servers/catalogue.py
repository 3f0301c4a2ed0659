# SPDX-License-Identifier: GPL-2.0-only
"""The servers that tlstax can install and start: one TOML file each, in this folder.

A file says where a server comes from (a package of a registry, fetched by that registry's own
client), what its archive must hash to, which TLS library it has, and how it is started. Nothing
of a server is part of tlstax.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib.resources import files
from typing import Any

from tlstax import ExitCode, TlstaxError

# How each is fetched, by the program that must be there. debian-root: packages of another suite
# than the host's, unpacked to a directory that the server is started in by chroot.
CLIENTS = {"npm": "npm", "maven": "mvn", "apt": "apt-get", "debian-root": "apt-get"}
SIGNED = ("apt", "debian-root")  # the archive's own signature is checked, and versions roll
FAMILIES = ("mysql", "mariadb")


@dataclass(frozen=True)
class Source:
    """Where a server comes from."""

    client: str  # a key of CLIENTS
    package: str
    version: str = ""  # exact; "" for apt, which gives what the suite has
    sha256: str = ""  # of the archive; "" for apt, which checks its own signatures
    suite: str = ""  # debian-root: which
    inner: str = ""  # an archive inside the archive
    tree: str = "."  # the directory of the archive that is kept
    needs: tuple[str, ...] = ()  # further packages of the same client


@dataclass(frozen=True)
class Start:
    """How a server is started. Paths are relative to the directory it was unpacked to."""

    program: str
    data: str  # "copy", "initialize", or the script that makes a data directory
    data_template: str = ""  # with "copy": the directory to copy
    library_path: str = ""  # LD_LIBRARY_PATH, where its own libraries are not found without
    options: tuple[str, ...] = ()  # further lines of its option file
    yassl: bool = False  # needs traditional keys, and clients that still offer what it knows
    grant_requires: bool = False  # accounts are told to use TLS by GRANT, not CREATE USER


@dataclass(frozen=True)
class ServerKind:
    """One server of the catalogue."""

    name: str
    server: str
    tls_library: str
    family: str
    source: Source
    start: Start


def load_catalogue() -> dict[str, ServerKind]:
    """Every server by its name. TlstaxError (USAGE) names what is wrong in a file."""
    folder = files("tlstax.workloads").joinpath("servers")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    kinds = [parse_kind(folder.joinpath(name).read_text(encoding="utf-8"), name) for name in names]
    return {kind.name: kind for kind in kinds}


def find_kind(name: str) -> ServerKind:
    """One server of the catalogue; TlstaxError (USAGE) that lists them when there is no such."""
    catalogue = load_catalogue()
    if name not in catalogue:
        raise TlstaxError(
            f"there is no server called '{name}'",
            f"known servers are {', '.join(catalogue)}",
            "Choose one of them; `tlstax lab servers list` says what each is",
            ExitCode.USAGE,
        )
    return catalogue[name]


def parse_kind(text: str, where: str) -> ServerKind:
    """Read one file; `where` is its name for the error message."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refuse(where, f"it is not TOML ({error})") from None
    source = Source(**_checked(table.pop("source", {}), Source, where))
    start = Start(**_checked(table.pop("start", {}), Start, where))
    kind = ServerKind(source=source, start=start, **_checked(table, ServerKind, where))
    if source.client not in CLIENTS:
        raise _refuse(where, f"its client is '{source.client}', not one of {', '.join(CLIENTS)}")
    if kind.family not in FAMILIES:
        raise _refuse(where, f"its family is '{kind.family}', not one of {', '.join(FAMILIES)}")
    if source.client not in SIGNED and not (source.version and source.sha256):
        raise _refuse(where, "its source lacks the version or the sha256")
    if (source.client == "debian-root") != bool(source.suite):
        raise _refuse(where, "a suite belongs to a debian-root, and to nothing else")
    return kind


def _checked(table: Mapping[str, Any], kind: type, where: str) -> dict[str, Any]:
    """The values of a table, each of the type that the class says; lists become tuples."""
    values = {}
    known = {field.name: field for field in fields(kind)}
    for key, given in table.items():
        value = tuple(given) if isinstance(given, list) else given
        if key not in known or known[key].type in (Source, Start):
            raise _refuse(where, f"'{key}' is not known here")
        expected = known[key].type
        wanted = expected if isinstance(expected, type) else tuple
        if not isinstance(value, wanted):
            raise _refuse(where, f"'{key}' is not a {wanted.__name__}")
        values[key] = value
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.type not in (Source, Start):
            raise _refuse(where, f"'{name}' is missing")
    return values


def _refuse(where: str, why: str) -> TlstaxError:
    return TlstaxError(
        f"server definition {where} cannot be used", why, "Correct the file", ExitCode.USAGE
    )
