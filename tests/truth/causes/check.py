# SPDX-License-Identifier: GPL-2.0-only
"""Inject causes into real servers and see whether the top finding names them (make check-causes).

    check.py                  every cause with every parameter, the mixed cases and the controls
    check.py wan no_reuse:2   these causes, or one of their parameters (0, 1 or 2)
    check.py --budget 0.05    the same in the mode of `attach`: the ledger in dense windows only,
                              recorded for longer, without the causes that need no budget

Prints a table; exits with 1 if fewer than 11 causes are named by all of their parameters, if a
mixed case lacks one of its causes, or if anything fires on a control.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tlstax import TlstaxError
from tlstax.analysis.document import explain
from tlstax.analysis.model.findings import Finding
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.causes import bench
from tlstax.tests.truth.causes.causes import CASES, CONTROLS, MIXED

NEEDED = 11
"""Causes that must be named."""
LONGER = 8
"""Factor for the length of a recording whose ledger is kept in dense windows only."""


def in_mode(injection: bench.Injection, budget: float | None) -> bench.Injection | None:
    """The same load recorded within a budget; None if it has probes that no budget is kept for."""
    if budget is None:
        return injection
    if injection.record_client or injection.functions:
        return None
    return replace(injection, budget=budget, seconds=LONGER * injection.seconds)


def findings_of(injection: bench.Injection, directory: Path) -> list[Finding]:
    """Record one load and judge it."""
    capture = directory / "capture.tlstax"
    bench.record(injection, capture, directory)
    with CaptureReader.open(capture) as reader:
        return explain.explain(tables.load(reader)).findings


@contextmanager
def scratch() -> Iterator[Path]:
    """A short path that the server's user may pass through; nothing stays in it."""
    directory = Path(tempfile.mkdtemp(prefix="tlstax-causes-", dir="/tmp"))
    directory.chmod(0o711)
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield directory
    finally:
        tempfile.tempdir = before
        shutil.rmtree(directory)


def attempt(name: str, injection: bench.Injection, expected: tuple[str, ...]) -> list[str]:
    """Record one case, print its line, and return the ids that were found."""
    try:
        with scratch() as directory:
            found = findings_of(injection, directory)
    except (AssertionError, TlstaxError) as error:
        print(f"WRONG {name:22} not recorded: {error}", flush=True)
        return ["not recorded"]
    ids = [finding.id for finding in found]
    right = ids[0] in expected if expected and ids else not ids and not expected
    shares = ", ".join(f"{f.id} {f.share.value:.0%}" for f in found[:3]) or "nothing"
    print(f"{'ok   ' if right else 'WRONG'} {name:22} {shares}", flush=True)
    return ids


def chosen(names: list[str]) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """(cause, parameter) pairs, mixed cases and controls that are asked for."""
    if not names:
        return [(name, at) for name in CASES for at in range(3)], list(MIXED), list(CONTROLS)
    pairs = [
        (name, at)
        for text in names
        for name, _, number in (text.partition(":"),)
        if name in CASES
        for at in ((int(number),) if number else range(3))
    ]
    return pairs, [n for n in names if n in MIXED], [n for n in names if n in CONTROLS]


def main() -> int:
    """Everything that is asked for; 0 if it came out as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME[:PARAMETER]")
    parser.add_argument("--budget", type=float, metavar="SHARE")
    options = parser.parse_args()
    pairs, mixed, controls = chosen(options.names)
    named: dict[str, bool] = {}
    failed = []
    for name, at in pairs:
        case = CASES[name]
        injection = in_mode(case.parameters[at], options.budget)
        if injection is None:
            continue
        ids = attempt(f"{name}:{at}", injection, case.expected)
        named[name] = named.get(name, True) and bool(ids) and ids[0] in case.expected
    for name in mixed:
        expected, injection = MIXED[name]
        injection = in_mode(injection, options.budget) or injection
        if not set(expected) <= set(attempt(name, injection, expected)):
            failed.append(f"{name} lacks a cause")
    for name in controls:
        if attempt(name, in_mode(CONTROLS[name], options.budget) or CONTROLS[name], ()):
            failed.append(f"something fired on the control {name}")
    right = sum(named.values())
    print(f"{right} of {len(named)} causes named with all of their parameters")
    if right < min(NEEDED, len(named)):
        failed.append(f"{NEEDED} must be")
    print("\n".join(failed) or "as it must be")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("needs root")
    sys.exit(main())
