# SPDX-License-Identifier: GPL-2.0-only
"""What a TLS arm asks for: version, cipher, key exchange group, and how clients are told.

sysbench 1.0 has no option for the protocol version or the group, so the choice is made through an
OpenSSL configuration file (`OPENSSL_CONF`), which every client and server on OpenSSL obeys.
"""

from dataclasses import dataclass

from tlstax import ExitCode, TlstaxError

VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True)
class TlsChoice:
    """None: the libraries choose; names are OpenSSL's."""

    version: str | None = None  # one of VERSIONS
    cipher: str | None = None  # 'TLS_AES_128_GCM_SHA256', 'ECDHE-RSA-AES256-GCM-SHA384'
    group: str | None = None  # 'X25519', 'prime256v1'
    security_level: int | None = None  # OpenSSL's SECLEVEL; RSA keys under 2048 bits need 0 or 1

    def __post_init__(self) -> None:
        if self.version is not None and self.version not in VERSIONS:
            raise TlstaxError(
                f"cannot ask for TLS version '{self.version}'",
                f"known versions are {' and '.join(VERSIONS)}",
                "Choose one of them",
                ExitCode.USAGE,
            )

    @property
    def is_default(self) -> bool:
        """True if nothing is asked for."""
        return self == TlsChoice()

    def openssl_configuration(self) -> str:
        """The text of an OpenSSL configuration file that enforces the choice."""
        # No section may be called [default]: that is the name of the file's nameless head.
        lines = ["openssl_conf = tlstax", "[tlstax]", "ssl_conf = ssl", "[ssl]"]
        lines += ["system_default = choice", "[choice]"]
        if self.version:
            lines += [f"MinProtocol = {self.version}", f"MaxProtocol = {self.version}"]
        is_tls13_suite = (self.cipher or "").startswith("TLS_")
        if self.cipher and is_tls13_suite:
            lines.append(f"Ciphersuites = {self.cipher}")
        if (self.cipher and not is_tls13_suite) or self.security_level is not None:
            names = self.cipher if self.cipher and not is_tls13_suite else "DEFAULT"
            level = "" if self.security_level is None else f":@SECLEVEL={self.security_level}"
            lines.append(f"CipherString = {names}{level}")
        if self.group:
            lines.append(f"Groups = {self.group}")
        return "\n".join(lines) + "\n"
