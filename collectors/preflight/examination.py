# SPDX-License-Identifier: GPL-2.0-only
"""Examines this kernel and a target: tries, reads, and judges."""

import os
from collections.abc import Collection

from tlstax import TlstaxError
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.preflight import outcome_cache
from tlstax.collectors.preflight.hazards import load_hazards
from tlstax.collectors.preflight.host_facts import host_outcomes
from tlstax.collectors.preflight.judge import Finding, Observed, judge
from tlstax.collectors.preflight.kernel_build import this_kernel
from tlstax.collectors.preflight.present_probes import probed_paths
from tlstax.collectors.preflight.private_mounts import kernel_texts
from tlstax.collectors.preflight.target_facts import TargetFacts, read_target
from tlstax.collectors.preflight.trial_child import Outcome
from tlstax.collectors.preflight.trials import try_all
from tlstax.collectors.process.target import open_target


def examine(
    pid: int | None, accepted: Collection[str] = (), *, afresh: bool = False
) -> tuple[Finding, ...]:
    """The findings on the kernel, and on a process if `pid` is given.

    Trials of this boot are reused unless `afresh`. Runs in a forked child (about 0.3 s with
    trials): call it while this process has one thread. Raises TlstaxError: TARGET if the process
    cannot be read, USAGE for a hazard in `accepted` that does not exist.
    """
    return run_in_child("Preflight", lambda: _examine(pid, accepted, afresh))


def _examine(pid: int | None, accepted: Collection[str], afresh: bool) -> tuple[Finding, ...]:
    texts = kernel_texts()
    target = None if pid is None else _read(pid, probed_paths(pid, texts.uprobe_events))
    outcomes = {**_trials(afresh), **host_outcomes(texts.lockdown)}
    kernel = this_kernel(texts.preempt or "", os.cpu_count() or 1)
    return judge(load_hazards(), Observed(kernel, outcomes, target), accepted)


def _read(pid: int, probed: list[str]) -> TargetFacts:
    try:
        return read_target(pid, probed)
    except TlstaxError:
        open_target(pid)  # says better why a process cannot be a target
        raise


def _trials(afresh: bool) -> dict[str, Outcome]:
    kept = None if afresh else outcome_cache.load()
    if kept is not None:
        return kept
    outcomes = try_all()
    outcome_cache.save(outcomes)
    return outcomes
