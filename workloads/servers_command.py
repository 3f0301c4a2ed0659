# SPDX-License-Identifier: GPL-2.0-only
"""Servers with other TLS libraries: what there is, installing one, starting one.

list          each server of the catalogue, its TLS library, where it comes from, if it is here
install NAME  fetch it through its registry's own client (npm, mvn, apt-get), check it
start NAME    start a private one, installed first if needed, and keep it until Ctrl-C
"""

import argparse
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tlstax import ExitCode

if TYPE_CHECKING:
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
    choices.add_parser("list", help="say which there are").set_defaults(run=run_list)
    for name, run, text in (
        ("install", run_install, "fetch, check and unpack one"),
        ("start", run_start, "start a private one and keep it"),
    ):
        choice = choices.add_parser(name, help=text)
        choice.add_argument("name", metavar="NAME", help="as `list` calls it")
        choice.set_defaults(run=run)


def run_list(options: argparse.Namespace) -> int:
    """One line for each server."""
    from tlstax.workloads.servers.catalogue import load_catalogue
    from tlstax.workloads.servers.installing import installed_program

    for kind in load_catalogue().values():
        here = "installed" if installed_program(kind) else "not installed"
        source = f"{kind.source.client} {kind.source.package} {kind.source.version}".rstrip()
        print(f"{kind.name:12} {kind.server:28} {kind.tls_library:33} {here:14} {source}")
    return int(ExitCode.OK)


def run_install(options: argparse.Namespace) -> int:
    """Fetch one server, unless it is there."""
    from tlstax.workloads.servers.catalogue import find_kind
    from tlstax.workloads.servers.installing import install, installed_program

    kind = find_kind(options.name)
    if installed_program(kind) is None:
        print(f"fetching {kind.server} with {kind.source.client} ...", flush=True)
    print(f"{kind.server}: {install(kind)}")
    return int(ExitCode.OK)


def run_start(options: argparse.Namespace) -> int:
    """Keep one server until Ctrl-C."""
    from tlstax.workloads.servers.catalogue import find_kind
    from tlstax.workloads.servers.lab_server import open_server

    run_install(options)
    keep(open_server(find_kind(options.name)))
    return int(ExitCode.OK)


def keep(server: "PrivateServer") -> None:
    """Start a server, say how to connect to it, and stop it at Ctrl-C."""
    from tlstax.workloads.servers.configuration import USER_PLAINTEXT, USER_TLS

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
