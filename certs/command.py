# SPDX-License-Identifier: GPL-2.0-only
"""Make a CA, a server and a client certificate with their keys, for a private server.

The certificates name localhost, 127.0.0.1 and ::1 and are valid for ten years. Files are
private (0600). `cacert.pem`, `client-cert.pem` and `client-key.pem` are the names that sysbench
1.0 reads from its working directory when it is run with --mysql-ssl=on.
"""

import argparse
from pathlib import Path

from tlstax import ExitCode
from tlstax.certs.generate import KeyKind, generate


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax certs` to the command line."""
    parser = subparsers.add_parser(
        "certs",
        help="make a CA, a server and a client certificate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="where the files go (0700)")
    parser.add_argument(
        "--key",
        metavar="KIND",
        default="rsa:2048",
        help="rsa:1024..4096, ec:p256, ec:p384 or ed25519 (default: %(default)s)",
    )
    parser.add_argument(
        "--pkcs1",
        action="store_true",
        help="write keys in the traditional form that servers with yaSSL need",
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Create the files and print the purpose of each."""
    kind = KeyKind.parse(options.key)
    made = generate(options.directory, kind, pkcs1=options.pkcs1, force=options.force)
    print(f"{made.directory}: {kind} keys, certificates valid for ten years")
    server = f"ssl-cert={made.server.name} ssl-key={made.server_key.name}"
    print(f"  server  ssl-ca={made.ca.name} {server}")
    print(f"  client  {made.sysbench_ca.name} {made.client.name} {made.client_key.name}")
    print(f"  CA key  {made.ca_key.name} (needed only to sign more certificates)")
    return int(ExitCode.OK)
