# SPDX-License-Identifier: GPL-2.0-only
"""What no recorder sends is one error, whatever runs on the other host."""

import io
from types import SimpleNamespace
from typing import cast

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.recording.stream.frames import Frame
from tlstax.collectors.recording.stream.replay import Replay
from tlstax.collectors.recording.stream.totals import StreamError
from tlstax.collectors.remote.connection import Connection
from tlstax.collectors.remote.remote_recording import _Heard
from tlstax.tests.unit.recording.streams import KNOWN, stream, struct


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 8,
        struct("budget", share_ppm=5000, dense=b"record", light=b"none"),
        struct("budget", share_ppm=5000, base_ns=1, cycle_ns=1, dense=b"much", light=b"none"),
    ],
)
def test_a_strange_budget_ends_the_recording(content: bytes) -> None:
    with pytest.raises(StreamError, match="no recorder writes"):
        Replay(io.BytesIO(stream([("BUDGET", content)])), _Heard(pytest.fail))


def test_a_budget_is_told_before_the_first_window() -> None:
    content = struct(
        "budget", share_ppm=5000, base_ns=1, cycle_ns=1, dense=b"record", light=b"none"
    )
    told: list[str] = []
    with pytest.raises(StreamError):
        Replay(io.BytesIO(stream([("BUDGET", content)])), _Heard(told.append))
    assert len(told) == 1


def test_a_strange_error_is_an_error() -> None:
    def failure(why: str) -> TlstaxError:
        return TlstaxError("db1 cannot be recorded", why, "try", ExitCode.HOST)

    here = cast(Connection, SimpleNamespace(_failure=failure))
    made = Connection.refusal(here, Frame(KNOWN.number("ERROR"), bytes(8)))
    assert "no recorder sends" in made.why
