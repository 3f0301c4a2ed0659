# SPDX-License-Identifier: GPL-2.0-only
"""Run the probes, kernel and truth tests on Debian's own kernels in QEMU, for docs/limits.md.

    python tests/kernels/run.py [--suite SUITE]... [-k EXPRESSION] [TEST...]

Tests marked `timing` are left out unless they have tolerances for it: an emulated CPU keeps no
tight time limits.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tlstax.tests.kernels import guest

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tlstax-kernels"
SUITES = ("bookworm", "trixie", "sid")
RUNGS = ("tests/probes", "tests/kernel", "tests/truth")
TIMEOUT_S = 2400.0
BEGIN, END = "<!-- kernels: begin -->", "<!-- kernels: end -->"
COMPLAINT = re.compile(r"Oops|BUG:|WARNING:|soft lockup|rcu.*stall|general protection|Kernel panic")


class Row(NamedTuple):
    """One kernel's result."""

    suite: str
    kernel: str
    passed_count: int
    failed: list[str]
    skipped: list[str]  # reasons
    duration_s: float
    complaints: list[str]  # of the kernel


def results(suite: str, outcome: guest.Outcome, duration_s: float) -> Row:
    """Read what the guest printed: its kernel's name, pytest's text, then pytest's XML."""
    kernel = outcome.output.partition("\n")[0].strip()
    start = outcome.output.find("<?xml")
    failed, skipped, passed_count = [], [], 0
    if start < 0:
        failed = [f"no result (status {outcome.status})"]
    else:
        for case in ElementTree.fromstring(outcome.output[start:].strip()).iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
            elif skip is not None:
                skipped.append(f"{name}: {skip.get('message')}")
            else:
                passed_count += 1
    complaints = [line for line in outcome.console.splitlines() if COMPLAINT.search(line)]
    return Row(
        suite, kernel or "did not boot", passed_count, failed, skipped, duration_s, complaints
    )


def test(suite: str, tests: list[str], arguments: list[str]) -> Row:
    """Boot one kernel; once more when the guest itself died, which emulation does now and then."""
    pytest = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=600"]
    pytest += ["-m", "not timing or timing(emulated=True)", "--junitxml=/run/result.xml"]
    pytest += [*arguments, *tests]
    script = 'uname -r; "$@"; status=$?; cat /run/result.xml; exit $status'
    for _ in range(2):
        start_s = time.monotonic()
        outcome = guest.run(
            CACHE, suite, REPOSITORY, ["bash", "-c", script, "guest", *pytest], TIMEOUT_S
        )
        row = results(suite, outcome, time.monotonic() - start_s)
        print(outcome.output.partition("<?xml")[0], flush=True)
        if outcome.status != guest.GUEST_DIED:
            break
        print(f"{suite}: the guest died\n{outcome.console[-3000:]}", flush=True)
    for complaint in row.complaints:
        print(f"{suite}: the kernel said: {complaint}")
    return row


def table(rows: list[Row]) -> str:
    """The rows in Markdown, with what failed and what was skipped below."""
    lines = ["| Debian | kernel | passed | failed | skipped |", "|---|---|---|---|---|"]
    for row in rows:
        counts = f"{row.passed_count} | {len(row.failed)} | {len(row.skipped)}"
        lines.append(f"| {row.suite} | {row.kernel} | {counts} |")
    lines.append("")
    for row in rows:
        lines += [f"- {row.suite}, failed: {name}" for name in row.failed]
        lines += [f"- {row.suite}, skipped: {reason}" for reason in row.skipped]
        lines += [f"- {row.suite}, the kernel said: `{line}`" for line in row.complaints[:3]]
    return "\n".join(lines).rstrip() + "\n"


def write_table(page: Path, text: str) -> None:
    """Put the table between its markers."""
    content = page.read_text() if page.exists() else "# Limits\n"
    if BEGIN not in content:
        content += f"\n## Kernels\n\n{BEGIN}\n{END}\n"
    head, _, rest = content.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{text}{END}{tail}")


def main() -> int:
    """Run every chosen kernel; fail when a test failed on one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="append", choices=SUITES, help="default: all of them")
    parser.add_argument("-k", metavar="EXPRESSION", help="as pytest's; the table is not written")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    options = parser.parse_args()
    suites = options.suite or list(SUITES)
    subprocess.run([Path(__file__).with_name("fetch"), CACHE, *suites], check=True)
    tests = options.tests or [rung for rung in RUNGS if list((REPOSITORY / rung).glob("test_*.py"))]
    rows = [test(suite, tests, ["-k", options.k] if options.k else []) for suite in suites]
    text = table(rows)
    print(text)
    if not (options.suite or options.k or options.tests):
        write_table(REPOSITORY / "docs/limits.md", text)
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
