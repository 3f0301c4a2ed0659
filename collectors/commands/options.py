# SPDX-License-Identifier: GPL-2.0-only
"""Arguments that several commands take."""

import argparse

from tlstax.probes.primitives import parse_names

DEFAULT_BUDGET = 0.05
"""The default budget, as a share of the server's CPU time. On a busy server dense windows then
record thousands of commands per second; if everything fits, everything is on all the time."""
NO_BUDGET = float("inf")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "ms": 0.001}


def duration(text: str) -> float:
    """Seconds of `30s`, `5m`, `1h`, `100ms` or a bare number of seconds."""
    number = text.rstrip("smh")
    unit = text[len(number) :] or "s"
    try:
        seconds = float(number) * _UNITS_S[unit]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s or 5m") from None
    if not 0.01 <= seconds <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 10ms and a week")
    return seconds


def functions_option(text: str) -> tuple[str, ...]:
    """Names of categories or primitives, separated by commas."""
    try:
        return parse_names(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def accept_option(parser: argparse.ArgumentParser) -> None:
    """Add --accept."""
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="HAZARD",
        help="do not apply the safe variant or the refusal of this hazard, by its name in "
        "`tlstax doctor PID`: the server or the host may be hurt (repeatable)",
    )


def budget(text: str) -> float:
    """A share of the server's CPU time from `0.1%` to `50%`, or NO_BUDGET for `none`."""
    if text == "none":
        return NO_BUDGET
    number = text.removesuffix("%").strip()
    try:
        share = float(number) / 100 if text.endswith("%") else float("nan")
    except ValueError:
        share = float("nan")
    if not 0.000999 <= share <= 0.5:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a share from 0.1% to 50% nor none")
    return share


def share_of(given: float | None, *, is_expensive: object) -> float | None:
    """The share of a given budget, or of the default; None: there is no limit.

    `is_expensive`: what else was asked for costs more than the default budget allows.
    """
    if given is None:
        return None if is_expensive else DEFAULT_BUDGET
    return None if given == NO_BUDGET else given
