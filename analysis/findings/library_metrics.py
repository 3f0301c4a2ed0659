# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of the server's TLS library, its certificate and its ciphers, which are names mostly."""

import re
from datetime import UTC, datetime
from typing import Final

from tlstax.analysis.findings import throughout, window_metrics
from tlstax.analysis.findings.outcome_metrics import add_sides
from tlstax.analysis.findings.window_metrics import RECORD_CRYPTO, Blocks, Metric, Metrics, exact
from tlstax.analysis.rows.tables import Group, Tables

_HAS_TLS13: Final = re.compile(r"OpenSSL (1\.1\.1|[3-9])|wolfSSL")
"""Libraries with TLS 1.3: OpenSSL since 1.1.1 (RFC 8446), and wolfSSL."""
_OPENSSL: Final = re.compile(r"OpenSSL (\d{1,3}\.\d{1,3})\b")
_EARLY: Final = ("3.0", "3.1")
"""Branches of OpenSSL 3 before 3.2, which fetches methods and locks less."""
_AES_GCM: Final = ({"aes", "pclmulqdq"}, {"aes", "pmull"})
"""Instructions for AES and for GHASH, of x86-64 and of arm64."""
_VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_FIRST_TLS13: Final = (8, 0, 16)
"""https://dev.mysql.com/doc/refman/8.0/en/encrypted-connection-protocols-ciphers.html"""
_FIRST_CHAIN: Final = (8, 0, 30)
"""Before this version MySQL sends only the first certificate of its file (its bug 54158), and so
does yaSSL in any version."""
_OF_MYSQL: Final = ("mysql", "percona")


def add_texts(found: Metrics, part: Group, tables: Tables, blocks: Blocks) -> None:
    """Metrics that are names."""
    target = tables.targets[0] if tables.targets else None
    library = f"{target.tls_library} {target.tls_version}" if target else ""
    suites = window_metrics.names_of(
        row.cipher for row in tables.handshakes if row.window_id in part.window_ids
    )
    add_sides(found, part, tables)
    found["always_signs"] = Metric(None, text="yes" if _always_signs(library, tables) else "no")
    validity, ends = _validity(tables)
    found["certificate_validity"] = Metric(None, text=validity)
    found["certificate_ends"] = Metric(None, text=ends)
    mode = window_metrics.last_text(tables, "Ssl_session_cache_mode").upper()
    offered = {"SERVER": "offered", "BOTH": "offered", "OFF": "not offered", "NONE": "not offered"}
    found["tls_library"] = Metric(None, text=library)
    found["early_openssl3"] = Metric(None, text=_is_early(library))
    found["cipher"] = Metric(None, text=suites)
    key = window_metrics.last_text(tables, "certificate/key")
    for name in ("chain", "chain_bytes"):
        said = window_metrics.last_text(tables, f"certificate/{name}")
        known = throughout.is_number(said) and _sends_chain(library, tables)
        found[f"certificate_{name}"] = exact(float(said)) if known else Metric(None)
    kind, _, bits = key.partition(" ")
    found["certificate_key"] = Metric(None, text=key or "unknown")
    is_rsa = kind == "RSA" and throughout.is_number(bits)
    found["rsa_bits"] = exact(float(bits)) if is_rsa else Metric(None)
    speaks = _HAS_TLS13.search(library) and not _lacks_tls13(tables)
    found["speaks_tls13"] = Metric(None, text="yes" if speaks else "no")
    found["session_cache"] = Metric(None, text=offered.get(mode, "unknown"))
    found["software_crypto"] = Metric(
        None,
        text="yes" if _is_software(library, suites, tables.meta.get("cpu_flags", "")) else "no",
    )
    flags = {*tables.meta.get("cpu_flags", "").split()}
    has_aes = any(flags.issuperset(needed) for needed in _AES_GCM)
    found["has_aes"] = Metric(None, text="yes" if has_aes else "no")
    found["soft_cipher_share"] = blocks.share("worked:soft_cipher", "worked:hard_cipher")
    crypto = blocks.sums(*(f"cpu:record/{name}" for name in (*RECORD_CRYPTO, "tls_protocol")))
    used = bool(crypto[0] > 0.02 * blocks.sums("time:record_write/on_cpu")[0])
    found["tls_bytes"] = Metric(None, text="yes" if used else "no")


def _is_early(library: str) -> str:
    """Whether it is OpenSSL 3.0 or 3.1: yes, no, or unknown without a library or its version."""
    version = _OPENSSL.search(library)
    if version is not None:
        return "yes" if version.group(1) in _EARLY else "no"
    return "unknown" if not library or library.startswith(("OpenSSL", "unknown")) else "no"


def _always_signs(library: str, tables: Tables) -> bool:
    """Whether signatures are recorded and part of each handshake: there is no RSA key exchange."""
    ciphers = {row.cipher for row in tables.handshakes} - {"unknown"}
    is_recorded = any(row.boundary.startswith("sign") for row in tables.probes)
    is_recorded = is_recorded or any(row.sign_ns > 0 for row in tables.handshakes)
    signs = not library.startswith("yaSSL") and all(map(throughout.is_signed, ciphers))
    return is_recorded and signs


def _validity(tables: Tables) -> tuple[str, str]:
    """Whether the server's certificate was valid when the recording began, and its last day.

    The server's own word counts (MySQL's; MariaDB has none in plaintext), else its file.
    """
    last = {row.name: row.value for row in tables.status}
    begins, ends = (
        _told_s(last.get(f"Ssl_server_{name}", "")) or _number(last.get(f"certificate/{name}", ""))
        for name in ("not_before", "not_after")
    )
    began = _number(tables.meta.get("created_wall_ns", ""))
    if begins is None or ends is None or began is None:
        return "unknown", "unknown"
    now_s = began // 10**9
    try:
        day = datetime.fromtimestamp(ends, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return "unknown", "unknown"
    if now_s > ends:
        return "expired", day
    return ("valid" if now_s >= begins else "not yet valid"), day


def _number(text: str) -> int | None:
    return int(text) if throughout.is_number(text) else None


def _told_s(text: str) -> int | None:
    """A date as OpenSSL writes it ('Nov 23 07:18:10 2027 GMT'), in seconds since 1970."""
    try:
        told = datetime.strptime(text.strip(), "%b %d %H:%M:%S %Y %Z")
    except ValueError:
        return None
    return int(told.replace(tzinfo=UTC).timestamp())


def _lacks_tls13(tables: Tables) -> bool:
    """Whether the server has no TLS 1.3 with any library: MySQL before 8.0.16."""
    return tables.targets[0].server in _OF_MYSQL and _is_before(_FIRST_TLS13, tables)


def _sends_chain(library: str, tables: Tables) -> bool:
    """Whether the server sends all certificates of its file, as far as is known."""
    is_mysql = bool(tables.targets) and tables.targets[0].server in _OF_MYSQL
    return not library.startswith("yaSSL") and not (is_mysql and _is_before(_FIRST_CHAIN, tables))


def _is_before(first: tuple[int, ...], tables: Tables) -> bool:
    version = _VERSION.match(tables.targets[0].server_version)
    return version is not None and tuple(map(int, version.groups())) < first


def _is_software(library: str, suites: str, cpu_flags: str) -> bool:
    """Whether records are encrypted without AES instructions: yaSSL, or a CPU that has none.

    A digest for each record (AES-CBC) is no matter of instructions, but of what was agreed.
    """
    if library.startswith("yaSSL"):
        return True
    flags = cpu_flags.split()
    return bool(flags and suites) and "aes" not in flags and "CHACHA20" not in suites
