# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet record`: what it refuses before the first host."""

from pathlib import Path

import pytest

from tlstax import ExitCode
from tlstax.__main__ import main
from tlstax.analysis.fleet import rounds
from tlstax.analysis.fleet.rounds import Host, hosts_in


def command(folder: Path, hosts: str) -> list[str]:
    """A round of these hosts into the data set `data`."""
    listed = folder / "hosts"
    listed.write_text(hosts)
    words = ["fleet", "record", "--hosts", str(listed), "--name", "mysqld"]
    return [*words, "--data", str(folder / "data")]


@pytest.mark.parametrize(
    "words",
    ["--all", "--ssh=db9", "--ssh db9", "-ofile", "--outp x", "--for 1h", "--name=x", "-h", "--al"],
)
def test_what_a_round_gives_itself_is_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --ssh every host had the recording of that one, with --all the round broke off."""
    monkeypatch.setattr(rounds, "PROGRAM", ("false",))
    assert main([*command(tmp_path, "db1\n"), "--", *words.split()]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert "a round cannot be made with -" in told.err
    assert told.out == ""


@pytest.mark.parametrize("length", ["0s", "0m", "99999m"])
def test_a_length_that_no_recording_has_is_refused_before_the_first_host(
    length: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command(tmp_path, "db1\n"), "--for", length])
    assert f"'{length}' is not between 1s and a week" in capsys.readouterr().err


def test_a_file_of_many_hosts_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name was held against all before it: 10,000 hosts took 14 s of CPU time."""
    named: list[Host] = []

    def noted(host: Host) -> str:
        named.append(host)
        return host.name

    monkeypatch.setattr(Host, "plain_name", property(noted))
    listed = tmp_path / "hosts"
    listed.write_text("".join(f"db{number} eu\n" for number in range(300)))
    found = hosts_in(listed)
    assert [host.name for host in found[:2]] == ["db0", "db1"]
    assert len(found) == len(named) == 300
