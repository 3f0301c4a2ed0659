# SPDX-License-Identifier: GPL-2.0-only
"""The post of OTLP profiles: settings of no use, its end, and what cannot be sent."""

import argparse
import threading

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.report.live import profile_push
from tlstax.analysis.report.live.profile_push import ProfilePush
from tlstax.collectors.commands.watch import otlp_address
from tlstax.tests.otlp_receiver import PATIENCE_S, Collector, stacks, until


def test_the_end_of_a_watch_tries_once(rolled: RolledUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that is away costs its patience once, not twice."""
    tries: list[object] = []

    def post(*of: object) -> tuple[str, bool]:
        tries.append(of)
        return "gone", True

    monkeypatch.setattr(ProfilePush, "_post", post)
    push = ProfilePush("http://127.0.0.1:1", lambda _: None)
    push.add(rolled.recording, rolled.rows["1h"])
    until(lambda: tries)
    push.close()
    assert len(tries) == 2


def test_a_receiver_without_tls_is_no_receiver_that_is_away(
    collector: Collector, rolled: RolledUp
) -> None:
    said: list[str] = []
    push = ProfilePush(collector.address.replace("http:", "https:"), said.append)
    push.add(rolled.recording, rolled.rows["1h"])
    push.close()
    assert ": TLS with it fails (see OTEL_EXPORTER_OTLP_CERTIFICATE)" in said[0]


def test_hours_that_are_being_sent_at_the_end_are_told_by_nobody_else(
    rolled: RolledUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread alone takes hours: two that do may take one that is not there."""
    may_answer, said = threading.Event(), list[str]()

    def post(*_: object) -> tuple[str, bool]:
        may_answer.wait(PATIENCE_S)
        return "", False

    monkeypatch.setattr(ProfilePush, "_post", post)
    monkeypatch.setattr(profile_push, "TIMEOUT_S", 0.01)
    push = ProfilePush("http://127.0.0.1:1", said.append)
    for _ in range(2):
        push.add(rolled.recording, rolled.rows["1h"])
    push.close()
    assert said == ["profiles were still being sent when the watch ended; the data set has them"]
    assert len(push._waiting) == 2
    may_answer.set()
    push._thread.join(PATIENCE_S)
    assert not push._waiting
    assert len(said) == 1


def test_what_otlp_cannot_say_is_told_and_the_next_hour_is_sent(
    collector: Collector, rolled: RolledUp
) -> None:
    said: list[str] = []
    push = ProfilePush(collector.address, said.append)
    odd = [row._replace(phase="\ud800") for row in stacks(rolled)]
    push.add(rolled.recording, {**rolled.rows["1h"], columns.Stacks: list(odd)})
    push.add(rolled.recording, rolled.rows["1h"])
    push.close()
    assert "OTLP cannot say them" in said[0]
    assert len(said) == len(collector.requests) == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HEADERS", "x-key=SECRET%0Aa", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("HEADERS", "x-key=SECRET%E2%82%AC", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("CERTIFICATE", "/nonexistent/ca.pem", "Check OTEL_EXPORTER_OTLP_CERTIFICATE"),
        ("PROFILES_CLIENT_KEY", "/nonexistent/key.pem", "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
    ],
)
def test_settings_of_no_use_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    with pytest.raises(TlstaxError, match=said) as refused:
        ProfilePush("http://127.0.0.1:1", print)
    assert refused.value.exit_code == ExitCode.USAGE
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "http://a..b:4318",
        f"http://{'a' * 64}:4318",
        "http://[::1",
        "http://h:99999",
        "http://h:0",
        "http://h:x",
        "http://:4318",
        "http://h:4318?key=SECRET",
        "http://h:4318#SECRET",
        "http://u:SECRET@h:4318",
        "ftp://h",
        "h:4318",
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="address") as refused:
        otlp_address(text)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["http://h:4318", "https://db-1.example/otlp/v1", "http://[::1]:4318/", "http://a_b"]
)
def test_an_address_is_taken_as_it_is(text: str) -> None:
    assert otlp_address(text) == text
