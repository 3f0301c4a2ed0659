# SPDX-License-Identifier: GPL-2.0-only
"""Where a driver connects, and as whom."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tlstax import ExitCode, TlstaxError


@dataclass(frozen=True)
class Endpoint:
    """Exactly one of host and port, or a Unix socket."""

    host: str | None = None
    port: int | None = None
    socket: Path | None = None
    namespace: str | None = None  # the client runs in it, as by `ip netns exec NAME`

    def __post_init__(self) -> None:
        has_address = self.host is not None and self.port is not None
        if has_address == (self.socket is not None):
            raise TlstaxError(
                "cannot tell where to connect",
                "an endpoint has a host and a port, or a socket",
                "Give exactly one of them",
                ExitCode.USAGE,
            )

    @property
    def prefix(self) -> tuple[str, ...]:
        """What stands before the client's command; it executes the client in the same process."""
        return ("ip", "netns", "exec", self.namespace) if self.namespace else ()

    def __str__(self) -> str:
        return str(self.socket) if self.socket else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Account:
    """Who connects, and the files that clients need. Both arms of a matrix use the same one.

    The password goes into files of `directory` (0700) with mode 0600 (`write_private`) or into
    a pipe: never into argv, and never into the environment.
    """

    user: str
    password: str = field(repr=False)
    database: str
    directory: Path  # working directory of clients
    ca: Path
    certificate: Path  # of the client
    key: Path
    environment: Mapping[str, str] = field(default_factory=dict)  # OPENSSL_CONF, by the TLS choice
    is_yassl: bool = False  # TLS 1.0 and 1.1 with AES256-SHA at security level 0, and nothing else
