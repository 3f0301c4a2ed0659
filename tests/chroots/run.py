# SPDX-License-Identifier: GPL-2.0-only
"""What `make dist` built, in plain Debian roots without a compiler: docs/measurements/chroots.md.

    python tests/chroots/run.py [--page PAGE] [ROOT...]

A real MariaDB of this host is recorded from each root, under TLS point selects. The roots are made
by debootstrap and kept below the cache directory; what is installed goes to a new folder each time.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tlstax import TlstaxError
from tlstax.workloads.drivers.sysbench import SCENARIOS, Load, Sysbench
from tlstax.workloads.servers.mariadb import PrivateServer

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tlstax-chroots"
COMPILERS = ("cc", "gcc", "clang", "as", "ld", "tcc", "bpftool")
SECONDS, CONNECTIONS, TABLE_ROWS = 5, 2, 1000
TIMEOUT_S = 900.0
MARK = re.compile(r"<!-- chroots: begin -->.*<!-- chroots: end -->", re.DOTALL)
TLSTAX = "/mnt/venv/bin/tlstax"


class Row(NamedTuple):
    """One claim in one root."""

    root: str
    claim: str
    result: str  # "passed", or what was seen instead


class FailedError(Exception):
    """A claim that does not hold."""


class Root:
    """A root directory, and a folder that is /mnt in it."""

    def __init__(self, name: str, folder: Path, work: Path) -> None:
        self.name, self._folder, self.work = name, folder, work

    def run(self, *command: str, mode: str = "writable", output: Path | None = None) -> str:
        """What a command in there wrote, both streams. Raises FailedError if it fails."""
        words = [str(HERE / "enter"), str(self._folder), str(self.work), mode, *command]
        with open(output or os.devnull, "wb") as file:
            done = subprocess.run(
                words,
                stdout=file if output else subprocess.PIPE,
                stderr=subprocess.PIPE if output else subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
        said = (done.stdout or done.stderr or b"").decode(errors="replace")
        if done.returncode:
            raise FailedError(f"{' '.join(command)[:80]}: status {done.returncode}: {said[-300:]}")
        return said


def container_command(word: str) -> str:
    """The line of the Containerfile that runs `word`."""
    lines = (REPOSITORY / "Containerfile").read_text().splitlines()
    runs = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
    (found,) = (line for line in runs if word in line)
    return found


def debian(suite: str, *packages: str) -> Path:
    """The root of a suite, made if it is not there."""
    subprocess.run([HERE / "make-root", suite, CACHE / suite, *packages], check=True)
    return CACHE / suite


def expect(is_so: bool, otherwise: str) -> None:
    """Raise FailedError unless it is so."""
    if not is_so:
        raise FailedError(otherwise)


# ---- the claims ----


def has_no_compiler(root: Root, _: int) -> None:
    """No compiler is there."""
    words = " ".join(COMPILERS)
    found = root.run("sh", "-c", f"for name in {words}; do command -v $name || true; done")
    expect(not found.strip(), f"found {found.split()}")


def installs(root: Root, _: int) -> None:
    """The wheel installs, as the Containerfile says."""
    command = container_command("pip install")
    for there, here in (("/opt/tlstax", "/mnt/venv"), ("/tmp/tlstax", "/mnt/tlstax")):
        command = command.replace(there, here)
    root.run("sh", "-c", command)
    expect("tlstax" in root.run(TLSTAX, "--version"), "no version")


def reports(root: Root, _: int) -> None:
    """A report of the demo capture, as text and HTML."""
    text = root.run(TLSTAX, "report", "/mnt/demo.tlstax", "--html", "/mnt/demo.html")
    expect("TLS" in text or (root.work / "demo.html").stat().st_size > 100_000, text[-300:])


def writes_recorders(root: Root, _: int) -> None:
    """`tlstax recorder --arch` writes the files of dist/."""
    for built in sorted((REPOSITORY / "dist").glob("tlstax-recorder.*")):
        machine = built.name.rpartition(".")[2]
        root.run(TLSTAX, "recorder", "--force", "--arch", machine, "--output", "/mnt/written")
        same = (root.work / "written").read_bytes() == built.read_bytes()
        expect(same, f"another file for {machine}")


def records(root: Root, pid: int) -> None:
    """`tlstax attach` as root, and a report of that."""
    _attach(root, pid, "writable")


def records_read_only(root: Root, pid: int) -> None:
    """The same on a read-only root."""
    _attach(root, pid, "read-only")


def _attach(root: Root, pid: int, mode: str) -> None:
    if mode == "read-only":
        root.run("sh", "-c", "! touch /probe 2>/dev/null", mode=mode)
    words = ["attach", str(pid), "--for", f"{SECONDS}s", "--quiet", "--force"]
    root.run(TLSTAX, *words, "-o", "/mnt/x.tlstax", mode=mode)
    text = root.run(TLSTAX, "report", "/mnt/x.tlstax", mode=mode)
    expect("TLSv1.3" in text and "command" in text, text[-300:])


def records_with_the_file(root: Root, pid: int) -> None:
    """The static file alone records; the stream becomes a capture elsewhere."""
    _stream(root, pid, "writable")


def records_with_the_file_read_only(root: Root, pid: int) -> None:
    """The same on a read-only root."""
    _stream(root, pid, "read-only")


def _stream(root: Root, pid: int, mode: str) -> None:
    (recorder,) = (REPOSITORY / "dist").glob(f"tlstax-recorder.{os.uname().machine}")
    (root.work / "recorder").write_bytes(recorder.read_bytes())
    (root.work / "recorder").chmod(0o755)
    plan, stream, capture = (root.work / f"x.{ending}" for ending in ("plan", "stream", "tlstax"))
    tlstax = [sys.executable, "-m", "tlstax"]
    made = [*tlstax, "probes", "plan", str(pid), "--force", "--output", str(plan)]
    subprocess.run(made, check=True, capture_output=True, timeout=TIMEOUT_S)
    words = ["/mnt/recorder", "--plan", "/mnt/x.plan", "--pid", str(pid), "--for", f"{SECONDS}s"]
    root.run(*words, mode=mode, output=stream)
    taken = [*tlstax, "import", str(stream), "--force", "--output", str(capture)]
    subprocess.run(taken, check=True, capture_output=True, timeout=TIMEOUT_S)
    text = subprocess.check_output([*tlstax, "report", str(capture)], text=True, timeout=TIMEOUT_S)
    expect("TLSv1.3" in text and "command" in text, text[-300:])


Claim = Callable[[Root, int], None]
WHEEL: tuple[Claim, ...] = (
    has_no_compiler, installs, reports, writes_recorders, records, records_read_only,
)  # fmt: skip
ALONE: tuple[Claim, ...] = (records_with_the_file, records_with_the_file_read_only)
ROOTS: dict[str, tuple[str, tuple[Claim, ...]]] = {
    "bullseye": ("Debian 11", (has_no_compiler, *ALONE)),
    "bookworm": ("Debian 12", WHEEL),
    "trixie": ("Debian 13", WHEEL),
    "sid": ("Debian sid", WHEEL),
    "empty": ("empty but for /proc and /sys", ALONE),
}


@contextmanager
def root_of(name: str) -> Iterator[Root]:
    """A root with a new folder at /mnt, in which what is tested lies."""
    packages = re.findall(r"python3-venv|libbpf1", container_command("apt-get install"))
    # Short, and not on a file system that forbids to execute.
    with tempfile.TemporaryDirectory(prefix="tlstax-chroot-", dir="/var/tmp") as folder:
        work = Path(folder) / "mnt"
        work.mkdir()
        if name == "empty":
            root = Path(folder) / "root"
            for directory in ("proc", "sys", "mnt"):
                (root / directory).mkdir(parents=True)
        else:
            root = debian(name, *(packages if WHEEL is ROOTS[name][1] else ()))
        (wheel,) = (REPOSITORY / "dist").glob("tlstax-*.whl")
        for file in (wheel, REPOSITORY / "docs/demo/demo.tlstax"):
            (work / file.name).write_bytes(file.read_bytes())
        yield Root(name, root, work)


def check(name: str, pid: int) -> Iterator[Row]:
    """Test the claims of one root, in order."""
    title, claims = ROOTS[name]
    with root_of(name) as root:
        for claim in claims:
            text = (claim.__doc__ or "").rstrip(".")
            try:
                claim(root, pid)
                result = "passed"
            except (FailedError, subprocess.SubprocessError) as error:
                result = f"failed: {error}"
            print(f"{title}: {text}: {result}", flush=True)
            yield Row(title, text, result)


@contextmanager
def loaded_server() -> Iterator[int]:
    """The pid of a MariaDB that serves point selects over TLS, on connections that come and go."""
    ended = threading.Event()
    with PrivateServer() as server:
        driver = Sysbench.of_server(server, table_rows=TABLE_ROWS)
        driver.prepare()

        def load() -> None:
            while not ended.is_set():
                try:
                    driver.run(Load(SCENARIOS["point_select"], CONNECTIONS, 1), "tls")
                except TlstaxError as error:  # a busy host; a recording without load fails anyway
                    print(f"load: {error}", file=sys.stderr)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            yield server.pid
        finally:
            ended.set()
            thread.join()


def write_page(path: Path, rows: list[Row]) -> None:
    """Replace the table in a page."""
    lines = ["| root | what | result |", "|---|---|---|"]
    lines += [f"| {row.root} | {row.claim} | {row.result} |" for row in rows]
    table = "\n".join(["<!-- chroots: begin -->", *lines, "<!-- chroots: end -->"])
    path.write_text(MARK.sub(lambda _: table, path.read_text()))


def main() -> int:
    """Test the roots; 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    parser.add_argument("roots", nargs="*", default=list(ROOTS), metavar="ROOT")
    options = parser.parse_args()
    rows: list[Row] = []
    with loaded_server() as pid:
        for name in options.roots:
            rows += check(name, pid)
    if options.page:
        write_page(options.page, rows)
    return int(any(row.result != "passed" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
