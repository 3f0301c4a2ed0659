# SPDX-License-Identifier: GPL-2.0-only
"""A request for a recording, reduced to what preflight found to be safe."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.open_files import require_open_files
from tlstax.collectors.placement.model import NO_LIMITS, Limits
from tlstax.collectors.preflight.examination import examine
from tlstax.collectors.preflight.safety import Safety, at_level, safety_of
from tlstax.collectors.recording.request import Request

# What other engines do to a process, as the variants that leave it out.
_NOT_WITH: Final = {
    "bpftrace": ("sample-only", "no-return-probes", "no-user-stacks", "guarded-programs"),
    "bcc": ("sample-only", "no-return-probes", "no-user-stacks", "guarded-programs"),
    "perf": ("no-samples", "no-user-stacks"),
}


def preflight(pid: int, accepted: Sequence[str] = ()) -> Safety:
    """Examine the kernel and a process before anything is attached to it.

    Raises TlstaxError: HOST if too few files may be open, HOST or TARGET for a hazard that refuses
    the recording, USAGE for one in `accepted` that does not exist. Forks: call it while this
    process has one thread.
    """
    require_open_files()
    return safety_of(pid, examine(pid, accepted))


def made_safe(request: Request) -> Request:
    """The request with its preflight, and without what that leaves out.

    Raises TlstaxError as `preflight`, and HOST if nothing is left of the request.
    """
    safety = request.safety or preflight(request.pid, request.accepted)
    safety, level = at_level(safety, request.level)
    sample_hz = request.sample_hz if safety.samples else 0
    if request.functions:
        require_functions(safety)
    if not sample_hz and level == level.SAMPLE:
        _require(safety, "a recording of CPU samples", ("sample-only", "no-samples"))
    return replace(
        request,
        safety=safety,
        level=level,
        client_level=min(request.client_level, safety.level_most),
        sample_hz=sample_hz,
    )


def require_functions(safety: Safety) -> None:
    """Raise TlstaxError (HOST) where functions may not be counted."""
    _require(safety, "--functions", ("sample-only", "no-return-probes", "guarded-programs"))


def limits_of(request: Request) -> Limits:
    """The kinds of probes that the plan may have."""
    return request.safety.limits if request.safety else NO_LIMITS


def require_safe_sources(safety: Safety, names: Iterable[str]) -> None:
    """Raise TlstaxError (HOST) for a source that does what preflight leaves out."""
    for name in names:
        _require(safety, name, _NOT_WITH.get(name, ()))


def _require(safety: Safety, what: str, without: tuple[str, ...]) -> None:
    causes = safety.causes_of(*without)
    if causes:
        options = " ".join(f"--accept {cause}" for cause in causes)
        raise TlstaxError(
            f"{what} is not safe here",
            f"preflight found {', '.join(causes)}: `tlstax doctor PID` explains it",
            f"Leave it out, or give {options} if you know better",
            ExitCode.HOST,
        )
