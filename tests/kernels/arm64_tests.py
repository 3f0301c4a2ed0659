# SPDX-License-Identifier: GPL-2.0-only
"""Run truth and kernel tests on an arm64 kernel in QEMU, and truth tests here: a table of both.

    python tests/kernels/arm64_tests.py [--kernel bookworm|trixie] [--keep FOLDER] [--page FILE]
        [PART...]

In the guest everything is for arm64: Python and its packages, the recorder, the BPF objects, the
programs that are measured. It plans for itself, as a desk with arm64 does. Each part of the tests
has a guest of its own. Results that FOLDER has are not made again.
"""

import argparse
import compileall
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.tests.kernels import guest, truth_table
from tlstax.tests.kernels.arm64 import CACHE, REPOSITORY


class Part(NamedTuple):
    """Tests of a guest."""

    tests: tuple[str, ...]
    choice: str = ""  # as pytest's -k


def truths(*names: str) -> tuple[str, ...]:
    """Files of truth tests."""
    return tuple(f"tests/truth/test_{name}.py" for name in names)


BY_PROBES: Final = "not recorder-flow and not uprobes-only"
BY_SOCKETS: Final = "recorder-flow and not functions"
RECORDER: Final = "tests/kernel/recorder/test_recorder.py::test_"
STACKS: Final = "tests/truth/test_stacks.py::test_"
PARTS: Final = {
    # What else the recorder does; the guest's instructions have no assembly that saves nothing.
    "ways": Part(
        (
            *truths("program", "shared_keys", "unseen", "pausing", "implicit_handshakes",
                    "several_targets", "functions", "capture", "unwinding"),
            "tests/truth/closure/test_run_delay.py",
            *(f"{STACKS}every_frame[{kind}]" for kind in (
                "recursion", "tail", "alloca", "counter")),
            f"{STACKS}a_signal_handler_has_what_it_interrupted_as_caller",
        ),
        "not sane or 6-throw or 6-longjmp or 6-exit or 6-cancel",  # level `record` only
    ),
    "probes": Part(truths("states", "exits", "handshakes", "wire"), BY_PROBES),
    "sockets": Part(truths("states", "wire"), BY_SOCKETS),
    "kernel": Part(
        (
            *(f"{RECORDER}{name}" for name in (
                "every_handshake_is_recorded",
                "the_ledger_adds_up_to_the_windows", "the_capture_has_what_a_report_needs",
                "the_stream_ends_in_order", "another_build_is_refused_by_name",
                "other_code_at_a_site_is_refused_by_name", "a_lower_level_records_less",
                "it_runs_in_an_empty_directory", "latencies_come_with_their_window",
                "stacks_are_walked_by_tables_beside_the_plan",
                "the_kernels_counts_are_read_at_both_ends_and_seldom_between")),
            "tests/kernel/recorder/test_privileges.py",
            "tests/kernel/recorder/test_kernel_names.py",
            "tests/kernel/test_doctor.py",
            "tests/kernel/test_accounts.py",
        )
    ),
}  # fmt: skip
"""Each truth file at least once. An emulated CPU takes half a minute for a test."""
CHOICE: Final = ["-m", "not long and (not timing or timing(emulated=True))"]
PYTEST: Final = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=900", *CHOICE]
PROGRAMS: Final = "tests/testprogs/bin"
TIMEOUT_S: Final = 7200.0
RESULT: Final = "/run/result.xml"
# Programs for this host are covered by those for the guest; objects and recorder are chosen.
SCRIPT: Final = f"""
set -e
mount --bind {PROGRAMS}/arm64 {PROGRAMS}
export PYTHONPATH=$PWD/.types PYTHONDONTWRITEBYTECODE=1
uname -rm
status=0
/usr/bin/python3 "$@" || status=$?
cat {RESULT}
exit $status
"""


def arguments(part: Part, result: str) -> list[str]:
    """Of pytest."""
    choice = ["-k", part.choice] if part.choice else []
    return [*PYTEST, *choice, f"--junitxml={result}", *part.tests]


def run_there(suite: str, part: Part) -> str:
    """The guest's kernel, then pytest's XML of the tests in it."""
    command = ["bash", "-c", SCRIPT, "guest", *arguments(part, RESULT)]
    start_s = time.monotonic()
    outcome = guest.run(CACHE, suite, REPOSITORY, command, TIMEOUT_S, root=CACHE / "root")
    said, mark, xml = outcome.output.partition("<?xml")
    print(said, f"{(time.monotonic() - start_s) / 60:.0f} minutes", sep="\n", flush=True)
    if not mark:
        raise SystemExit(f"no result (status {outcome.status}): {outcome.console[-3000:]}")
    kernel = next(line for line in said.splitlines() if line.endswith("aarch64"))
    return f"{kernel}\n{mark}{xml}"


def run_here(part: Part) -> str:
    """Pytest's XML of the same tests on this host."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.xml"
        command = [sys.executable, *arguments(part, str(path))]
        subprocess.run(command, cwd=REPOSITORY, check=False)
        return path.read_text()


def main() -> int:
    """Run them, and write the table; fail when a test failed in the guest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=("bookworm", "trixie"), default="trixie")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="results, by part and machine")
    parser.add_argument("--page", type=Path, help="whose table is replaced")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    suite = f"{options.kernel}-arm64"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the guest ends, too
    subprocess.run([Path(__file__).with_name("fetch"), CACHE, suite], check=True)
    # A guest cannot write bytecode: it would compile every module at every start of Python.
    compileall.compile_dir(REPOSITORY, quiet=2)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        here, there = [], []
        for name in options.parts or PARTS:
            kept, mine = folder / f"{name}.{suite}", folder / f"{name}.here"
            if not kept.exists():
                kept.write_text(run_there(suite, PARTS[name]))
            if name != "kernel" and not mine.exists():
                mine.write_text(run_here(PARTS[name]))
            kernel, _, xml = kept.read_text().partition("\n")
            there.append(xml)
            here += [mine.read_text()] if mine.exists() else []
    rows = truth_table.rows(here, there)
    if options.page:
        truth_table.write(options.page, rows, kernel)
    print(truth_table.text(rows))
    return 1 if any(row.there.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
