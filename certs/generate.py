# SPDX-License-Identifier: GPL-2.0-only
"""Keys and certificates for a private server: a CA, a server and a client.

Everything is made with the `cryptography` library. Private keys never appear on a command line,
and every file is created with mode 0600 (`os.open`, never `chmod`).

File names follow the options of MariaDB and MySQL (`ca.pem`, `server-cert.pem`, `server-key.pem`)
and sysbench 1.0, which reads exactly `cacert.pem`, `client-cert.pem` and `client-key.pem` from its
working directory.
"""

import datetime
import errno
import ipaddress
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tlstax import ExitCode, TlstaxError

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

KEY_KINDS = ("rsa:1024..4096", "ec:p256", "ec:p384", "ed25519")
CURVES: Mapping[str, type[ec.EllipticCurve]] = {"p256": ec.SECP256R1, "p384": ec.SECP384R1}
RSA_BITS_MIN, RSA_BITS_MAX, RSA_BITS_STEP = 1024, 4096, 256

VALIDITY = datetime.timedelta(days=3650)
# A client whose clock is a little behind must not find a certificate "not yet valid".
BACKDATING = datetime.timedelta(days=1)

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


@dataclass(frozen=True)
class KeyKind:
    """Kind of key to make: `family` is rsa, ec or ed25519; `detail` its bits or its curve."""

    family: str
    detail: str = ""

    @classmethod
    def parse(cls, text: str) -> "KeyKind":
        """Read `rsa:2048`, `ec:p256`, `ec:p384` or `ed25519`; TlstaxError (USAGE) for others."""
        family, _, detail = text.strip().lower().partition(":")
        if family == "rsa" and detail.isdecimal():
            bits = int(detail)
            if RSA_BITS_MIN <= bits <= RSA_BITS_MAX and bits % RSA_BITS_STEP == 0:
                return cls("rsa", str(bits))
        if (family == "ec" and detail in CURVES) or (family == "ed25519" and not detail):
            return cls(family, detail)
        raise TlstaxError(
            f"cannot make a key of kind '{text}'",
            f"known kinds are {', '.join(KEY_KINDS)} (RSA in steps of {RSA_BITS_STEP} bits)",
            "Choose one of them, such as --key rsa:2048",
            ExitCode.USAGE,
        )

    def __str__(self) -> str:
        return f"{self.family}:{self.detail}" if self.detail else self.family

    def make(self) -> PrivateKey:
        """A new random private key of this kind."""
        if self.family == "rsa":
            return rsa.generate_private_key(public_exponent=65537, key_size=int(self.detail))
        if self.family == "ec":
            return ec.generate_private_key(CURVES[self.detail]())
        return ed25519.Ed25519PrivateKey.generate()

    @property
    def signature_hash(self) -> hashes.SHA256 | hashes.SHA384 | None:
        """The digest that certificates of this kind are signed with; Ed25519 includes one."""
        if self.family == "ed25519":
            return None
        return hashes.SHA384() if self.detail == "p384" else hashes.SHA256()


