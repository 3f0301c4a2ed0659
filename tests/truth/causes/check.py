# SPDX-License-Identifier: GPL-2.0-only
"""Inject causes into real servers and see whether the top finding names them (make check-causes).

    check.py                  every cause with every parameter, the mixed cases and the controls
    check.py wan no_reuse:2   these causes, or one of their parameters (0, 1 or 2)
    check.py --mode default   recorded by `tlstax attach PID`, for longer, without the causes whose
                              probes have no budget; other modes are in modes.py
    check.py --keep DIR       the same, and keep the recordings in DIR
    check.py --judge DIR      judge the recordings of DIR again, without recording: needs no root
    check.py --table FILE     also write the scores as a page
    check.py --blind SEED     cases and 200 healthy loads that are drawn from the seed (blind.py):
                              write it down, freeze the rules, and run it once

Prints a line for each case, then the scores of all findings (see scores.py), and what was left out
of them. Exits with 1 if a case or control could not be recorded, if fewer than 11 causes are named
by all of their parameters, if a mixed case lacks one of its causes, if less than 98 % of all
findings are true or less than 90 % of the causes are named, or if more than one in a hundred of the
controls has a finding that is not true of it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tlstax import TlstaxError
from tlstax.analysis.document import explain
from tlstax.analysis.model.findings import Finding
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.tests.truth.causes import bench, blind, scores
from tlstax.tests.truth.causes.causes import CASES, CONTROLS, MIXED, true_of
from tlstax.tests.truth.causes.loads import Case
from tlstax.tests.truth.causes.modes import MODES, Mode
from tlstax.tests.truth.causes.scores import LeftOut, Scored

ROOT = Path(__file__).resolve().parents[3]
NEEDED = 11
"""Causes that must be named."""


def in_mode(injection: bench.Injection, mode: Mode) -> bench.Injection | None:
    """The same load recorded in a mode; None if it has probes that no budget is kept for."""
    if mode.options is not None and (injection.record_client or injection.functions):
        return None
    return replace(injection, mode=mode.name, seconds=mode.longer * injection.seconds)


def judged(capture: Path) -> list[Finding]:
    """The findings of a recording."""
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


@dataclass(frozen=True)
class Attempts:
    """How cases are recorded, where recordings are kept, and what was found so far."""

    mode: Mode
    kept: Path | None
    judge_only: bool
    scored: list[Scored] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def attempt(self, name: str, injection: bench.Injection, case: Case) -> Scored | None:
        """Record and judge one case, print its line and score it; None if it was left out."""
        wanted = in_mode(injection, self.mode)
        if wanted is None:
            self._leave_out(name, case, scores.UNPRICED)
            return None
        place = place_of(name, self.mode, self.kept) if self.kept else None
        if self.judge_only:
            if place is None or not place.exists():
                self._leave_out(name, case, scores.UNKEPT)
                return None
            found = judged(place)
        else:
            try:
                found = self._recorded(wanted, place)
            except (AssertionError, TlstaxError, subprocess.TimeoutExpired) as error:
                print(f"WRONG {name:22} not recorded: {error}", flush=True)
                self._leave_out(name, case, scores.FAILED)
                return None
        ids = tuple(finding.id for finding in found)
        also = (*case.also, *true_of(injection))
        made = Scored(name, case.expected, also, ids, case.is_control, case.every)
        self.scored.append(made)
        shares = ", ".join(f"{f.id} {f.share.value:.0%}" for f in found) or "nothing"
        print(f"{'ok   ' if made.is_right else 'WRONG'} {name:22} {shares}", flush=True)
        return made

    def _leave_out(self, name: str, case: Case, why: str) -> None:
        self.left_out.append(LeftOut(name, case.is_control, why))

    @staticmethod
    def _recorded(injection: bench.Injection, place: Path | None) -> list[Finding]:
        with scratch() as directory:
            capture = directory / "capture.tlstax"
            bench.record(injection, capture, directory)
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(capture, place)
            return judged(capture)


def place_of(name: str, mode: Mode, kept: Path) -> Path:
    """The recording of a case in a data set."""
    return kept / mode.name / f"{name.replace(':', '-')}.tlstax"


def drawn(seed: int, names: list[str]) -> tuple[
    dict[str, Case], list[tuple[str, int]], dict[str, bench.Injection]
]:  # fmt: skip
    """Cases, (cause, parameter) pairs and healthy loads of a seed; all, or those named."""
    cases, controls = blind.cases(seed), blind.controls(seed)
    if names:
        cases = {name: case for name, case in cases.items() if name in names}
        controls = {name: one for name, one in controls.items() if name in names}
    pairs = [(name, at) for name, case in cases.items() for at in range(len(case.parameters))]
    return cases, pairs, dict(controls)


def chosen(names: list[str]) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """(cause, parameter) pairs, mixed cases and controls that are asked for."""
    if not names:
        every = [(name, at) for name, case in CASES.items() for at in range(len(case.parameters))]
        return every, list(MIXED), list(CONTROLS)
    pairs = [
        (name, at)
        for text in names
        for name, _, number in (text.partition(":"),)
        if name in CASES
        for at in ((int(number),) if number else range(len(CASES[name].parameters)))
    ]
    return pairs, [n for n in names if n in MIXED], [n for n in names if n in CONTROLS]


def main() -> int:
    """Everything that is asked for; 0 if it came out as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME[:PARAMETER]")
    parser.add_argument("--mode", choices=tuple(MODES), default="none")
    parser.add_argument("--blind", type=int, metavar="SEED")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="DIR")
    where.add_argument("--judge", type=Path, metavar="DIR")
    parser.add_argument("--table", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.judge is None and os.geteuid() != 0:
        sys.exit("needs root")
    attempts = Attempts(
        MODES[options.mode], options.judge or options.keep, options.judge is not None
    )
    if options.blind is None:
        pairs, mixed, healthy = chosen(options.names)
        controls = {name: CONTROLS[name] for name in healthy}
        failed = run(attempts, CASES, pairs, mixed, controls)
    else:
        cases, pairs, controls = drawn(options.blind, options.names)
        failed = run(attempts, cases, pairs, [], controls)
    if not attempts.scored:
        failed.append("no case was judged")
    drawn_from = "" if options.blind is None else f", cases and loads drawn from {options.blind}"
    head = f"Mode {options.mode}{drawn_from}; {scores.frozen(ROOT)}."
    text = f"{head}\n\n{scores.page(attempts.scored, attempts.left_out)}"
    print(text)
    if options.table:
        options.table.write_text(text + "\n", encoding="utf-8")
    print("\n".join(failed) or "as it must be")
    return 1 if failed else 0


def run(
    attempts: Attempts,
    cases: Mapping[str, Case],
    pairs: list[tuple[str, int]],
    mixed: list[str],
    controls: Mapping[str, bench.Injection],
) -> list[str]:
    """All these cases; what went wrong with them, in sentences."""
    failed = []
    named: dict[str, bool] = {}
    for name, at in pairs:
        case = cases[name]
        made = attempts.attempt(f"{name}:{at}", case.parameters[at], case)
        is_lost = made is None and attempts.left_out[-1].why == scores.FAILED
        if case.expected and (made is not None or is_lost):
            named[name] = named.get(name, True) and made is not None and made.is_right
        elif made is not None and made.wrong:
            failed.append(f"{name}:{at} has a false cause")
    for name in mixed:
        made = attempts.attempt(name, MIXED[name].parameters[0], MIXED[name])
        if made is not None and not made.is_named:
            failed.append(f"{name} lacks a cause")
    for name, control in controls.items():
        attempts.attempt(name, control, Case((), (control,), is_control=True))
    right = sum(named.values())
    print(f"{right} of {len(named)} causes named with all of their parameters")
    if right < min(NEEDED, len(named)):
        failed.append(f"{NEEDED} must be")
    if missing := scores.left_out_text(attempts.left_out, scores.FAILED):
        failed.append(missing)
    return failed + scores.below_wanted(attempts.scored)


if __name__ == "__main__":
    sys.exit(main())
