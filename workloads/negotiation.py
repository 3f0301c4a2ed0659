# SPDX-License-Identifier: GPL-2.0-only
"""What a server's TLS negotiates, found by asking it: versions, cipher, X25519.

`openssl s_client` starts TLS as the protocol does (`-starttls mysql`) and prints what was
negotiated. It reads the same configuration as the drivers do, so what it gets without further
options is what they get.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers.mariadb import PrivateServer
from tlstax.workloads.servers.programs import find_program

PATIENCE_S = 10.0
# What is offered in turn: all that this OpenSSL has, then what remains for yaSSL.
OFFERS = ("ALL:@SECLEVEL=0", "AES256-SHA:AES128-SHA:@SECLEVEL=0")
VERSIONS = {"TLSv1": "-tls1", "TLSv1.1": "-tls1_1", "TLSv1.2": "-tls1_2", "TLSv1.3": "-tls1_3"}
GROUP = "X25519"
NO_CIPHER = ("0000", "(NONE)")


@dataclass(frozen=True)
class Agreed:
    """One handshake that succeeded."""

    version: str
    cipher: str
    temporary_key: str  # 'X25519', 'prime256v1', 'DH 2048'; '' without one


@dataclass(frozen=True)
class Negotiated:
    """What a server does."""

    driver: Agreed  # what the drivers of the experiment get
    versions: tuple[str, ...]  # that it accepts
    has_x25519: bool


def negotiate(server: PrivateServer) -> Negotiated:
    """Ask a running server; TlstaxError (TARGET) if the drivers' configuration is refused."""
    driver = _attempt(server, [])
    if driver is None:
        raise TlstaxError(
            "cannot negotiate TLS with the server",
            "openssl s_client was refused with the configuration of the drivers",
            "Look at the server's log; `tlstax lab servers start` keeps one running",
            ExitCode.TARGET,
        )
    versions = tuple(
        name
        for name, option in VERSIONS.items()
        if any(_attempt(server, [option, "-cipher", offer]) for offer in OFFERS)
    )
    agreed = _attempt(server, ["-groups", GROUP, "-cipher", "ECDHE:@SECLEVEL=0"])
    return Negotiated(driver, versions, agreed is not None and agreed.temporary_key == GROUP)


def _attempt(server: PrivateServer, options: Sequence[str]) -> Agreed | None:
    """One handshake; None if it failed."""
    program = find_program("openssl", "openssl")
    namespace = server.request.namespace
    prefix = ["ip", "netns", "exec", namespace] if namespace else []
    command = [*prefix, str(program), "s_client", "-connect", f"127.0.0.1:{server.port}"]
    command += ["-starttls", "mysql", *options]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            env={"PATH": str(Path(program).parent), "LC_ALL": "C", **_configuration(server)},
        )
    except subprocess.TimeoutExpired:
        return None
    return parse(done.stdout.decode(errors="replace"))


def _configuration(server: PrivateServer) -> dict[str, str]:
    return {"OPENSSL_CONF": str(server.client_directory / "openssl.cnf")}


def parse(text: str) -> Agreed | None:
    """What s_client printed about a handshake; None where none was finished."""
    session = re.search(r"^ *Protocol *: (\S+)\n *Cipher *: (\S+)$", text, re.MULTILINE)
    new = re.search(r"^New, (\S+), Cipher is (\S+)$", text, re.MULTILINE)
    found = session or new
    if found is None or found[2] in NO_CIPHER:
        return None
    key = re.search(r"^(?:Server|Peer) Temp Key: (.+)$", text, re.MULTILINE)
    return Agreed(found[1], found[2], _key_name(key[1]) if key else "")


def _key_name(text: str) -> str:
    """'X25519, 253 bits', 'ECDH, prime256v1, 256 bits' and 'DH, 2048 bits' by their names."""
    parts = [part.strip() for part in text.split(",")]
    if parts[0] == "ECDH":
        return parts[1]
    return f"DH {parts[1].split()[0]}" if parts[0] == "DH" else parts[0]
