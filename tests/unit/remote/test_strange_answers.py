# SPDX-License-Identifier: GPL-2.0-only
"""An answer that no recorder sends is one error, whatever runs on the other host."""

from types import SimpleNamespace
from typing import cast

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.destination import Destination
from tlstax.tests.unit.recording.streams import KNOWN


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
