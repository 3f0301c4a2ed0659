# SPDX-License-Identifier: GPL-2.0-only
"""Run the probes, kernel and truth tests on Debian's own kernels in QEMU, for docs/limits.md.

    python tests/kernels/run.py [--machine MACHINE]... [-k EXPRESSION] [TEST...]

A machine is a kernel with a preemption mode and a number of CPUs. All tests run once on each
kernel, and on the other machines those that preemption and CPUs can matter to. The table keeps the
rows of machines that were not run, each with the commit that it was run on.

Tests marked `timing` are left out unless they have tolerances for it: an emulated CPU keeps no
tight time limits. What fails is run once more, alone, and named in the table's notes.
"""

import argparse
import compileall
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tlstax.tests.kernels import guest

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tlstax-kernels"
# What a kernel can matter to: not arguments, files and the life of the desk's own processes.
RUNGS = (
    "tests/probes/test_objects.py",
    "tests/truth",
    *(f"tests/kernel/recorder/test_{name}.py" for name in (
        "budget_by_recorder", "level_choice", "privileges", "recorder", "stretches_by_recorder")),
    *(f"tests/kernel/test_{name}.py" for name in (
        "accounts", "calibration", "detach", "doctor", "edges", "perf", "placement_hits",
        "places", "preflight", "tracefs")),
)  # fmt: skip
CORE = ("tests/kernel/test_accounts.py", "tests/kernel/test_edges.py", "tests/truth/mutants",
        "tests/truth/test_states.py", "tests/truth/test_unwinding.py")  # fmt: skip


class Machine(NamedTuple):
    """What is booted."""

    name: str
    suite: str  # of Debian; -rt: its kernel with real-time preemption
    preemption: str = ""  # the kernel's parameter; "": its own choice
    cpus_count: int = 2
    tests: tuple[str, ...] = CORE


MACHINES = (
    Machine("bullseye", "bullseye", tests=("tests/kernel/test_old_kernel.py",)),
    Machine("bookworm", "bookworm", tests=RUNGS),
    Machine("trixie", "trixie", tests=RUNGS),
    Machine("sid", "sid", tests=RUNGS),
    Machine("bookworm-full", "bookworm", "full", 4),
    Machine("trixie-none", "trixie", "none", 4),
    Machine("trixie-full", "trixie", "full", 4),
    Machine("trixie-rt", "trixie-rt", "", 4),
    Machine("sid-full", "sid", "full", 4),
    Machine("sid-lazy", "sid", "lazy", 4),
)
TIMEOUT_S = 7200.0
PAGE = "docs/limits.md"
BEGIN, END = "<!-- kernels: begin -->", "<!-- kernels: end -->"
COMPLAINT = re.compile(r"Oops|BUG:|WARNING:|soft lockup|rcu.*stall|general protection|Kernel panic")


class Row(NamedTuple):
    """One machine's result."""

    machine: Machine
    kernel: str
    preemption: str
    commit: str
    passed: list[str]
    failed: list[str]
    skipped: list[str]  # reasons
    duration_s: float
    complaints: list[str]  # of the kernel
    again: tuple[str, ...] = ()  # what failed at first, and passed when it was run alone


def results(machine: Machine, outcome: guest.Outcome, duration_s: float) -> Row:
    """Read what the guest printed: its kernel's name and version, pytest's text and XML."""
    kernel, _, rest = outcome.output.partition("\n")
    modes = re.findall(r"PREEMPT[A-Z_]*", rest.partition("\n")[0])
    preemption = machine.preemption or (modes[0].removeprefix("PREEMPT_").lower() if modes else "")
    start = outcome.output.find("<?xml")
    passed, failed, skipped = [], [], []
    if start < 0:
        failed = [f"no result (status {outcome.status})"]
    else:
        for case in ElementTree.fromstring(outcome.output[start:].strip()).iter("testcase"):
            file = case.get("classname", "").replace(".", "/")
            name = f"{file}.py::{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
            elif skip is not None:
                skipped.append(f"{name}: {skip.get('message')}")
            else:
                passed.append(name)
    complaints = [line for line in outcome.console.splitlines() if COMPLAINT.search(line)]
    name = kernel.strip() or "did not boot"
    return Row(machine, name, preemption, commit(), passed, failed, skipped, duration_s, complaints)


def commit() -> str:
    """What is tested, with a + when files other than the table's page differ from it."""
    git = ["git", "-C", str(REPOSITORY)]
    name = ["describe", "--always", "--exclude=*"]
    changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", f":!{PAGE}"]
    text, changed = (
        subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.strip()
        for words in (name, changes)
    )
    return text + ("+" if changed else "")


def test(machine: Machine, tests: list[str], arguments: list[str]) -> Row:
    """Test one machine; what fails is run once more, alone, as an emulated CPU may be starved."""
    row = boot(machine, tests, arguments)
    if not row.failed or not row.passed:
        return row
    alone = boot(machine, row.failed, [])
    return row._replace(
        passed=row.passed + alone.passed,
        failed=[name for name in row.failed if name not in alone.passed],
        duration_s=row.duration_s + alone.duration_s,
        complaints=row.complaints + alone.complaints,
        again=tuple(name for name in row.failed if name in alone.passed),
    )


