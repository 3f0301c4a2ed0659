# SPDX-License-Identifier: GPL-2.0-only
"""The catalogue of servers, and what is done with an archive before it is trusted."""

import io
import tarfile
import threading
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.servers import any_server, cache, configuration, debian_root, installing
from tlstax.workloads.servers.catalogue import SIGNED, find_kind, load_catalogue, parse_kind

GOOD = """
name = "own"
server = "Own 1"
tls_library = "none"
family = "mysql"
[source]
client = "npm"
package = "own-server"
version = "1"
sha256 = "00"
tree = "package"
[start]
program = "bin/own"
data = "initialize"
"""


def test_every_server_of_the_catalogue_is_complete() -> None:
    catalogue = load_catalogue()
    assert set(catalogue) == {
        *("mysql56", "mysql57", "mysql80", "mysql97"),
        *("mariadb", "mariadb102", "mariadb1011", "mariadb118"),
    }
    for name, kind in catalogue.items():
        assert kind.name == name
        assert len(kind.source.sha256) == (0 if kind.source.client in SIGNED else 64)
        assert bool(kind.start.data_template) == (kind.start.data == "copy")


def test_an_unknown_server_is_one_clear_line() -> None:
    with pytest.raises(TlstaxError, match="known servers are mariadb, ") as caught:
        find_kind("oracle")
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('name = "own"', "", "'name' is missing"),
        ('client = "npm"', 'client = "wget"', "not one of npm"),
        ('family = "mysql"', 'family = "oracle"', "not one of mysql"),
        ('tree = "package"', 'suite = "sid"', "a suite belongs to a debian-root"),
        ('sha256 = "00"', "", "lacks the version or the sha256"),
        ('program = "bin/own"', "program = 3", "'program' is not a str"),
        ('data = "initialize"', 'data = "initialize"\noptions = "x"', "'options' is not a tuple"),
        ('tree = "package"', 'size = "3 MB"', "'size' is not known here"),
        ("[start]", "[start", "not TOML"),
    ],
)
def test_what_is_refused(before: str, after: str, reason: str) -> None:
    assert before in GOOD
    with pytest.raises(TlstaxError, match=r"own\.toml") as caught:
        parse_kind(GOOD.replace(before, after, 1), "own.toml")
    assert reason in caught.value.why


def test_the_cache_is_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    kind = parse_kind(GOOD, "own.toml")
    assert installing.place_of(kind) == Path("/some/where/tlstax/servers/own-1")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.server_cache().is_absolute()


def test_another_file_than_the_known_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(installing, "_require_client", lambda kind: None)

    def bring(kind: object, command: list[str], directory: Path) -> None:
        (directory / "own-server-1.tgz").write_bytes(b"something else")

    monkeypatch.setattr(installing, "_run", bring)
    with pytest.raises(TlstaxError, match="SHA-256 differs") as caught:
        installing.install(parse_kind(GOOD, "own.toml"))
    assert caught.value.exit_code is ExitCode.IO
    left = [path.name for path in (tmp_path / "tlstax/servers").iterdir()]
    assert left == [".lock-own-1"]


def test_nothing_is_unpacked_outside_of_its_directory(tmp_path: Path) -> None:
    archive = tmp_path / "own.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("package/bin/own", "../escaped", "/tmp/tlstax-escaped", "package/../../up"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"\x7fELF"))
        for name, to in (("package/near", "bin/own"), ("package/far", "../../far")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, to
            tar.addfile(member)
    tree = installing._unpack(archive, parse_kind(GOOD, "own.toml").source, tmp_path / "unpacked")
    installing._open_to_all(tree)
    assert sorted(path.name for path in tree.rglob("*")) == ["bin", "near", "own"]
    assert (tree / "bin/own").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.tgz", "unpacked"]


def test_what_a_killed_install_left_is_removed_and_only_that(tmp_path: Path) -> None:
    for name in (".fetching-own-1-abc", ".fetching-other-1-abc", "other-1"):
        (tmp_path / name / "part").mkdir(parents=True)
    with cache.only_builder(tmp_path / "own-1") as prefix:
        assert prefix == ".fetching-own-1-"
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert names == [".fetching-other-1-abc", "other-1"]


def test_one_builder_waits_for_the_other(tmp_path: Path) -> None:
    place, order = tmp_path / "own-1", []

    def second() -> None:
        with cache.only_builder(place):
            order.append("second")

    with cache.only_builder(place):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_version_of_an_unpacked_package_is_what_was_got(tmp_path: Path) -> None:
    assert debian_root.package_version(tmp_path, "own-server") == ""
    text = "base-files 14\nown-server 1:9.7.4-2\n"
    (tmp_path / debian_root.PACKAGES_FILE).write_text(text)
    assert debian_root.package_version(tmp_path, "own-server") == "1:9.7.4-2"
    assert debian_root.package_version(tmp_path, "own") == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#!/bin/sh\n", "no ELF program"),
        (b"\x7fELF and no such name", "defines no dispatch_command"),
        (b"\x7fELF _Z16dispatch_command but no program", "cannot be asked for its version"),
    ],
)
def test_what_is_no_server_is_one_clear_line(tmp_path: Path, content: bytes, reason: str) -> None:
    program = tmp_path / "mysqld"
    program.write_bytes(content)
    program.chmod(0o755)
    with pytest.raises(TlstaxError, match=r"cannot start .*mysqld as a server") as caught:
        any_server.examine(program)
    assert reason in caught.value.why
    assert caught.value.exit_code is ExitCode.TARGET


def test_a_closed_directory_above_a_server_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "server").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(TlstaxError, match=r"no search permission for .*closed"):
        installing.require_readable(closed / "server", "nobody")


def test_options_of_any_server(tmp_path: Path) -> None:
    settings = configuration.ServerSettings(port=12345)
    text = configuration.common_options(settings, Path("/d"), ["mysqlx = OFF"])
    lines = text.splitlines()
    assert {"port = 12345", "datadir = /d/data", "mysqlx = OFF"} <= set(lines)
    assert "bind_address = 127.0.0.1" in lines
