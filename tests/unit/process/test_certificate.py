# SPDX-License-Identifier: GPL-2.0-only
"""Kind and length of a server's key come from its certificate, or are not said."""

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax.certs.generate import KeyKind, generate
from tlstax.collectors.process.certificate import is_in_use, parse, read_certificate


@pytest.mark.parametrize(("kind", "said"), [("rsa:3072", "RSA 3072"), ("ec:p256", "EC 256")])
def test_the_key_is_told_by_the_certificate(tmp_path: Path, kind: str, said: str) -> None:
    files = generate(tmp_path / "certificates", KeyKind.parse(kind))
    found = read_certificate(os.getpid(), files.server.name, str(files.server.parent))
    assert found is not None
    assert (found.key, found.chain_count) == (said, 1)
    both = parse(files.server.read_bytes() + files.ca.read_bytes())
    assert both is not None
    assert both.chain_count == 2
    assert both.chain_bytes > found.chain_bytes > 300
    assert found.not_before < found.not_after


def test_a_link_of_a_container_is_not_followed_in_the_root_of_the_host(tmp_path: Path) -> None:
    """Docker's secrets and Kubernetes' are absolute links."""
    own = generate(tmp_path / "root/certificates", KeyKind.parse("ec:p256"))
    of_host = generate(tmp_path / "certificates", KeyKind.parse("rsa:2048"))
    root, place = tmp_path / "root", str(own.server.relative_to(tmp_path / "root"))
    (root / str(of_host.server.parent).lstrip("/")).mkdir(parents=True)
    (root / str(of_host.server).lstrip("/")).symlink_to(f"/{place}")
    (root / "link.pem").symlink_to(of_host.server)
    program = "import os, signal, sys; os.chroot(sys.argv[1]); print(flush=True); signal.pause()"
    command = [sys.executable, "-c", program, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline(), "it has another root directory"
            found = read_certificate(child.pid, "link.pem", "/")
        finally:
            child.kill()
    assert found is not None
    assert found.key == "EC 256"


def test_what_is_no_certificate_is_not_guessed(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", tmp_path / "text.pem"
    os.mkfifo(pipe)
    text.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for name in ("pipe", "text.pem", "missing.pem", "."):
        assert read_certificate(os.getpid(), name, str(tmp_path)) is None


def test_a_certificate_of_no_known_version_is_none(tmp_path: Path) -> None:
    files = generate(tmp_path / "certificates", KeyKind.parse("ec:p256"))
    lines = files.server.read_text().split("-----")[2]
    plain = base64.b64decode(lines)
    version = bytes.fromhex("a003020102")  # [0] INTEGER 2: the third version
    assert version in plain
    strange = base64.b64encode(plain.replace(version, bytes.fromhex("a003020107"), 1)).decode()
    text = f"-----BEGIN CERTIFICATE-----\n{strange}\n-----END CERTIFICATE-----\n"
    assert parse(text.encode()) is None


def test_a_file_that_was_replaced_is_not_the_certificate_in_use(tmp_path: Path) -> None:
    files = generate(tmp_path / "certificates", KeyKind.parse("ec:p256"))
    found = parse(files.server.read_bytes())
    assert found is not None
    assert is_in_use(found, f"{found.not_after:%b %d %H:%M:%S %Y} GMT")
    assert not is_in_use(found, "Jan  1 00:00:00 2001 GMT")
    assert not is_in_use(found, "something else")
    assert is_in_use(found, "")
