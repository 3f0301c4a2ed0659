# SPDX-License-Identifier: GPL-2.0-only
"""What injected causes are made of: a case, and loads that many of them share."""

from dataclasses import dataclass

from tlstax.tests.truth.causes.bench import Injection
from tlstax.workloads.tls import TlsChoice

TLS12 = TlsChoice("TLSv1.2")


@dataclass(frozen=True)
class Case:
    """One cause with three parameters."""

    expected: tuple[str, ...]
    """Ids of findings: the top one must be among them. None: nothing false may be found."""
    parameters: tuple[Injection, ...]
    """Of the older causes the first one was used for tuning."""
    also: tuple[str, ...] = ()
    """Further findings that are true of these loads."""
    every: bool = False
    """All of `expected` must be found, and any of them may lead."""
    is_control: bool = False
    """Healthy loads, into which nothing was injected."""


def storm(**more: object) -> Injection:
    return Injection(script="storm", **more)  # type: ignore[arg-type]


def queries(count: int) -> tuple[str, ...]:
    return (f"--queries={count}",)


def rows(result: int, row: int) -> tuple[str, ...]:
    return (f"--result-bytes={result}", f"--row-bytes={row}")
