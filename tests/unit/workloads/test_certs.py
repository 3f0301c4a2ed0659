# SPDX-License-Identifier: GPL-2.0-only
"""Certificates: every kind verifies by openssl, files are private, nothing is overwritten."""

import errno
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.certs import generate as certs
from tlstax.certs.generate import Certificates, KeyKind, generate

KINDS = ["rsa:1024", "rsa:2048", "rsa:3072", "rsa:4096", "ec:p256", "ec:p384", "ed25519"]


def openssl(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_openssl_verifies_every_kind(kind: str, tmp_path: Path) -> None:
    made = generate(tmp_path / "certs", KeyKind.parse(kind))
    for purpose, certificate in (("sslserver", made.server), ("sslclient", made.client)):
        level = ["-auth_level", "0"] if kind == "rsa:1024" else ["-auth_level", "2"]
        openssl("verify", "-CAfile", made.ca, "-purpose", purpose, *level, certificate)
    for certificate, key in ((made.server, made.server_key), (made.client, made.client_key)):
        of_certificate = openssl("x509", "-in", certificate, "-noout", "-pubkey")
        assert of_certificate == openssl("pkey", "-in", key, "-pubout")
    assert made.sysbench_ca.read_bytes() == made.ca.read_bytes()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_server_is_known_by_its_addresses(address: str, tmp_path: Path) -> None:
    made = generate(tmp_path, KeyKind.parse("ec:p256"))
    openssl("verify", "-CAfile", made.ca, "-verify_ip", address, made.server)
    openssl("verify", "-CAfile", made.ca, "-verify_hostname", "localhost", made.server)


def test_a_client_certificate_is_no_server_certificate(tmp_path: Path) -> None:
    made = generate(tmp_path, KeyKind.parse("ec:p256"))
    command = ["openssl", "verify", "-CAfile", str(made.ca), "-purpose", "sslserver"]
    refused = subprocess.run([*command, str(made.client)], capture_output=True, check=False)
    assert refused.returncode != 0


def test_validity_is_ten_years_and_backdated(tmp_path: Path) -> None:
    made = generate(tmp_path, KeyKind.parse("ec:p256"))
    certificate = x509.load_pem_x509_certificate(made.server.read_bytes())
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 3651
    ca = x509.load_pem_x509_certificate(made.ca.read_bytes())
    assert len({certificate.serial_number, ca.serial_number}) == 2


def test_files_are_private_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int, int]] = []
    really_open = os.open

    def spy(path: str, flags: int, mode: int = 0o777) -> int:
        opened.append((str(path), flags, mode))
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", spy)
    old_mask = os.umask(0)  # the worst case: nothing is masked away
    try:
        made = generate(tmp_path / "new", KeyKind.parse("ec:p256"))
    finally:
        os.umask(old_mask)
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.files} == {0o600}
    beside = {path.with_name(f".{path.name}.{os.getpid()}") for path in made.files}
    assert {path for path, _, _ in opened} >= set(map(str, beside))
    assert all(flags & os.O_EXCL and mode == 0o600 for _, flags, mode in opened)


def test_refuses_to_overwrite_and_writes_nothing(tmp_path: Path) -> None:
    paths = Certificates.in_directory(tmp_path)
    paths.client_key.write_text("precious")
    with pytest.raises(TlstaxError, match=r"cannot overwrite .*client-key\.pem") as caught:
        generate(tmp_path, KeyKind.parse("ec:p256"))
    assert caught.value.exit_code == ExitCode.IO
    assert paths.client_key.read_text() == "precious"
    assert [path for path in paths.files if path.exists()] == [paths.client_key]


def test_force_replaces_the_file_and_not_what_a_link_points_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    directory = tmp_path / "certs"
    directory.mkdir()
    (directory / "ca.pem").symlink_to(elsewhere)
    with pytest.raises(TlstaxError, match="cannot overwrite"):
        generate(directory, KeyKind.parse("ec:p256"))
    made = generate(directory, KeyKind.parse("ec:p256"), force=True)
    assert elsewhere.read_text() == "precious"
    assert not made.ca.is_symlink()
    openssl("verify", "-CAfile", made.ca, made.server)


@pytest.mark.parametrize(
    ("kind", "pkcs1", "first_line"),
    [
        ("rsa:2048", True, "-----BEGIN RSA PRIVATE KEY-----"),
        ("rsa:2048", False, "-----BEGIN PRIVATE KEY-----"),
        ("ec:p256", True, "-----BEGIN EC PRIVATE KEY-----"),
    ],
)
def test_traditional_form(kind: str, pkcs1: bool, first_line: str, tmp_path: Path) -> None:
    made = generate(tmp_path, KeyKind.parse(kind), pkcs1=pkcs1)
    for key in (made.ca_key, made.server_key, made.client_key):
        assert key.read_text().splitlines()[0] == first_line
        openssl("pkey", "-in", key, "-noout")


