# SPDX-License-Identifier: GPL-2.0-only
"""What follows from kernels, trials and processes, all of them made by hand."""

from dataclasses import replace

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.commands.hazard_text import exit_code_of, findings_verdict, render_findings
from tlstax.collectors.preflight.hazards import load_hazards
from tlstax.collectors.preflight.judge import Finding, Observed, Status, judge
from tlstax.collectors.preflight.kernel_build import KernelBuild, parse_build
from tlstax.collectors.preflight.target_facts import TargetFacts
from tlstax.collectors.preflight.trial_child import Outcome, State

HAZARDS = load_hazards()
SAFE = Outcome(State.SAFE, "seen")
TARGET = TargetFacts(
    pid=17,
    name="mysqld",
    state="S",
    tracer=0,
    seccomp=0,
    shadow_stack=False,
    frozen=False,
    memory_left_bytes=None,
    label="",
    exe="/usr/sbin/mysqld",
    deleted=(),
    anonymous_text_bytes=0,
    file_systems=frozenset({"ext4"}),
    other_probe_count=0,
    was_probed=False,
)
KERNEL = KernelBuild("7.9.9", (7, 9, 9), "", preemptible=False, cpu_count=64)
# A kernel that is affected, and the nearest one that is not.
TABLE = {
    "shadow-stack": ("6.10.14", "6.11"),
    "private-stacks": ("6.13", "6.12.57"),
    "exit-race": ("6.12.19", "6.12.20"),
    "cpu-clock-freeze": ("6.17.7", "6.17.8"),
    "cpu-clock-free": ("6.18.5", "6.18.6"),
    "slow-probes": ("6.11.9", "6.12"),
}
VARIANTS = {
    "shadow-stack": "no-return-probes",
    "private-stacks": "guarded-programs",
    "exit-race": "no-user-stacks",
    "cpu-clock-freeze": "no-samples",
    "cpu-clock-free": "no-samples",
    "slow-probes": "warn",
}
# For each reading of a process: what is wrong with it, and what is done.
READINGS = {
    "stopped": ({"state": "T"}, Status.REFUSED),
    "tracer": ({"tracer": 1}, Status.REFUSED),
    "frozen-cgroup": ({"frozen": True}, Status.REFUSED),
    "target-memory": ({"memory_left_bytes": 1 << 20}, Status.VARIANT),
    "replaced-files": ({"deleted": ("/usr/sbin/mysqld (deleted)",)}, Status.VARIANT),
    "hugetlb-text": ({"file_systems": frozenset({"hugetlbfs"})}, Status.VARIANT),
    "anonymous-text": ({"anonymous_text_bytes": 4 << 20}, Status.VARIANT),
    "other-probes": ({"other_probe_count": 2}, Status.VARIANT),
}


def outcomes(**changed: Outcome) -> dict[str, Outcome]:
    checks = {hazard.check: SAFE for hazard in HAZARDS if hazard.kind in ("trial", "host")}
    return {**checks, **changed}


def found(seen: Observed, *accepted: str) -> dict[str, Finding]:
    return {finding.hazard.id: finding for finding in judge(HAZARDS, seen, accepted)}


def kernel(release: str, preemptible: bool | None = True) -> KernelBuild:
    return replace(parse_build(release, "#1 SMP"), cpu_count=64, preemptible=preemptible)


def test_nothing_is_wrong_with_a_plain_process() -> None:
    findings = judge(HAZARDS, Observed(KERNEL, outcomes(), TARGET))
    assert {finding.status for finding in findings} == {Status.OK, Status.NOT_AFFECTED}
    assert {finding.variant for finding in findings} == {""}
    assert exit_code_of(findings) == ExitCode.OK
    assert findings_verdict(17, findings) == "`attach` records process 17 without restrictions."


def test_every_hazard_of_the_table_is_tested_here() -> None:
    assert set(TABLE) == {hazard.id for hazard in HAZARDS if hazard.kind == "table"}
    assert set(READINGS) == {hazard.id for hazard in HAZARDS if hazard.kind == "target"}


@pytest.mark.parametrize("name", TABLE)
def test_a_kernel_of_the_table(name: str) -> None:
    affected, mended = TABLE[name]
    target = replace(TARGET, shadow_stack=True)
    there = found(Observed(kernel(affected), outcomes(), target))[name]
    assert (there.status, there.variant) == (Status.VARIANT, VARIANTS[name])
    gone = found(Observed(kernel(mended), outcomes(), target))[name]
    assert (gone.status, gone.variant) == (Status.NOT_AFFECTED, "")
    assert f"Linux {mended}" in gone.why


