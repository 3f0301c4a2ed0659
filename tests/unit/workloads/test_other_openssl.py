# SPDX-License-Identifier: GPL-2.0-only
"""A server of a recipe with the OpenSSL of another one: what is refused, what is copied."""

import re
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.matrix.recipe_file import load_recipe
from tlstax.workloads.servers import other_openssl

RECIPE = """\
title = "Versions"
[server.old]
kind = "mariadb118"
openssl = "host"
[matrix]
servers = ["old"]
scenarios = ["connect"]
[scale.smoke]
rounds = 8
"""


def load(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return load_recipe(path).server_of("old").openssl


def test_a_server_may_have_the_openssl_of_another(tmp_path: Path) -> None:
    assert load(tmp_path, RECIPE) == "host"
    assert load(tmp_path, RECIPE.replace('"host"', '"mysql97"')) == "mysql97"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"host"', '"openssl40"', "known servers are host, "),
        ('"mariadb118"', '"mysql56"', "for servers of a later Debian only: mariadb118, mysql97"),
        ('kind = "mariadb118"', 'kind = "host"', "for servers of a later Debian only"),
    ],
)
def test_other_openssl_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    with pytest.raises(TlstaxError, match=re.escape(why)) as caught:
        load(tmp_path, RECIPE.replace(old, new))
    assert caught.value.exit_code == ExitCode.USAGE


def test_files_are_found_and_any_user_may_read_the_copies(tmp_path: Path) -> None:
    files = other_openssl.files_of(other_openssl.HOST)
    assert [path.name for path in files] == list(other_openssl.FILES)
    other_openssl.copy_to(tmp_path / "openssl", files)
    for path in files:
        copy = tmp_path / "openssl" / path.name
        assert copy.read_bytes() == path.read_bytes()
        assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o644, 0o755)


def test_a_host_without_a_shared_openssl_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_openssl, "FILES", ("libssl.so.3", "libcrypto.so.none"))
    with pytest.raises(TlstaxError, match=r"it has no libcrypto\.so\.none") as caught:
        other_openssl.files_of(other_openssl.HOST)
    assert caught.value.exit_code == ExitCode.HOST


def test_a_host_without_ldconfig_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TlstaxError, match=r"it has no libssl\.so\.3"):
        other_openssl.files_of(other_openssl.HOST)