def test_ed25519_has_no_traditional_form(tmp_path: Path) -> None:
    with pytest.raises(TlstaxError, match="Ed25519") as caught:
        generate(tmp_path / "certs", KeyKind.parse("ed25519"), pkcs1=True)
    assert caught.value.exit_code == ExitCode.USAGE
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize(
    "text", ["", "rsa", "rsa:1000", "rsa:512", "rsa:8192", "rsa:-1024", "ec:p521", "ed25519:1"]
)
def test_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises(TlstaxError, match="known kinds are") as caught:
        KeyKind.parse(text)
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TlstaxError, match="cannot write") as caught:
        generate(tmp_path / "file" / "certs", KeyKind.parse("ec:p256"))
    assert caught.value.exit_code == ExitCode.IO


def test_a_directory_that_cannot_be_entered(tmp_path: Path) -> None:
    """A name that is too long fails as a folder without permission does, for root too."""
    with pytest.raises(TlstaxError, match="File name too long") as caught:
        generate(tmp_path / ("a" * 300), KeyKind.parse("ec:p256"))
    assert caught.value.exit_code == ExitCode.IO


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_what_was_there(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "certs"
    if force:
        generate(directory, KeyKind.parse("ec:p256"))
    before = {path.name: path.read_bytes() for path in directory.glob("*")}
    whole, calls = certs.write_private, []

    def full(path: Path, data: bytes, *, replace: bool = False) -> None:
        calls.append(path)
        whole(path, data[: 10 if len(calls) == 3 else None], replace=replace)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(certs, "write_private", full)
    with pytest.raises(TlstaxError, match="No space"):
        generate(directory, KeyKind.parse("ec:p256"), force=force)
    assert {path.name: path.read_bytes() for path in directory.glob("*")} == before
    assert not list(directory.glob(".*"))
    assert directory.exists() == force


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("failing", ["server-key.pem", "cacert.pem"])
def test_a_file_that_cannot_be_put_in_its_place_leaves_the_whole_set(
    is_new: bool, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of one set with the key of another stops a server at its next start."""
    directory = tmp_path / "certs"
    if not is_new:
        generate(directory, KeyKind.parse("ec:p256"))
    before = {path.name: path.read_bytes() for path in directory.glob("*")}

    def refused(rename: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def rename_or_fail(path: Path, target: Path) -> Path:
            if target.name == failing and not path.name.endswith(".old"):
                raise OSError(errno.EIO, "Input/output error", str(target))
            return rename(path, target)

        return rename_or_fail

    for how in ("rename", "replace"):
        monkeypatch.setattr(Path, how, refused(getattr(Path, how)))
    with pytest.raises(TlstaxError, match="Input/output error"):
        generate(directory, KeyKind.parse("ec:p256"), force=True)
    assert {path.name: path.read_bytes() for path in directory.glob("*")} == before
    assert not list(directory.glob(".*"))


def test_what_a_killed_run_set_aside_is_not_lost_by_the_next_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container each run may have the same process id."""
    made = generate(tmp_path, KeyKind.parse("ec:p256"))
    before = {path.name: path.read_bytes() for path in made.files}
    for path in made.files:
        path.rename(path.with_name(f".{path.name}.{os.getpid()}.old"))
    rename = Path.rename

    def rename_or_fail(path: Path, target: Path) -> Path:
        if target.name == "server-key.pem" and not path.name.endswith(".old"):
            raise OSError(errno.EIO, "Input/output error", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_or_fail)
    with pytest.raises(TlstaxError, match="Input/output error"):
        generate(tmp_path, KeyKind.parse("ec:p256"), force=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["ca.pem", "server-key.pem"])
def test_a_folder_in_the_place_of_a_file_leaves_the_whole_set(name: str, tmp_path: Path) -> None:
    made = generate(tmp_path, KeyKind.parse("ec:p256"))
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    before = {path.name: path.read_bytes() for path in made.files if path.is_file()}
    with pytest.raises(TlstaxError, match=f"cannot write .*{name}: Is a directory"):
        generate(tmp_path, KeyKind.parse("ec:p256"), force=True)
    assert {path.name: path.read_bytes() for path in made.files if path.is_file()} == before
    assert (tmp_path / name).is_dir()
    assert not list(tmp_path.glob(".*"))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "certs"
    assert main(["certs", str(directory), "--key", "ec:p384"]) == ExitCode.OK
    assert "ec:p384" in capsys.readouterr().out
    assert main(["certs", str(directory)]) == ExitCode.IO
    assert capsys.readouterr().err.startswith("tlstax: cannot overwrite")
    assert main(["certs", str(directory), "--key", "ed25519", "--force"]) == ExitCode.OK
