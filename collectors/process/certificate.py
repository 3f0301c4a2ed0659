# SPDX-License-Identifier: GPL-2.0-only
"""The key of a server's certificate, its kind and length, and the dates of its validity.

A certificate is public: the server sends it to each client. No private key is read. The file is
opened in the server's own file system, and believed only if it is the certificate that the server
has in use, which its expiry date tells (`Ssl_server_not_after`).
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tlstax.collectors.binary.rooted_files import open_below

MOST_BYTES: Final = 1 << 20
"""Longer files are no certificates."""


@dataclass(frozen=True)
class Certificate:
    """What a file of certificates says of the first one, which is the server's."""

    key: str
    """RSA 2048, EC 256, Ed25519, ...: kind and length in bits."""
    chain_count: int
    """Certificates in the file."""
    chain_bytes: int
    """Their size as a server sends them (DER), in bytes."""
    not_before: datetime
    """When its validity begins, in UTC."""
    not_after: datetime
    """When it expires, in UTC."""


def read_certificate(pid: int, file: str, directory: str) -> Certificate | None:
    """The certificate that process `pid` calls `file`, relative to `directory` in its file system.

    None if there is none that can be read.
    """
    try:
        descriptor = open_below(f"/proc/{pid}/root", os.path.join(directory, file))
        with open(descriptor, "rb") as handle:
            return parse(handle.read(MOST_BYTES))
    except OSError:
        return None


def load_parser() -> None:
    """Import what `parse` needs, for 30 ms of CPU time: before a budget pays for it."""
    import cryptography.x509  # noqa: F401


def parse(text: bytes) -> Certificate | None:
    """What certificates in PEM say; None if there is none."""
    # Imported here: attach stays small where nobody asks for it.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        chain = x509.load_pem_x509_certificates(text)
        key = chain[0].public_key()
        size = sum(len(one.public_bytes(Encoding.DER)) for one in chain)
        begins, ends = chain[0].not_valid_before_utc, chain[0].not_valid_after_utc
    except (ValueError, IndexError, UnsupportedAlgorithm, x509.InvalidVersion):
        return None
    kind = type(key).__name__.lstrip("_").removesuffix("PublicKey")
    name = {"EllipticCurve": "EC"}.get(kind, kind)
    bits = getattr(key, "key_size", None)
    return Certificate(f"{name} {bits}" if bits else name, len(chain), size, begins, ends)


def is_in_use(certificate: Certificate, not_after: str) -> bool:
    """Whether the server's word for the expiry date ('Nov 23 07:18:10 2027 GMT') is this one's.

    True where the server does not tell it.
    """
    try:
        told = datetime.strptime(not_after.strip(), "%b %d %H:%M:%S %Y %Z")
    except ValueError:
        return not not_after.strip()
    return told.replace(tzinfo=UTC) == certificate.not_after
