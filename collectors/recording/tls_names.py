# SPDX-License-Identifier: GPL-2.0-only
"""Names of TLS versions and cipher suites, spelled as OpenSSL and the servers' status spell them.

Numbers are those on the wire (IANA TLS Parameters). Suites with pre-shared keys and national
ciphers are left out: MySQL-family servers do not negotiate them.
"""

from typing import Final

VERSIONS: Final = {
    0x0300: "SSLv3",
    0x0301: "TLSv1",
    0x0302: "TLSv1.1",
    0x0303: "TLSv1.2",
    0x0304: "TLSv1.3",
}

CIPHERS: Final = {
    0x0001: "NULL-MD5",
    0x0002: "NULL-SHA",
    0x002F: "AES128-SHA",
    0x0032: "DHE-DSS-AES128-SHA",
    0x0033: "DHE-RSA-AES128-SHA",
    0x0034: "ADH-AES128-SHA",
    0x0035: "AES256-SHA",
    0x0038: "DHE-DSS-AES256-SHA",
    0x0039: "DHE-RSA-AES256-SHA",
    0x003A: "ADH-AES256-SHA",
    0x003B: "NULL-SHA256",
    0x003C: "AES128-SHA256",
    0x003D: "AES256-SHA256",
    0x0040: "DHE-DSS-AES128-SHA256",
    0x0067: "DHE-RSA-AES128-SHA256",
    0x006A: "DHE-DSS-AES256-SHA256",
    0x006B: "DHE-RSA-AES256-SHA256",
    0x006C: "ADH-AES128-SHA256",
    0x006D: "ADH-AES256-SHA256",
    0x009C: "AES128-GCM-SHA256",
    0x009D: "AES256-GCM-SHA384",
    0x009E: "DHE-RSA-AES128-GCM-SHA256",
    0x009F: "DHE-RSA-AES256-GCM-SHA384",
    0x00A2: "DHE-DSS-AES128-GCM-SHA256",
    0x00A3: "DHE-DSS-AES256-GCM-SHA384",
    0x00A6: "ADH-AES128-GCM-SHA256",
    0x00A7: "ADH-AES256-GCM-SHA384",
    0x1301: "TLS_AES_128_GCM_SHA256",
    0x1302: "TLS_AES_256_GCM_SHA384",
    0x1303: "TLS_CHACHA20_POLY1305_SHA256",
    0xC006: "ECDHE-ECDSA-NULL-SHA",
    0xC009: "ECDHE-ECDSA-AES128-SHA",
    0xC00A: "ECDHE-ECDSA-AES256-SHA",
    0xC010: "ECDHE-RSA-NULL-SHA",
    0xC013: "ECDHE-RSA-AES128-SHA",
    0xC014: "ECDHE-RSA-AES256-SHA",
    0xC015: "AECDH-NULL-SHA",
    0xC018: "AECDH-AES128-SHA",
    0xC019: "AECDH-AES256-SHA",
    0xC023: "ECDHE-ECDSA-AES128-SHA256",
    0xC024: "ECDHE-ECDSA-AES256-SHA384",
    0xC027: "ECDHE-RSA-AES128-SHA256",
    0xC028: "ECDHE-RSA-AES256-SHA384",
    0xC02B: "ECDHE-ECDSA-AES128-GCM-SHA256",
    0xC02C: "ECDHE-ECDSA-AES256-GCM-SHA384",
    0xC02F: "ECDHE-RSA-AES128-GCM-SHA256",
    0xC030: "ECDHE-RSA-AES256-GCM-SHA384",
    0xC09C: "AES128-CCM",
    0xC09D: "AES256-CCM",
    0xC09E: "DHE-RSA-AES128-CCM",
    0xC09F: "DHE-RSA-AES256-CCM",
    0xC0A0: "AES128-CCM8",
    0xC0A1: "AES256-CCM8",
    0xC0A2: "DHE-RSA-AES128-CCM8",
    0xC0A3: "DHE-RSA-AES256-CCM8",
    0xC0AC: "ECDHE-ECDSA-AES128-CCM",
    0xC0AD: "ECDHE-ECDSA-AES256-CCM",
    0xC0AE: "ECDHE-ECDSA-AES128-CCM8",
    0xC0AF: "ECDHE-ECDSA-AES256-CCM8",
    0xCCA8: "ECDHE-RSA-CHACHA20-POLY1305",
    0xCCA9: "ECDHE-ECDSA-CHACHA20-POLY1305",
    0xCCAA: "DHE-RSA-CHACHA20-POLY1305",
}


def version_name(number: int) -> str:
    """`TLSv1.3` for 0x0304; `unknown` for what has no name, such as -1."""
    return VERSIONS.get(number, "unknown")


def cipher_name(number: int) -> str:
    """Name of a suite; OpenSSL keeps the number on the wire in the low 16 bits of its id."""
    return CIPHERS.get(number & 0xFFFF, "unknown") if number >= 0 else "unknown"