@pytest.mark.parametrize(
    ("name", "release", "change"),
    [
        ("shadow-stack", "6.10", {}),
        ("private-stacks", "6.18", {"preemptible": False}),
        ("slow-probes", "6.1.158", {"cpu_count": 4}),
        ("exit-race", "6.1.158", {"has_symbol": lambda _name: False}),
    ],
)
def test_what_else_must_hold(name: str, release: str, change: dict[str, object]) -> None:
    seen = Observed(replace(kernel(release), **change), outcomes(), TARGET)  # type: ignore[arg-type]
    assert found(seen)[name].status == Status.NOT_AFFECTED


def test_unknown_preemption_counts_as_preemption() -> None:
    seen = found(Observed(kernel("6.18.44", None), outcomes(), TARGET))["private-stacks"]
    assert seen.status == Status.VARIANT
    assert "whether it is preemptible is unknown" in seen.why


def test_a_build_of_a_distribution_is_marked_until_somebody_verified_it() -> None:
    build = replace(parse_build("6.17.6-300.fc43.x86_64", "#1 SMP"), preemptible=False)
    seen = Observed(build, outcomes(), TARGET)
    assert "nobody verified this build of Fedora" in found(seen)["cpu-clock-freeze"].why
    verified = [replace(hazard, verified=(build.release,)) for hazard in HAZARDS]
    for finding in judge(verified, seen):
        assert "nobody verified" not in finding.why


def test_nothing_is_concluded_from_the_number_of_a_kernel_that_keeps_its_number() -> None:
    build = replace(parse_build("5.14.0-503.el9.x86_64", "#1 SMP"), preemptible=True)
    seen = found(Observed(build, outcomes(), TARGET))
    assert seen["cpu-clock-freeze"].status == Status.UNKNOWN
    assert "RHEL" in seen["cpu-clock-freeze"].why


@pytest.mark.parametrize("check", [h.check for h in HAZARDS if h.kind == "trial"])
@pytest.mark.parametrize("state", [State.HARMFUL, State.UNKNOWN])
def test_a_trial_that_failed_or_could_not_be_made_counts(check: str, state: State) -> None:
    (hazard,) = (hazard for hazard in HAZARDS if hazard.check == check)
    target = replace(TARGET, seccomp=2, file_systems=frozenset({"overlay"}))
    seen = Observed(KERNEL, outcomes(**{check: Outcome(state, "it died")}), target)
    finding = found(seen)[hazard.id]
    assert (finding.status, finding.variant) == (Status.VARIANT, hazard.variant)
    assert "it died" in finding.sentence()


def test_a_filter_counts_only_where_the_process_has_one() -> None:
    refused = outcomes(return_probe_under_seccomp=Outcome(State.HARMFUL, "it died"))
    without = found(Observed(KERNEL, refused, TARGET))["seccomp-return-probes"]
    assert (without.status, without.why) == (
        Status.NOT_AFFECTED,
        "the process has no seccomp filter",
    )
    kernel_only = found(Observed(KERNEL, refused))["seccomp-return-probes"]
    assert kernel_only.status == Status.VARIANT
    assert "(processes with a seccomp filter)" in kernel_only.why


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_of_the_process(name: str) -> None:
    change, status = READINGS[name]
    seen = Observed(KERNEL, outcomes(), replace(TARGET, **change))  # type: ignore[arg-type]
    findings = judge(HAZARDS, seen)
    (finding,) = (one for one in findings if one.status not in (Status.OK, Status.NOT_AFFECTED))
    assert (finding.hazard.id, finding.status) == (name, status)
    assert exit_code_of(findings) == (ExitCode.TARGET if status == Status.REFUSED else ExitCode.OK)
    assert (name in findings_verdict(17, findings)) == (status == Status.REFUSED)


def test_a_refusal_of_the_host_has_its_own_exit_code() -> None:
    locked = outcomes(lockdown=Outcome(State.HARMFUL, "the mode is confidentiality"))
    assert exit_code_of(judge(HAZARDS, Observed(KERNEL, locked))) == ExitCode.HOST


def test_what_is_accepted_changes_nothing() -> None:
    seen = Observed(KERNEL, outcomes(), replace(TARGET, tracer=1))
    finding = found(seen, "tracer", "red-zone")["tracer"]
    assert (finding.status, finding.variant) == (Status.ACCEPTED, "")
    assert found(seen, "tracer", "red-zone")["red-zone"].status == Status.OK


def test_only_hazards_can_be_accepted() -> None:
    with pytest.raises(TlstaxError, match="return-probes") as raised:
        found(Observed(KERNEL, outcomes()), "everything")
    assert raised.value.exit_code == ExitCode.USAGE


def test_each_hazard_is_one_line() -> None:
    findings = judge(HAZARDS, Observed(KERNEL, outcomes(), TARGET))
    lines = render_findings(findings).splitlines()
    assert len(lines) == len(HAZARDS)
    for line, hazard in zip(lines, HAZARDS, strict=True):
        assert hazard.id in line.split()
