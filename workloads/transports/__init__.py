# SPDX-License-Identifier: GPL-2.0-only
"""How the bytes of a client get to the server: the interface, and which transports there are.

A transport is made once for each server of an experiment, opened before its first run and closed
after the last; drivers connect to `Route.endpoint`. It makes whatever it needs by way of
`Resources`, so that a killed experiment leaves nothing that `tlstax lab clean` does not find.

To add a transport, write a module in this folder and one line in TRANSPORTS.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.resources import Resources
from tlstax.workloads.transports.model import Transport, Value

# Constructors take (resources, options): `options` is the recipe's table of the transport.
Factory = Callable[[Resources, Mapping[str, Value]], Transport]


@dataclass(frozen=True)
class TransportKind:
    """Where a transport is written, and what a recipe may say about it."""

    module: str
    factory: str
    options: Mapping[str, type] = field(default_factory=dict)  # key -> type, all may be left out
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # key -> allowed values


_PACKAGE: Final = "tlstax.workloads.transports"
_RTT: Final = {"rtt_ms": float}  # of the link; left out, or 0: not delayed
TRANSPORTS: Mapping[str, TransportKind] = {
    "tcp": TransportKind(f"{_PACKAGE}.local", "Tcp"),
    "unix": TransportKind(f"{_PACKAGE}.local", "UnixSocket"),
    "veth": TransportKind(f"{_PACKAGE}.linked", "Veth"),
    "wan": TransportKind(f"{_PACKAGE}.linked", "Wan", _RTT),
    "ssh": TransportKind(
        f"{_PACKAGE}.ssh",
        "Ssh",
        {"cipher": str, "session": bool, **_RTT},
        {
            "cipher": (
                "aes256-cbc",
                "aes256-ctr",
                "aes256-gcm@openssh.com",
                "chacha20-poly1305@openssh.com",
            )
        },
    ),
    "stunnel": TransportKind(
        f"{_PACKAGE}.stunnel",
        "Stunnel",
        {"cipher": str, **_RTT},
        {
            "cipher": (
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
            )
        },
    ),
    "openvpn": TransportKind(
        f"{_PACKAGE}.openvpn",
        "OpenVpn",
        {"cipher": str, **_RTT},
        {"cipher": ("AES-256-CBC", "AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305")},
    ),
    "wireguard": TransportKind(f"{_PACKAGE}.wireguard", "WireGuard", _RTT),
    "mysqlrouter": TransportKind(f"{_PACKAGE}.mysqlrouter", "MysqlRouter", {"pool": bool, **_RTT}),
    "proxysql": TransportKind(
        f"{_PACKAGE}.proxysql", "ProxySql", {"program": str, "socket": bool, **_RTT}
    ),
}


def make_transport(
    kind: str, resources: Resources, options: Mapping[str, Value] | None = None
) -> Transport:
    """A transport by its kind; TlstaxError (USAGE) that lists them when there is no such."""
    if kind not in TRANSPORTS:
        raise TlstaxError(
            f"there is no transport called '{kind}'",
            f"the known ones are {', '.join(TRANSPORTS)}",
            "Choose one of them",
            ExitCode.USAGE,
        )
    found = TRANSPORTS[kind]
    factory = getattr(importlib.import_module(found.module), found.factory)
    return cast(Factory, factory)(resources, options or {})