def boot(machine: Machine, tests: list[str], arguments: list[str]) -> Row:
    """Boot one machine; once more when the guest itself died, which emulation does now and then."""
    pytest = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=900"]
    pytest += ["-m", "not long and (not timing or timing(emulated=True))"]
    pytest += ["--ignore=tests/kernel/remote", "--junitxml=/run/result.xml"]
    pytest += [*arguments, *(tests or machine.tests)]
    parameter = f"preempt={machine.preemption}" if machine.preemption else ""
    script = 'uname -r; uname -v; "$@"; status=$?; cat /run/result.xml; exit $status'
    for _ in range(2):
        start_s = time.monotonic()
        outcome = guest.run(
            CACHE, machine.suite, REPOSITORY, ["bash", "-c", script, "guest", *pytest],
            TIMEOUT_S, machine.cpus_count, parameter,
        )  # fmt: skip
        row = results(machine, outcome, time.monotonic() - start_s)
        print(outcome.output.partition("<?xml")[0], flush=True)
        if outcome.status != guest.GUEST_DIED:
            break
        print(f"{machine.name}: the guest died\n{outcome.console[-3000:]}", flush=True)
    for complaint in row.complaints:
        print(f"{machine.name}: the kernel said: {complaint}")
    return row


def entries(rows: list[Row]) -> dict[str, list[str]]:
    """The lines about each machine: its row of the table, then what failed and was skipped."""
    lines = {}
    for row in rows:
        name = row.machine.name
        what = f"{name} | {row.kernel} | {row.preemption} | {row.machine.cpus_count}"
        counts = f"{len(row.passed)} | {len(row.failed)} | {len(row.skipped)}"
        took = f"{row.duration_s / 60:.0f} min"
        lines[name] = [f"| {what} | {counts} | {took} | {row.commit} |"]
        lines[name] += [f"- {name}, failed: {short(one)}" for one in row.failed]
        lines[name] += [f"- {name}, passed when run alone: {short(one)}" for one in row.again]
        lines[name] += [f"- {name}, skipped {line}" for line in skips(row.skipped)]
        lines[name] += [f"- {name}, the kernel said: `{line}`" for line in row.complaints[:3]]
    return lines


def skips(skipped: list[str]) -> list[str]:
    """A line for each reason: how many tests, of which files."""
    files: dict[str, list[str]] = {}
    for one in skipped:
        test, _, reason = short(one).partition(": ")
        files.setdefault(reason, []).append(test.partition("::")[0])
    return [
        f"{len(mine)} ({', '.join(dict.fromkeys(mine))}): {reason}"
        for reason, mine in files.items()
    ]


def short(name: str) -> str:
    """A test without its folder."""
    return re.sub(r"^\S*/(\w+)\.py::", r"\1::", name)


def known_entries(text: str) -> dict[str, list[str]]:
    """What `entries` gave when `text` was written, for machines that there still are."""
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        name = re.split(r"[ ,]", line[2:], maxsplit=1)[0]
        if any(name == machine.name for machine in MACHINES):
            lines.setdefault(name, []).append(line)
    return lines


def table(known: dict[str, list[str]]) -> str:
    """The rows in Markdown, with what failed and what was skipped below."""
    lines = ["| machine | kernel | preemption | CPUs | passed | failed | skipped | took | commit |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    known = {one.name: known[one.name] for one in MACHINES if one.name in known}
    lines += [line for of_one in known.values() for line in of_one if line.startswith("|")]
    notes = [line for of_one in known.values() for line in of_one if not line.startswith("|")]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def write_table(page: Path, rows: list[Row]) -> None:
    """Put the rows between the table's markers."""
    head, _, rest = page.read_text().partition(BEGIN)
    before, _, tail = rest.partition(END)
    text = table(known_entries(before) | entries(rows))
    page.write_text(f"{head}{BEGIN}\n{text}{END}{tail}")


def main() -> int:
    """Run every chosen machine; fail when a test failed on one."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [machine.name for machine in MACHINES]
    parser.add_argument("--machine", action="append", choices=names, help="default: all of them")
    parser.add_argument("-k", metavar="EXPRESSION", help="as pytest's; the table stays as it is")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the guest ends, too
    machines = [one for one in MACHINES if one.name in (options.machine or names)]
    suites = dict.fromkeys(machine.suite for machine in machines)
    subprocess.run([Path(__file__).with_name("fetch"), CACHE, *suites], check=True)
    # A guest cannot write bytecode: it would compile every module at every start of Python.
    compileall.compile_dir(REPOSITORY, quiet=1)
    narrowed = ["-k", options.k] if options.k else []
    rows = []
    for machine in machines:
        rows.append(test(machine, options.tests, narrowed))
        if not (options.k or options.tests):
            write_table(REPOSITORY / PAGE, rows[-1:])
    print(table(entries(rows)))
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
