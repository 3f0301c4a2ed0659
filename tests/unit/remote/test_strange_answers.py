# SPDX-License-Identifier: GPL-2.0-only
"""An answer that no recorder sends is one error, whatever runs on the other host."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.remote.connection import Connection, connect
from tlstax.collectors.remote.destination import Destination
from tlstax.tests.unit.recording.streams import KNOWN, stream, struct


def test_an_error_without_a_code_is_no_success() -> None:
    """A host that ends a recording so would count as recorded to its end."""
    content = bytes(KNOWN.layout("error")(exit_code=0, text=b"fine"))
    here = cast(Connection, SimpleNamespace(destination=Destination("db1")))
    made = Connection.refusal(here, Frame(KNOWN.number("ERROR"), content))
    assert made.exit_code == ExitCode.FAILED


def test_a_strange_error_is_an_error() -> None:
    def failure(why: str) -> TlstaxError:
        return TlstaxError("db1 cannot be recorded", why, "try", ExitCode.HOST)

    here = cast(Connection, SimpleNamespace(_failure=failure))
    made = Connection.refusal(here, Frame(KNOWN.number("ERROR"), bytes(8)))
    assert "no recorder sends" in made.why


def greet_with(version: str, folder: Path) -> str:
    """A PATH with an ssh at whose other end a recorder of that version was installed."""
    text = struct("fact", name_bytes=len("recorder")) + f"recorder{version}".encode()
    (folder / "greeting").write_bytes(stream([("FACT", text)]))
    (folder / "ssh").write_text(f"#!/bin/sh\ncat {folder}/greeting\nexec cat >/dev/null\n")
    (folder / "ssh").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("version", ["0.0.1", f"{__version__}0", "", "\033[2J"])
def test_an_installed_recorder_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """By name, and before it is asked for anything: its answers may mean something else."""
    there = Destination("db1", recorder="/usr/local/libexec/tlstax-recorder")
    monkeypatch.setenv("PATH", greet_with(version, tmp_path))
    with pytest.raises(TlstaxError, match="db1 cannot be recorded") as refused:
        connect(there)
    assert refused.value.exit_code == ExitCode.HOST
    printed = version.replace("\033", "\\x1b")
    assert refused.value.why == f"its recorder has version {printed}"
    monkeypatch.setenv("PATH", greet_with(__version__, tmp_path))
    with connect(there) as connection:
        assert connection.can_be_asked
