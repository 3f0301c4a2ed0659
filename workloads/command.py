# SPDX-License-Identifier: GPL-2.0-only
"""Run TLS and plaintext workloads against a private server that is thrown away afterwards.

    demo     certificates, a server, every load in both arms, recorded; then the report
    list     the recipes; `show` prints one, `run` runs one, such as `connect-storm`
    resume   continue an experiment that was interrupted
    server   start a private server, say how to connect to it, and keep it until Ctrl-C
    servers  the same with other servers, each with another TLS library: list, install, start
    clean    remove what a crashed run left behind

The demo's server is this host's own mariadbd, or the program that --mysqld names, with its own
data directory, port, socket and accounts. An installed or running server is neither used nor
touched.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tlstax import ExitCode, TlstaxError
from tlstax.certs.generate import KeyKind
from tlstax.workloads import recipes_command, resources, servers_command
from tlstax.workloads.matrix import runner
from tlstax.workloads.matrix.recipe_file import DEMO, load_recipe
from tlstax.workloads.recipes_command import add_replication, positive
from tlstax.workloads.servers import server_directory
from tlstax.workloads.servers.lab_server import open_private
from tlstax.workloads.servers.request import ServerRequest
from tlstax.workloads.stages import Stages


def register(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", **later_stages: Any
) -> None:
    """Add `tlstax lab` to the command line; `later_stages` are the fields of `Stages`."""
    parser = subparsers.add_parser(
        "lab",
        help="run TLS and plaintext workloads against a private server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(stages=Stages(**later_stages))
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    demo = actions.add_parser("demo", help="measure what TLS costs this host's MariaDB")
    demo.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("demo-out"),
        help="where capture and report go (default: %(default)s)",
    )
    demo.add_argument("--recipe", metavar="FILE", type=Path, help="another experiment, in TOML")
    add_replication(demo)
    demo.add_argument("--seconds", metavar="S", type=positive, help="seconds of each run")
    demo.add_argument(
        "--unwatched",
        action="store_true",
        help="run the load only: no probes, no capture, no report; needs no root",
    )
    servers_command.add_mysqld(demo)
    demo.set_defaults(run=run_demo)

    server = actions.add_parser("server", help="start a private server and keep it")
    server.add_argument("--key", metavar="KIND", default="rsa:2048", help="as in tlstax certs")
    server.add_argument("--port", metavar="N", type=positive, help="default: one that is free")
    servers_command.add_mysqld(server)
    server.set_defaults(run=run_server)

    recipes_command.register(actions)
    servers_command.register(actions)

    clean = actions.add_parser("clean", help="remove what a crashed run left behind")
    clean.set_defaults(run=run_clean)


def run_demo(options: argparse.Namespace) -> int:
    """Measure and report."""
    recipe = load_recipe(options.recipe or DEMO)
    if recipe.kind != "tax":
        raise TlstaxError(
            f"cannot run {recipe.name} as a demo",
            f"it is of kind '{recipe.kind}', and a demo is of kind 'tax': one server, one capture",
            f"Run it as `tlstax lab run {options.recipe}`",
            ExitCode.USAGE,
        )
    recipe = recipe.with_changes(options.rounds, options.seconds, starts_count=options.starts)
    if options.mysqld is not None:
        recipe = recipe.with_program(options.mysqld)
    stages = options.stages
    if options.unwatched:
        runner.drive_only(recipe, stages)
    else:
        runner.measure(recipe, options.output, stages)
    return int(ExitCode.OK)


def run_server(options: argparse.Namespace) -> int:
    """Keep a private server until Ctrl-C."""
    request = ServerRequest(key=KeyKind.parse(options.key), port=options.port)
    servers_command.keep(open_private(request, options.mysqld))
    return int(ExitCode.OK)


def run_clean(options: argparse.Namespace) -> int:
    """Remove left-overs and say which."""
    # Servers first: the kernel keeps the namespace of a process that runs in it.
    servers, in_use_servers = server_directory.clean()
    others, in_use_others = resources.clean()
    removed, in_use = [*map(str, servers), *others], [*in_use_servers, *in_use_others]
    for name in removed:
        print(f"removed {name}")
    for path in in_use:
        print(f"in use  {path}")
    if not removed and not in_use:
        print(f"nothing to remove below {tempfile.gettempdir()} (TMPDIR)")
    return int(ExitCode.OK)
