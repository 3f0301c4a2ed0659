# SPDX-License-Identifier: GPL-2.0-only
"""A client with the OpenSSL of another server: what is refused, what is started."""

import re
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers import make_driver
from tlstax.workloads.drivers.other_libraries import OtherLibraries
from tlstax.workloads.servers import installing


def test_without_a_choice_a_client_is_started_as_ever(tmp_path: Path) -> None:
    assert OtherLibraries().prefix(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"openssl": "openssl40"}, "are host, mariadb118, mysql97"),
        ({"openssl": "mysql56"}, "are host, mariadb118, mysql97"),
        ({"c_library": "host"}, "are mariadb118, mysql97"),
    ],
)
def test_a_name_that_means_nothing_is_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(TlstaxError, match=re.escape(why)) as caught:
        make_driver("sysbench", options)
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root of a later Debian that has nothing but the files that are linked to."""
    root = tmp_path / "root"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libssl.so.3", "libcrypto.so.3", "libc.so.6", "libm.so.6"):
        (libraries / name).touch()
    monkeypatch.setattr(installing, "install", lambda kind, say=None: root)
    monkeypatch.setattr(installing, "place_of", lambda kind: root)
    return libraries


def test_openssl_comes_with_the_c_library_and_its_loader(tmp_path: Path, root: Path) -> None:
    loader = root / "ld-linux-x86-64.so.2"
    loader.touch()
    for _ in range(2):  # each run asks for it
        prefix = OtherLibraries("mariadb118").prefix(tmp_path)
    assert prefix[:2] == (str(loader), "--library-path")
    links = {path.name: path.resolve() for path in Path(prefix[2]).iterdir()}
    assert links["libssl.so.3"] == root / "libssl.so.3"
    assert links["libm.so.6"] == root / "libm.so.6"


def test_a_root_without_a_loader_is_told(tmp_path: Path, root: Path) -> None:
    with pytest.raises(TlstaxError, match="its root has no dynamic loader") as caught:
        OtherLibraries("mariadb118").prefix(tmp_path)
    assert caught.value.exit_code == ExitCode.HOST
