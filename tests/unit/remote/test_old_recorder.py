# SPDX-License-Identifier: GPL-2.0-only
"""A recorder that was built before its sources is named when it is copied to another host."""

import os
from pathlib import Path

import pytest

from tlstax.collectors.host import executable
from tlstax.collectors.remote import connection
from tlstax.collectors.remote.connection import OtherMachineError, connect
from tlstax.collectors.remote.destination import Destination

E_MACHINES = {"x86_64": 62, "aarch64": 183}
HERE = os.uname().machine
THERE = next(name for name in E_MACHINES if name != HERE)


class Connected:
    """A connection with a host of the other machine."""

    def __init__(self, _to: Destination, _recorder: Path, machine: str) -> None:
        if machine == HERE:
            raise OtherMachineError("db1", f"this host is {THERE}", THERE)


@pytest.mark.parametrize("is_old", [False, True])
def test_an_old_one_for_another_machine_is_named(
    is_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`make recorder` builds that of this host only."""
    built = tmp_path / "collectors/recorder/bin"
    changed_s = {"Makefile": 500, "probes/bpf/ledger.h": 300}
    for name in E_MACHINES:
        changed_s[f"{built}/tlstax-recorder.{name}"] = 200 if is_old or name == HERE else 400
    for name, at_s in changed_s.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        machine = E_MACHINES.get(path.suffix[1:], 0)
        path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + machine.to_bytes(2, "little"))
        os.utime(path, (at_s, at_s))
    monkeypatch.setattr(executable, "FOLDER", built)
    monkeypatch.setattr(connection, "Connection", Connected)
    assert isinstance(connect(Destination("db1")), Connected)
    expected = (
        f"tlstax: warning: the recorder for {THERE} is older than ledger.h, from which it is "
        f"built: run `make recorder ARCH={THERE}`, then this command again\n"
    )
    assert capsys.readouterr().err == (expected if is_old else "")


def test_one_that_is_installed_there_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connection, "Connection", lambda *_: None)
    assert connect(Destination("db1", recorder="/opt/tlstax-recorder")) is None
    assert capsys.readouterr().err == ""
