# SPDX-License-Identifier: GPL-2.0-only
"""Examines this kernel and a target: tries, reads, and judges."""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from tlstax import TlstaxError
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.preflight import outcome_cache
from tlstax.collectors.preflight.hazards import load_hazards
from tlstax.collectors.preflight.host_facts import host_outcomes
from tlstax.collectors.preflight.judge import Finding, Observed, Status, judge
from tlstax.collectors.preflight.kernel_build import this_kernel
from tlstax.collectors.preflight.present_probes import probed_paths
from tlstax.collectors.preflight.private_mounts import kernel_texts
from tlstax.collectors.preflight.target_facts import TargetFacts, read_target
from tlstax.collectors.preflight.trial_child import Outcome, State
from tlstax.collectors.preflight.trials import OF_X86, TRIALS, begin
from tlstax.collectors.process.target import open_target

_NOT_TRIED: Final = Outcome(State.UNKNOWN, "it is not tried on another host")
_NOT_READ: Final = ("other_probes",)  # readings that need system calls on the process's host


def examine(
    pid: int | None, accepted: Collection[str] = (), *, afresh: bool = False
) -> tuple[Finding, ...]:
    """The findings on the kernel, and on a process if `pid` is given.

    Trials of this boot are reused unless `afresh`. Runs in a forked child (about 0.3 s with
    trials): call it while this process has one thread. Raises TlstaxError: TARGET if the process
    cannot be read, USAGE for a hazard in `accepted` that does not exist.
    """
    return run_in_child("Preflight", lambda: _examine(pid, accepted, afresh))


def examine_elsewhere(pid: int, accepted: Collection[str], proc: Path) -> tuple[Finding, ...]:
    """The findings on a process of another host, from what was read there (`process.mappings`).

    Nothing is tried there: what a trial would tell counts as if it were harmful. Raises TlstaxError
    as `examine`.
    """
    texts = proc.parent / "sys"
    lockdown, preempt, online = (
        _text(texts / name)
        for name in (
            "kernel/security/lockdown", "kernel/debug/sched/preempt", "devices/system/cpu/online",
        )
    )  # fmt: skip
    outcomes = {**dict.fromkeys(TRIALS, _NOT_TRIED), **host_outcomes(lockdown, proc)}
    if _text(proc.parent / "machine") == "aarch64":
        outcomes |= {name: Outcome(State.ABSENT, why) for name, why in OF_X86.items()}
    kernel = this_kernel(preempt or "", _count(online or "0"), proc)
    seen = Observed(kernel, outcomes, read_target(pid, [], proc))
    return tuple(
        replace(finding, status=Status.UNKNOWN, why="it is not read on another host")
        if finding.hazard.check in _NOT_READ
        else finding
        for finding in judge(load_hazards(), seen, accepted)
    )


def _count(cpus: str) -> int:
    """How many CPUs a list such as `0-3,6` names."""
    ranges = [part.split("-") for part in cpus.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)


def _text(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return None


def _examine(pid: int | None, accepted: Collection[str], afresh: bool) -> tuple[Finding, ...]:
    trials = _trials(afresh)
    texts = kernel_texts()
    target = None if pid is None else _read(pid, probed_paths(pid, texts.uprobe_events))
    kernel = this_kernel(texts.preempt or "", os.cpu_count() or 1)
    hazards, host = load_hazards(), host_outcomes(texts.lockdown)
    return judge(hazards, Observed(kernel, {**trials(), **host}, target), accepted)


def _read(pid: int, probed: list[str]) -> TargetFacts:
    try:
        return read_target(pid, probed)
    except TlstaxError:
        open_target(pid)  # says better why a process cannot be a target
        raise


def _trials(afresh: bool) -> Callable[[], dict[str, Outcome]]:
    """What gives the outcomes; the trials go on meanwhile."""
    kept = None if afresh else outcome_cache.load()
    if kept is not None:
        return lambda: kept
    outcomes_of = begin()

    def wait() -> dict[str, Outcome]:
        outcomes = outcomes_of()
        outcome_cache.save(outcomes)
        return outcomes

    return wait
