# SPDX-License-Identifier: GPL-2.0-only
"""What every test may ask of its host: root, and features that are found, not assumed.

A test says `@pytest.mark.root`, or `@pytest.mark.needs("kprobes")` with a name of FEATURES. What a
host lacks is skipped and listed with its reason. With CI set a skip is a failure: a skipped test
proves nothing, and nobody reads the list. The exception is a kernel feature of FEATURES that was
looked for and is not there.

As root the tests have a mount namespace of their own, with the file systems of MOUNTED in it: what
they mount ends with them, however they end, and the host's mounts stay as they are.

A test that compares durations is marked `timing`. What else runs on the host, or on the host of a
virtual machine, can spoil such a measurement, and not one of counts. So where an assertion of such
a test fails it is measured again some seconds later, twice at most. The summary says how many of
these tests passed at the first try ("timing") and names the others ("measured again"); one that
fails three times fails. Refusals, classifications and counts are tests of their own, without the
mark: they are not measured again. But `make test` runs them beside each other, on a host that may
be short of CPU; what fails there is run once more at the end, alone, and named.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tlstax.collectors.host.tracefs import separate_mounts

if TYPE_CHECKING:
    from tlstax.tests.otlp_receiver import Collector

PMU_DIRECTORY = Path("/sys/bus/event_source/devices")
MEASURED_AGAIN_MAX, MEASURED_AGAIN_AFTER_S = 2, 5
MOUNTED = {Path("/sys/fs/bpf"): "bpf", Path("/sys/fs/cgroup"): "cgroup2"}
"""File systems of the kernel that tests use, and not every host has mounted."""
MISSING_FEATURE = "this kernel lacks "  # how a permitted skip begins
MADE_GOOD = {"user_stack_failed", "kernel_stack_failed", "stack_map_full", "switch_missed"}
# The stack of a thread that has just begun, or has freed it before it ends; code whose call frame
# information has no plain rule.
MADE_GOOD |= {"walk_unreadable", "walk_unsupported"}

# Kernel features that tests may need: whether this host has it, and what it is.
FEATURES: dict[str, tuple[Callable[[], bool], str]] = {
    "btf": (lambda: Path("/sys/kernel/btf/vmlinux").exists(), "BTF (CONFIG_DEBUG_INFO_BTF)"),
    "kprobes": (lambda: (PMU_DIRECTORY / "kprobe").exists(), "kprobes (CONFIG_KPROBE_EVENTS)"),
    "uprobes": (lambda: (PMU_DIRECTORY / "uprobe").exists(), "uprobes (CONFIG_UPROBE_EVENTS)"),
    # Asked by version, as the ways to try it are themselves under test.
    "uprobe_multi": (lambda: kernel_version() >= (6, 6), "uprobe_multi links (Linux 6.6)"),
    "overlay": (
        lambda: "\toverlay\n" in Path("/proc/filesystems").read_text(),
        "overlay file systems",
    ),
    "tun": (lambda: Path("/dev/net/tun").exists(), "TUN interfaces (CONFIG_TUN, /dev/net/tun)"),
    "disk_limits": (
        lambda: limits_disks() and Path("/dev/loop-control").exists(),
        "loop devices, or a control group of theirs (CONFIG_BLK_DEV_THROTTLING)",
    ),
    "own_machine": (
        lambda: os.environ.get("TLSTAX_EMULATED_CPU") == "1",
        "a machine that nobody else uses (QEMU, by `make test-kernels`)",
    ),
    "hardware_pmu": (lambda: (PMU_DIRECTORY / "cpu").exists(), "a hardware PMU"),
    "old_kernel": (lambda: kernel_version() < (5, 15), "what it was before Linux 5.15"),
}


def kernel_version() -> tuple[int, int]:
    """The running kernel's version, such as (6, 1)."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor)


def limits_disks() -> bool:
    """Whether control groups, of either version, can make a disk slow."""
    root = Path("/sys/fs/cgroup")
    controllers = root / "cgroup.controllers"
    unified = controllers.is_file() and "io" in controllers.read_text().split()
    return unified or (root / "blkio").is_dir()


