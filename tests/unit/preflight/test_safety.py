# SPDX-License-Identifier: GPL-2.0-only
"""From findings to what a recording leaves out, or refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.features import HOST, Feature
from tlstax.collectors.host.settings import LackError
from tlstax.collectors.host.socket_events import SocketSource
from tlstax.collectors.placement.model import NO_LIMITS, Limits
from tlstax.collectors.preflight.hazards import VARIANTS, load_hazards
from tlstax.collectors.preflight.judge import Finding, Status
from tlstax.collectors.preflight.safety import Safety, at_level, safety_of
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.safe_request import (
    limits_of,
    made_safe,
    require_safe_sources,
)
from tlstax.collectors.recording.safety_rows import safety_rows
from tlstax.probes.model import Level

HAZARDS = {hazard.id: hazard for hazard in load_hazards()}
SAFE = Safety()
EXPECTED = {
    "leaf-return-probes": SAFE,
    "single-probes": SAFE,
    "warn": SAFE,
    "no-return-probes": replace(SAFE, limits=Limits(return_probes=False)),
    "no-nop5-probes": replace(SAFE, limits=Limits(nop5=False)),
    "no-stepped-probes": replace(SAFE, limits=Limits(stepped=False)),
    "guarded-programs": replace(SAFE, guarded=True),
    "no-user-stacks": replace(SAFE, user_stacks=False),
    "no-samples": replace(SAFE, samples=False),
    "sample-only": replace(SAFE, level_most=Level.SAMPLE),
}


def finding(name: str, status: Status = Status.VARIANT) -> Finding:
    return Finding(HAZARDS[name], status, "it was seen")


def with_variant(variant: str) -> str:
    return next(hazard.id for hazard in HAZARDS.values() if hazard.variant == variant)


def request(safety: Safety, **more: object) -> Request:
    return Request(17, Path("x.tlstax"), safety=safety, **more)  # type: ignore[arg-type]


def test_every_variant_is_tested_here() -> None:
    assert set(EXPECTED) == set(VARIANTS) - {"refuse"}
    assert {hazard.variant for hazard in HAZARDS.values()} == set(VARIANTS)


@pytest.mark.parametrize("variant", EXPECTED)
def test_a_variant_is_applied(variant: str) -> None:
    name = with_variant(variant)
    safety = safety_of(17, [finding(name)])
    assert replace(safety, notes=(), causes=()) == EXPECTED[variant]
    assert safety.causes_of(variant) == [name]


@pytest.mark.parametrize("status", [Status.OK, Status.NOT_AFFECTED, Status.UNKNOWN])
def test_what_is_not_there_restricts_nothing(status: Status) -> None:
    assert safety_of(17, [finding(name, status) for name in HAZARDS]) == SAFE


def test_what_is_accepted_restricts_nothing_and_is_noted() -> None:
    safety = safety_of(17, [finding("exit-race", Status.ACCEPTED)])
    assert replace(safety, notes=()) == SAFE
    ((name, text),) = safety.notes
    assert name == "exit-race"
    assert text.startswith("Accepted: it was seen. ")


def test_what_is_left_out_is_noted_in_the_capture() -> None:
    safety = safety_of(17, [finding("exit-race"), finding("replaced-files"), finding("red-zone")])
    rows = list(safety_rows(safety, 3))
    assert [(row.target_id, row.subject) for row in rows] == [
        (3, "preflight (exit-race)"),
        (3, "preflight (replaced-files)"),
    ]
    assert rows[0].consequence.startswith("No user stacks: it was seen. Walking")
    assert list(safety_rows(None)) == []


@pytest.mark.parametrize(
    ("name", "code"), [("tracer", ExitCode.TARGET), ("lockdown", ExitCode.HOST)]
)
def test_a_refusal_says_how_to_accept_it(name: str, code: ExitCode) -> None:
    with pytest.raises(TlstaxError, match=f"--accept {name}") as raised:
        safety_of(17, [finding("red-zone"), finding(name, Status.REFUSED)])
    assert raised.value.exit_code == code


def test_a_request_is_reduced() -> None:
    reduced = made_safe(request(Safety(level_most=Level.SAMPLE), client_level=Level.COMMAND))
    assert (reduced.level, reduced.client_level, reduced.sample_hz) == (
        *(Level.SAMPLE, Level.SAMPLE, 99),
    )
    reduced = made_safe(request(Safety(samples=False)))
    assert (reduced.level, reduced.sample_hz) == (Level.RECORD, 0)
    limits = Limits(nop5=False)
    assert limits_of(request(Safety(limits=limits))) == limits
    assert limits_of(replace(request(SAFE), safety=None)) == NO_LIMITS


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (["hugetlb-text"], {"functions": ("cipher",)}),
        (["shadow-stack"], {"functions": ("cipher",)}),
        (["private-stacks"], {"functions": ("cipher",)}),
        (["cpu-clock-free", "hugetlb-text"], {}),
        (["cpu-clock-free"], {"level": Level.SAMPLE}),
    ],
)
def test_a_request_of_which_nothing_is_left_is_refused(
    names: list[str], more: dict[str, object]
) -> None:
    safety = safety_of(17, [finding(name) for name in names])
    with pytest.raises(TlstaxError, match=f"--accept {names[0]}") as raised:
        made_safe(request(safety, **more))
    assert raised.value.exit_code == ExitCode.HOST


def test_a_recording_without_samples_on_purpose_is_none_of_preflights_business() -> None:
    assert made_safe(request(SAFE, sample_hz=0, level=Level.SAMPLE)).sample_hz == 0


@pytest.mark.parametrize(
    ("name", "source"),
    [("exit-race", "bpftrace"), ("private-stacks", "bcc"), ("cpu-clock-freeze", "perf")],
)
def test_other_engines_are_refused_what_is_left_out(name: str, source: str) -> None:
    safety = safety_of(17, [finding(name)])
    with pytest.raises(TlstaxError, match=f"--accept {name}"):
        require_safe_sources(safety, ["native", "iostat", source])
    require_safe_sources(safety, ["native", "iostat"])
    require_safe_sources(SAFE, ["native", source])


def without_socket_events() -> str:
    """The trial of the socket tracepoints on a kernel without them."""
    raise LackError("no sock_recv_length")


def test_without_events_of_sockets_commands_have_probes_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # At level flow nothing would ever be a command there.
    lacking = replace(
        HOST,
        socket_tracepoints=Feature(without_socket_events),
        socket_functions=Feature(without_socket_events),
        socket_events=Feature(without_socket_events),
    )
    monkeypatch.setattr("tlstax.collectors.preflight.safety.HOST", lacking)
    reduced = made_safe(request(SAFE, level=Level.FLOW))
    assert reduced.level == Level.COMMAND
    assert reduced.safety is not None
    (row,) = safety_rows(reduced.safety)
    assert "lacks (no sock_recv_length): recorded at level command" in row.consequence
    assert made_safe(reduced).safety == reduced.safety, "said once"
    below = made_safe(request(Safety(level_most=Level.SAMPLE), level=Level.FLOW))
    assert (below.level, list(safety_rows(below.safety))) == (Level.SAMPLE, [])


def test_with_events_of_sockets_level_flow_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    having = replace(HOST, socket_tracepoints=Feature(lambda: "both"))
    monkeypatch.setattr("tlstax.collectors.preflight.safety.HOST", having)
    assert made_safe(request(SAFE, level=Level.FLOW)).level == Level.FLOW


def test_another_host_s_kernel_decides_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = replace(
        HOST,
        socket_tracepoints=Feature(without_socket_events),
        socket_functions=Feature(without_socket_events),
        socket_events=Feature(without_socket_events),
    )
    monkeypatch.setattr("tlstax.collectors.preflight.safety.HOST", lacking)
    assert at_level(SAFE, Level.FLOW, SocketSource.TRACEPOINTS) == (SAFE, Level.FLOW)
    safety, level = at_level(SAFE, Level.FLOW, SocketSource.NONE)
    assert (level, len(safety.notes)) == (Level.COMMAND, 1)
    assert "lacks: recorded" in safety.notes[0].text, "why this host lacks them is no reason"


def test_returns_of_functions_are_events_of_sockets_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    having = replace(
        HOST,
        socket_tracepoints=Feature(without_socket_events),
        socket_functions=Feature(lambda: "returns of inet_recvmsg"),
    )
    monkeypatch.setattr("tlstax.collectors.preflight.safety.HOST", having)
    reduced = made_safe(request(SAFE, level=Level.FLOW))
    assert reduced.level == Level.FLOW
    assert reduced.safety is not None
    (row,) = safety_rows(reduced.safety)
    assert "told by returns of the kernel's socket functions" in row.consequence
    assert made_safe(reduced).safety == reduced.safety, "said once"
