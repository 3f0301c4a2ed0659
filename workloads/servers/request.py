# SPDX-License-Identifier: GPL-2.0-only
"""What is asked of a private server before it is started."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from tlstax.certs.generate import Certificates, KeyKind
from tlstax.workloads.servers.storage import Storage
from tlstax.workloads.tls import TlsChoice

SMALL_RSA_BITS = 2048  # OpenSSL's default security level refuses RSA keys under this size


@dataclass(frozen=True)
class ServerRequest:
    """What kind of private server is wanted."""

    key: KeyKind = field(default_factory=lambda: KeyKind("rsa", "2048"))
    port: int | None = None  # None: any that is free
    certificates: Certificates | None = None  # None: made for this server
    tls: TlsChoice = field(default_factory=TlsChoice)
    options: tuple[str, ...] = ()  # further lines of the server's option file
    storage: Storage | None = None  # None: data in memory, logs synced once a second
    environment: tuple[tuple[str, str], ...] = ()  # further variables of the server's environment
    openssl: tuple[Path, ...] = ()  # files of another OpenSSL that it loads; (): its own
    namespace: str | None = None  # the network namespace that it runs in; it must be there

    @property
    def choice(self) -> TlsChoice:
        """The TLS choice, with the security level that a small RSA key needs."""
        small = self.key.family == "rsa" and int(self.key.detail) < SMALL_RSA_BITS
        if small and self.tls.security_level is None:
            return TlsChoice(self.tls.version, self.tls.cipher, self.tls.group, security_level=0)
        return self.tls

    def client_choice(self, asked: TlsChoice) -> TlsChoice:
        """What a client asks for, with the security level that the server's key needs."""
        return replace(asked, security_level=self.choice.security_level)
