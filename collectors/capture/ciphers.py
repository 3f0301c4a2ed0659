# SPDX-License-Identifier: GPL-2.0-only
"""Short names of bulk ciphers, and the cipher suites that use them.

A suite names key exchange, cipher and MAC; the cost of records depends on the last two only. Suites
are spelled as in OpenSSL and in captures; OpenSSL uses the names of RFC 8446 for those of TLS 1.3.
"""

import re
from collections.abc import Mapping
from typing import Final

SUITES: Final[Mapping[str, Mapping[str, str]]] = {
    "AES128-GCM": {"TLSv1.2": "AES128-GCM-SHA256", "TLSv1.3": "TLS_AES_128_GCM_SHA256"},
    "AES256-GCM": {"TLSv1.2": "AES256-GCM-SHA384", "TLSv1.3": "TLS_AES_256_GCM_SHA384"},
    "CHACHA20-POLY1305": {
        "TLSv1.2": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLSv1.3": "TLS_CHACHA20_POLY1305_SHA256",
    },
    "AES128-CBC-SHA1": {"TLSv1.2": "AES128-SHA"},
    "AES256-CBC-SHA1": {"TLSv1.2": "AES256-SHA"},
    "AES128-CBC-SHA256": {"TLSv1.2": "AES128-SHA256"},
    "AES256-CBC-SHA256": {"TLSv1.2": "AES256-SHA256"},
    "AES256-CBC-SHA384": {"TLSv1.2": "ECDHE-RSA-AES256-SHA384"},
}
"""A suite for each cipher and TLS version, for a server with an RSA key."""
_AEAD: Final = re.compile(r"AES_?(128|256)[-_]GCM(?:[-_]|$)")
_CBC: Final = re.compile(r"AES_?(128|256)(?:_CBC)?[-_]SHA(256|384)?$")


def bulk_cipher(suite: str) -> str:
    """The cipher of a suite; '' if it is not in SUITES."""
    if "CHACHA20_POLY1305" in suite.replace("-", "_"):
        return "CHACHA20-POLY1305"
    if found := _AEAD.search(suite):
        return f"AES{found[1]}-GCM"
    if found := _CBC.search(suite):
        name = f"AES{found[1]}-CBC-SHA{found[2] or '1'}"
        return name if name in SUITES else ""
    return ""
