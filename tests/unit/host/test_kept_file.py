# SPDX-License-Identifier: GPL-2.0-only
"""Files that are kept between runs: private, whole or not there, never through a link."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlstax import cache_directory
from tlstax.analysis.report.output import write
from tlstax.collectors.capture.files import is_stream
from tlstax.collectors.host.kept_file import BYTES_MOST, keep_file, read_kept
from tlstax.collectors.host.probe_costs import costs
from tlstax.collectors.host.probe_costs.prices import HostCosts
from tlstax.collectors.preflight import outcome_cache


def test_a_kept_file_is_private_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "cache/kept.json"
    before = os.umask(0)
    try:
        keep_file(path, b"one")
        keep_file(path, b"two")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["kept.json"]


@pytest.mark.parametrize("what", ["costs", "outcomes"])
def test_nothing_is_left_where_the_disk_is_full(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is open to servers that read what is unpacked there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    if what == "costs":
        costs.save(costs.path(), costs.host(), HostCosts(), cpus_count=1)
    else:
        outcome_cache.save({})
    assert os.listdir(tmp_path / "tlstax") == []
    assert (tmp_path / "tlstax").stat().st_mode & 0o777 == 0o755


def test_no_link_of_a_stranger_is_followed(tmp_path: Path) -> None:
    """Reports are written to /tmp, where everybody may make links and guess a name."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".report.html.{os.getpid()}").symlink_to(victim)
    write(str(tmp_path / "report.html"), b"report")
    (tmp_path / f".kept.{os.getpid()}").symlink_to(victim)
    keep_file(tmp_path / "kept", b"kept")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "report.html").read_bytes() == b"report"
    assert sorted(os.listdir(tmp_path)) == ["kept", "report.html", "victim"]


def test_a_report_to_an_open_output_is_written_into_it(tmp_path: Path) -> None:
    """As to /dev/stdout, a link that root would replace for everybody."""
    with (tmp_path / "redirected").open("ab") as file:
        file.write(b"before\n")
        file.flush()
        write(f"/proc/self/fd/{file.fileno()}", "report")
    assert (tmp_path / "redirected").read_bytes() == b"before\nreport"


@pytest.mark.parametrize("what", ["pipe", "link", "folder", "stranger's", "writable", "endless"])
def test_what_others_may_have_put_there_is_not_read(what: str, tmp_path: Path) -> None:
    """A cache that XDG_CACHE_HOME names may be in a folder of another user."""
    path, other = tmp_path / "kept", tmp_path / "other"
    keep_file(path, b"kept")
    assert read_kept(path) == b"kept"
    if what == "stranger's":
        if os.geteuid():
            pytest.skip("only root gives files away")
        os.chown(path, 54321, 54321)
    elif what == "writable":
        path.chmod(0o666)
    elif what == "endless":
        os.truncate(path, BYTES_MOST + 1)
    else:
        path.rename(other)
        put = {"pipe": os.mkfifo, "link": lambda at: at.symlink_to(other), "folder": Path.mkdir}
        put[what](path)
    with pytest.raises(OSError, match="Errno"):
        read_kept(path)


@pytest.mark.parametrize("name", ["preflight.json", costs.FILE])
@pytest.mark.parametrize("text", ["[" * 200_000, "{}", "[]", "1e999", '{"key": 1, "host": 1}'])
def test_a_damaged_one_is_as_if_it_were_not_there(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_file(tmp_path / "tlstax" / name, text.encode())
    assert outcome_cache.load() is None
    assert costs.load(costs.path(), costs.host()) is None


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a container, whose number no passwd file has."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("geteuid", "getuid"):
        monkeypatch.setattr(os, name, lambda: 54321)
    assert cache_directory().is_absolute()
    assert not cache_directory().exists()


def test_an_open_output_is_no_file_to_replace(tmp_path: Path) -> None:
    """/dev/stdout is a link to a file then, and root may replace what is in /dev."""
    code = (
        "import sys; from pathlib import Path; out = Path('/dev/stdout'); "
        "from tlstax.collectors.capture.files import is_stream; "
        "sys.exit(not (out.is_file() and is_stream(out)))"
    )
    with (tmp_path / "redirected").open("wb") as file:
        assert (
            subprocess.run([sys.executable, "-c", code], stdout=file, check=False).returncode == 0
        )
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "redirected")
    assert is_stream(Path("/dev/null"))
    assert is_stream(Path(f"/proc/{os.getpid()}/fd/1"))
    assert not is_stream(link)
    assert not is_stream(tmp_path / "none")
    assert is_stream(tmp_path), "a folder"