@dataclass(frozen=True)
class Certificates:
    """The files that `generate` makes, by purpose."""

    directory: Path
    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    sysbench_ca: Path

    @classmethod
    def in_directory(cls, directory: Path) -> "Certificates":
        """The paths that belong to `directory`, whether or not they exist."""
        return cls(
            directory=directory,
            ca=directory / "ca.pem",
            ca_key=directory / "ca-key.pem",
            server=directory / "server-cert.pem",
            server_key=directory / "server-key.pem",
            client=directory / "client-cert.pem",
            client_key=directory / "client-key.pem",
            sysbench_ca=directory / "cacert.pem",
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file of the set."""
        own = (self.ca, self.ca_key, self.server, self.server_key)
        return (*own, self.client, self.client_key, self.sysbench_ca)


def generate(
    directory: Path, kind: KeyKind, *, pkcs1: bool = False, force: bool = False
) -> Certificates:
    """Make the whole set in `directory` and return its paths.

    `pkcs1` writes keys in the traditional form ("BEGIN RSA PRIVATE KEY"), which servers built
    on yaSSL and other old libraries need. Nothing is written unless everything can be: an existing
    file is a TlstaxError (IO) that names it, unless `force` is given.
    """
    if pkcs1 and kind.family == "ed25519":
        raise TlstaxError(
            "cannot write an Ed25519 key in the traditional form",
            "traditional forms (PKCS#1, SEC 1) are defined for RSA and EC keys only",
            "Leave out --pkcs1 or choose --key rsa:2048",
            ExitCode.USAGE,
        )
    paths = Certificates.in_directory(directory)
    existing = [path for path in paths.files if os.path.lexists(path)]
    if existing and not force:
        raise TlstaxError(
            f"cannot overwrite {existing[0]}",
            "it exists, and a lost key cannot be recreated",
            "Choose another directory, or give --force to replace the whole set",
            ExitCode.IO,
        )
    contents = _contents(paths, kind, pkcs1)
    try:
        _write_set(directory, contents)
    except OSError as error:
        raise TlstaxError(
            f"cannot write {error.filename or directory}",
            str(error.strerror or error),
            "Choose a directory that you may write to and that has space",
            ExitCode.IO,
        ) from error
    return paths


def _write_set(directory: Path, contents: Mapping[Path, bytes]) -> None:
    """Write all files beside their places before the first one is put there. Raises OSError."""
    is_new = not os.path.lexists(directory)
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    scratch = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in contents}
    try:
        for path, data in contents.items():
            write_private(scratch[path], data, replace=True)
        _put_in_place(scratch)
    except BaseException:
        for written in scratch.values():
            written.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # it has files by now
                directory.rmdir()
        raise


def _put_in_place(scratch: Mapping[Path, Path]) -> None:
    """Rename each written file to its place, or leave those that are there. Raises OSError.

    Earlier files are set aside before the first new one is put there, so a set is never mixed: if
    the process is killed meanwhile, files are missing, and `.NAME.PID.old` has the earlier ones.
    """
    former = {path: written.with_name(f"{written.name}.old") for path, written in scratch.items()}
    for path, old in former.items():
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if os.path.lexists(old):  # of a process of this number that was killed
            _leave_former(path, old)
    try:
        for path, old in former.items():
            if os.path.lexists(path):
                path.rename(old)
        for path, written in scratch.items():
            written.rename(path)
    except BaseException:
        for path, old in former.items():
            with suppress(OSError):  # the others are put back, and the first error is told
                if not os.path.lexists(scratch[path]):  # it is in its place
                    path.unlink(missing_ok=True)
                if os.path.lexists(old):
                    old.rename(path)
        raise
    for old in former.values():
        with suppress(OSError):  # the set is in its place
            old.unlink(missing_ok=True)


def _leave_former(path: Path, old: Path) -> None:
    """Remove an earlier file that was set aside, unless it is the only one."""
    if os.path.lexists(path):
        old.unlink()
    else:
        old.rename(path)


def write_private(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Create `path` with mode 0600; with `replace` an existing file is replaced."""
    if replace:
        path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as file:
        file.write(data)


def _contents(paths: Certificates, kind: KeyKind, pkcs1: bool) -> dict[Path, bytes]:
    """Every file's content, all made before the first one is written."""
    ca_key, server_key, client_key = kind.make(), kind.make(), kind.make()
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    # The three subjects differ, because TLS libraries treat a certificate whose issuer equals its
    # subject as self-signed.
    ca = _certificate("tlstax private CA", ca_key, None, ca_key, kind, now)
    server = _certificate("tlstax server", server_key, ca, ca_key, kind, now)
    client = _certificate("tlstax client", client_key, ca, ca_key, kind, now)
    ca_pem = _pem(ca)
    return {
        paths.ca: ca_pem,
        paths.ca_key: _key_pem(ca_key, pkcs1),
        paths.server: _pem(server),
        paths.server_key: _key_pem(server_key, pkcs1),
        paths.client: _pem(client),
        paths.client_key: _key_pem(client_key, pkcs1),
        paths.sysbench_ca: ca_pem,
    }


def _certificate(
    name: str,
    key: PrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: PrivateKey,
    kind: KeyKind,
    now: datetime.datetime,
) -> x509.Certificate:
    """One X.509 version 3 certificate for `key`; `issuer` None makes the self-signed CA."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(now + VALIDITY)
        .add_extension(_basic_constraints(issuer is None), critical=True)
        .add_extension(_key_usage(kind, issuer is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if issuer is not None:
        purpose = (
            ExtendedKeyUsageOID.SERVER_AUTH if "server" in name else ExtendedKeyUsageOID.CLIENT_AUTH
        )
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        builder = builder.add_extension(_alternative_names(), critical=False)
    return builder.sign(issuer_key, kind.signature_hash)


def _basic_constraints(is_ca: bool) -> x509.BasicConstraints:
    return x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None)


def _alternative_names() -> x509.SubjectAlternativeName:
    """The names by which a server on this machine is reached."""
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    return x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), *(x509.IPAddress(address) for address in addresses)]
    )


def _key_usage(kind: KeyKind, is_ca: bool) -> x509.KeyUsage:
    """What the key may do: a CA signs certificates, a leaf signs handshakes.

    RSA leaves may also decrypt, for the RSA key exchange of TLS 1.2 and older servers.
    """
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_encipherment=kind.family == "rsa" and not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: PrivateKey, pkcs1: bool) -> bytes:
    """The private key, unencrypted: servers start unattended."""
    form = serialization.PrivateFormat
    return key.private_bytes(
        serialization.Encoding.PEM,
        form.TraditionalOpenSSL if pkcs1 else form.PKCS8,
        serialization.NoEncryption(),
    )