def mount_apart() -> None:
    """Enter a mount namespace, and mount there what the host has not mounted."""
    try:
        separate_mounts()
    except OSError:  # in a container, which may not mount either
        return
    for place, kind in MOUNTED.items():
        if not place.is_mount():
            # A kernel that lacks it is asked again by the tests that need it (FEATURES).
            subprocess.run(
                ["mount", "-t", kind, kind, place], stderr=subprocess.DEVNULL, check=False
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers (an unknown one is an error), and keep mounts from the host."""
    if os.geteuid() == 0:
        mount_apart()
    # Ignored where a shell started the tests in the background, or nohup did. So would be by what
    # they start, and Ctrl-C and a lost terminal are what some of them test.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for line in (
        "root: loads BPF programs, attaches probes or makes namespaces",
        "needs(feature, ...): kernel features, by their names in tests/conftest.py",
        "timing(emulated): compares durations: repeated if it fails; emulated=True: in QEMU, too",
        "alone: depends on what runs at the same time, as closure does; never repeated",
        "long: left out of `make test`, run by a target of its own",
    ):
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pytest-rerunfailures repeat what is marked `timing`, and nothing else."""
    again = pytest.mark.flaky(
        reruns=MEASURED_AGAIN_MAX,
        reruns_delay=MEASURED_AGAIN_AFTER_S,
        only_rerun=[AssertionError],
    )
    for item in items:
        if item.get_closest_marker("timing"):
            item.add_marker(again)
        # Probes of another test on the same library are in this test's process, too.
        if "breakpoints" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.alone)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many measurements passed at the first try, and name the others with the reason.

    The failed tests are written to the file that TLSTAX_FAILED_LIST names, one in a line.
    """
    stats = terminalreporter.stats
    again = stats.get("rerun", [])
    ended = [report for kind in ("passed", "failed", "error") for report in stats.get(kind, [])]
    timed = {
        report.nodeid for report in (*ended, *again) if "timing" in getattr(report, "keywords", ())
    }
    missed = {
        report.nodeid for report in (*stats.get("failed", []), *stats.get("error", []), *again)
    }
    if failed_list := os.environ.get("TLSTAX_FAILED_LIST"):
        # A list of our own: pytest's needs its cache, which a host may have switched off.
        failed = [report.nodeid for kind in ("failed", "error") for report in stats.get(kind, [])]
        Path(failed_list).write_text("".join(f"{nodeid}\n" for nodeid in dict.fromkeys(failed)))
    if timed:
        first_count = len(timed - missed)
        terminalreporter.write_line(
            f"timing: {first_count} of {len(timed)} tests passed at the first try"
        )
    for report in again:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message.splitlines()[0] if crash else "no reason known"
        terminalreporter.write_line(f"measured again: {report.nodeid} ({why[:120]})")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this host cannot run, with the reason."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip(f"needs root. Run: sudo {sys.executable} -m pytest {item.nodeid!r}")
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            present, description = FEATURES[name]
            if not present():
                pytest.skip(MISSING_FEATURE + description)


def fail_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI, turn a skip into a failure, unless it names a kernel feature that is not there."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(MISSING_FEATURE):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the skips of single tests."""
    report = yield
    fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the skips of whole files."""
    report = yield
    fail_skip(report)
    return report


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def spawn() -> Iterator[Callable[..., "subprocess.Popen[Any]"]]:
    """subprocess.Popen, whose processes are gone and whose pipes are closed however a test ends."""
    processes: list[subprocess.Popen[Any]] = []

    def start(command: list[Any], **options: Any) -> "subprocess.Popen[Any]":
        processes.append(subprocess.Popen(command, **options))
        return processes[-1]

    yield start
    for process in reversed(processes):
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):  # what it never read
                if pipe is not None:
                    pipe.close()


@pytest.fixture(scope="module")
def kept_measurements() -> dict[object, Any]:
    """What `measured` keeps."""
    return {}


@pytest.fixture
def measured(
    request: pytest.FixtureRequest, kept_measurements: dict[object, Any]
) -> Callable[[object, Callable[[], Any]], Any]:
    """A function of a key and a measurement, which is made once for all tests of a module.

    A test that is measured again gets a new one, and so do those after it.
    """

    def find(key: object, measure: Callable[[], Any]) -> Any:
        if key not in kept_measurements or getattr(request.node, "execution_count", 1) > 1:
            kept_measurements[key] = measure()
        return kept_measurements[key]

    return find


@pytest.fixture(scope="session")
def real_losses() -> Callable[[Mapping[str, int]], dict[str, int]]:
    """Of an engine's loss counts those that cost something: its own work has to have none.

    Left out is what a kernel withholds now and then and the engine makes good (docs/capture.md),
    such as a switch to a thread that it did not report.
    """
    return lambda counts: {
        kind: count for kind, count in counts.items() if count and kind not in MADE_GOOD
    }


@pytest.fixture
def collector() -> Iterator["Collector"]:
    """A receiver of OTLP metrics and profiles."""
    from tlstax.tests.otlp_receiver import Collector  # needs packages of an extra

    made = Collector()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="session")
def emulated_cpu() -> bool:
    """Whether the CPU is QEMU's (make test-kernels says so): right, but slow and jittery."""
    return os.environ.get("TLSTAX_EMULATED_CPU") == "1"
