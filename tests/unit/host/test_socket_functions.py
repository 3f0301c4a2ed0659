# SPDX-License-Identifier: GPL-2.0-only
"""Returns of the kernel's socket functions are not tried where that can hurt the kernel."""

from contextlib import ExitStack

import pytest

from tlstax.collectors.host import socket_events
from tlstax.collectors.host.libbpf import has_struct
from tlstax.collectors.host.settings import LackError


@pytest.mark.needs("btf")
def test_structs_of_this_kernel_are_found() -> None:
    assert has_struct("task_struct")
    assert not has_struct("inet_recvmsg"), "a function"


def test_a_kernel_that_frees_the_code_under_a_sleeper_is_spared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(_stack: ExitStack, _counter: int, name: str) -> int:
        raise AssertionError(f"a program for {name}")

    monkeypatch.setattr(socket_events, "load_return_counter", load)
    monkeypatch.setattr(socket_events, "counter_map", lambda _: 0)
    monkeypatch.setattr(
        socket_events, "_numbers", lambda: dict.fromkeys(socket_events.FUNCTIONS, 1)
    )
    monkeypatch.setattr(socket_events, "has_struct", lambda name: name != socket_events.SAFE_TYPE)
    with pytest.raises(LackError, match="not safe before Linux"):
        socket_events.functions()
    monkeypatch.setattr(socket_events, "has_struct", lambda _: True)
    with pytest.raises(AssertionError, match="a program for inet_recvmsg"):
        socket_events.functions()
