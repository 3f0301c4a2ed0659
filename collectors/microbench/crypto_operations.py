# SPDX-License-Identifier: GPL-2.0-only
"""Single operations of libcrypto, called through ctypes, to be timed."""

import ctypes
import ssl
from collections.abc import Callable
from ctypes import byref, c_char_p, c_size_t, c_void_p
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError

GROUP: Final = b"X25519"
_HASHED: Final = bytes(130)
"""About the size of what is signed in a TLS 1.3 handshake."""


class CryptoOperations:
    """The few functions of libcrypto that are measured."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(_mapped("libcrypto.so"))
        for name in (
            "BIO_new_file", "PEM_read_bio_PrivateKey", "EVP_MD_CTX_new", "EVP_PKEY_Q_keygen",
            "EVP_PKEY_CTX_new", "EVP_sha256",
        ):  # fmt: skip
            getattr(self._c, name).restype = c_void_p

    def generate_key(self) -> c_void_p:
        """An ephemeral key, freed by the next `free`."""
        key = c_void_p(self._c.EVP_PKEY_Q_keygen(None, None, GROUP))
        self._c.EVP_PKEY_free(key)
        return key

    def deriver(self) -> Callable[[], object]:
        """A function that computes a shared secret, with a new context each time."""
        own, peer = (c_void_p(self._c.EVP_PKEY_Q_keygen(None, None, GROUP)) for _ in range(2))
        secret, length = ctypes.create_string_buffer(64), c_size_t(64)

        def derive() -> int:
            context = c_void_p(self._c.EVP_PKEY_CTX_new(own, None))
            self._c.EVP_PKEY_derive_init(context)
            self._c.EVP_PKEY_derive_set_peer(context, peer)
            length.value = 64
            done = int(self._c.EVP_PKEY_derive(context, secret, byref(length)))
            self._c.EVP_PKEY_CTX_free(context)
            return done

        _expect(derive() == 1, "derive")
        return derive

    def signer(self, key_file: Path) -> tuple[Callable[[], object], Callable[[], object]]:
        """Functions that sign and verify with a private key."""
        file = c_void_p(self._c.BIO_new_file(c_char_p(str(key_file).encode()), b"r"))
        key = c_void_p(self._c.PEM_read_bio_PrivateKey(file, None, None, None))
        self._c.BIO_free(file)
        _expect(bool(key.value), "read a key")
        # Ed25519 includes its hash and accepts no other.
        is_plain = key_file.read_bytes().count(b"\n") <= 4 and "ed25519" in str(key_file.parent)
        digest = None if is_plain else c_void_p(self._c.EVP_sha256())
        signature = ctypes.create_string_buffer(1024)
        length = c_size_t(1024)
        size = c_size_t(len(_HASHED))

        def sign() -> int:
            context = c_void_p(self._c.EVP_MD_CTX_new())
            self._c.EVP_DigestSignInit(context, None, digest, None, key)
            length.value = 1024
            done = int(self._c.EVP_DigestSign(context, signature, byref(length), _HASHED, size))
            self._c.EVP_MD_CTX_free(context)
            return done

        def verify() -> int:
            context = c_void_p(self._c.EVP_MD_CTX_new())
            self._c.EVP_DigestVerifyInit(context, None, digest, None, key)
            done = int(self._c.EVP_DigestVerify(context, signature, length, _HASHED, size))
            self._c.EVP_MD_CTX_free(context)
            return done

        _expect(sign() == 1, "sign")
        _expect(verify() == 1, "verify")
        return sign, verify


def _expect(is_right: bool, what: str) -> None:
    if not is_right:
        raise TlstaxError(
            f"cannot measure {host_library()}",
            f"it failed to {what}",
            "Give costs that were measured by another route: pass --costs",
            ExitCode.HOST,
        )


def host_library() -> str:
    """The OpenSSL that is measured, as captures name it."""
    return " ".join(ssl.OPENSSL_VERSION.split()[:2])


def _mapped(name: str) -> str:
    """The library that Python's ssl module has mapped; another file could be another OpenSSL."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(None, 5)[-1]
        if Path(path).name.startswith(name):
            return path
    raise TlstaxError(
        "cannot measure OpenSSL",
        "this Python links it statically, not as a shared library",
        "Use a Python that is linked with the system's OpenSSL",
        ExitCode.HOST,
    )
