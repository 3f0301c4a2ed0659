# SPDX-License-Identifier: GPL-2.0-only
"""Files below another root directory: links lead to where they lead for the process in it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tlstax.collectors.binary.rooted_files import open_below, open_regular, path_below


def content(root: Path, path: str) -> bytes:
    with open(open_below(root, path), "rb") as file:
        return file.read()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory; beside it a file of the host."""
    (tmp_path / "host.pem").write_bytes(b"of the host")
    made = tmp_path / "root"
    (made / "etc/ssl").mkdir(parents=True)
    (made / "etc/ssl/real.pem").write_bytes(b"of the container")
    return made


@pytest.mark.parametrize(
    ("place", "leads_to"),
    [
        ("etc/link.pem", "/etc/ssl/real.pem"),
        ("etc/link.pem", "ssl/real.pem"),
        ("etc/ssl/link.pem", "../../../../../etc/ssl/real.pem"),
        ("etc/link.pem", "//etc/./ssl/../ssl/real.pem"),
    ],
)
def test_a_link_leads_to_where_it_leads_for_the_process(
    root: Path, place: str, leads_to: str
) -> None:
    (root / place).symlink_to(leads_to)
    assert content(root, f"/{place}") == b"of the container"
    assert path_below(root, place) == root / "etc/ssl/real.pem"


def test_a_folder_that_is_a_link_is_followed_too(root: Path) -> None:
    (root / "data").symlink_to("/etc/ssl")
    assert content(root, "/data/real.pem") == b"of the container"
    assert content(root, "/data/../ssl/real.pem") == b"of the container"


@pytest.mark.parametrize("leads_to", ["{host}", "../../host.pem", "/proc/self/root{host}"])
def test_no_link_leads_out(root: Path, leads_to: str) -> None:
    host = root.parent / "host.pem"
    (root / "etc/link.pem").symlink_to(leads_to.format(host=host))
    with pytest.raises(FileNotFoundError):
        open_below(root, "/etc/link.pem")
    with pytest.raises(FileNotFoundError):
        path_below(root, "/../../host.pem")


def test_a_circle_of_links_ends(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("/a")
    with pytest.raises(OSError, match="Too many levels"):
        open_below(root, "a")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_files_are_opened(root: Path, make: Callable[[Path], None]) -> None:
    """A pipe without a writer would be waited for."""
    make(root / "thing")
    with pytest.raises(OSError, match="not a regular file"):
        open_below(root, "thing")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(root / "thing")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular("/dev/zero")


def test_nothing_stays_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (root / "link").symlink_to("/etc/ssl/real.pem")
    for path in ("/link", "/etc/none", "/etc/ssl/real.pem/none", "with\0nul", "..", ""):
        try:
            path_below(root, path)
            os.close(open_below(root, path))
        except OSError:
            pass
    assert len(os.listdir("/proc/self/fd")) == before
