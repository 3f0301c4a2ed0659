# SPDX-License-Identifier: GPL-2.0-only
"""What `openssl s_client` prints about a handshake, as OpenSSL 3.0 prints it."""

import pytest

from tlstax.workloads.negotiation import Agreed, parse

REFUSED = """New, (NONE), Cipher is (NONE)
    Protocol  : TLSv1
    Cipher    : 0000
"""
SHORT_TLS13 = """Server Temp Key: X25519, 253 bits
New, TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384
"""
OLD = """New, SSLv3, Cipher is AES256-SHA
    Protocol  : TLSv1.1
    Cipher    : AES256-SHA
"""
DHE = """Server Temp Key: DH, 2048 bits
New, TLSv1.2, Cipher is DHE-RSA-AES256-GCM-SHA384
    Protocol  : TLSv1.2
    Cipher    : DHE-RSA-AES256-GCM-SHA384
"""


@pytest.mark.parametrize(
    ("text", "agreed"),
    [
        ("", None),
        (REFUSED, None),
        (SHORT_TLS13, Agreed("TLSv1.3", "TLS_AES_256_GCM_SHA384", "X25519")),
        (OLD, Agreed("TLSv1.1", "AES256-SHA", "")),
        (DHE, Agreed("TLSv1.2", "DHE-RSA-AES256-GCM-SHA384", "DH 2048")),
        (
            SHORT_TLS13.replace("X25519, 253 bits", "ECDH, prime256v1, 256 bits"),
            Agreed("TLSv1.3", "TLS_AES_256_GCM_SHA384", "prime256v1"),
        ),
    ],
)
def test_a_handshake_is_read(text: str, agreed: Agreed | None) -> None:
    assert parse(text) == agreed
