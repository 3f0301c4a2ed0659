# SPDX-License-Identifier: GPL-2.0-only
"""An answer that no recorder sends is one error, whatever runs on the other host."""

from types import SimpleNamespace
from typing import cast

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.remote.connection import Connection
from tlstax.tests.unit.recording.streams import KNOWN


def test_a_strange_error_is_an_error() -> None:
    def failure(why: str) -> TlstaxError:
        return TlstaxError("db1 cannot be recorded", why, "try", ExitCode.HOST)

    here = cast(Connection, SimpleNamespace(_failure=failure))
    made = Connection.refusal(here, Frame(KNOWN.number("ERROR"), bytes(8)))
    assert "no recorder sends" in made.why
