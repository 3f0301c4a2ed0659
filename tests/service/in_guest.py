# SPDX-License-Identifier: GPL-2.0-only
"""Runs in the guest of run.py, as root: installs the unit, and judges what systemd makes of it.

Each claim is a line, `ok: ...` or `FAILED: ...`; the last line is `the end`.
"""

import errno
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import TABLES
from tlstax.analysis.fleet.store import parquet_files, selection

UNIT: Final = "tlstax-watch"
DATA: Final = Path("/var/lib/tlstax")
GROUP: Final = Path("/sys/fs/cgroup/system.slice/tlstax-watch.service")
METRICS: Final = "http://127.0.0.1:9917/metrics"
PATIENCE_S: Final = 900.0
FIRST, SECOND, THIRD, FOURTH = 20, 11, 7, 5
WANTED: Final = {"memory.max": str(1 << 30), "pids.max": "32", "cpu.weight": "10"}


class FailedError(Exception):
    """What is not as it must be."""


def require(is_so: bool, what: str) -> None:
    """Say whether a claim holds."""
    print(f"{'ok' if is_so else 'FAILED'}: {what}", flush=True)


def until(is_so: Callable[[], Any], what: str) -> None:
    """Wait for it. Raises FailedError."""
    begun_s = time.monotonic()
    while not is_so():
        if time.monotonic() - begun_s > PATIENCE_S:
            raise FailedError(f"{what}: not in {PATIENCE_S:.0f} s")
        time.sleep(1)
    print(f"ok: {what}, after {time.monotonic() - begun_s:.0f} s", flush=True)


def output(*command: str) -> str:
    """What a command writes."""
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def show(name: str) -> str:
    """A property of the unit."""
    return output("systemctl", "show", "--value", "-p", name, UNIT).strip()


def journal() -> str:
    """What the unit said."""
    return output("journalctl", "-o", "cat", "--no-pager", "-u", UNIT)


def connect(count: int) -> None:
    """Connections over TLS, one after the other."""
    client = ["mariadb", "-h127.0.0.1", "-usb", "-psb", "--ssl", "--skip-ssl-verify-server-cert"]
    for _ in range(count):
        done = subprocess.run(
            [*client, "-e", "select 1"], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise FailedError(f"a client: {done.stderr}")


def shakes() -> int:
    """Successful handshakes in the rollups of hours."""
    if not (DATA / "tier=1h").exists():
        return 0
    files = selection.select(DATA, "1h", TABLES)
    return sum(
        row["handshake_count"]
        for path in files.files[columns.Handshake]
        for rows in parquet_files.groups(path)
        for row in rows.to_pylist()
        if row["outcome"] == "success"
    )


def recorders() -> list[str]:
    """Pids of recorders that run."""
    return output("pgrep", "-f", "tlstax-recorder").split()


def recordings() -> int:
    """How often it has begun to record."""
    return journal().count("recording process")


def next_recording() -> Callable[[], bool]:
    """Whether it has begun to record once more."""
    before = recordings()
    return lambda: recordings() > before


def begins() -> None:
    """It is installed as docs/watch.md says, and records."""
    text = (Path(sys.argv[1]) / f"{UNIT}.service").read_text()
    made = re.sub("^(ExecStart=.*)$", r"\1 --budget none", text, flags=re.MULTILINE)
    Path(f"/etc/systemd/system/{UNIT}.service").write_text(made)
    subprocess.run(["systemctl", "enable", "--now", UNIT], check=True)
    until(recordings, "systemctl enable --now: it records MariaDB")
    connect(FIRST)
    until(lambda: shakes() == FIRST, f"{FIRST} connections are in rollups")
    with urlopen(METRICS, timeout=60) as answer:
        text = answer.read().decode()
    require("tlstax_server_up 1.0" in text, "metrics are served on the loopback address")


def is_hardened() -> None:
    """What the unit takes away is away, and the limits are the kernel's."""
    for name, wanted in WANTED.items():
        found = (GROUP / name).read_text().strip()
        require(found == wanted, f"{name} of its control group is {found}")
    pid = show("MainPID")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    count = int(status["CapBnd"], 16).bit_count()
    require(count == 7, f"{count} capabilities bound it, of the recorder and its children too")
    require(status["NoNewPrivs"] == "1", "it gets no new privileges")
    for folder in ("/etc", "/root", "/var/lib", "/var/log", str(DATA), "/var/cache/tlstax"):
        Path(folder, ".probe").touch()  # by others it is writable
        Path(folder, ".probe").unlink()
        why = writes(pid, folder)
        is_own = folder.endswith("tlstax")
        require(is_own is not bool(why), f"{folder}: {why or 'writable'}")
    mode = DATA.stat().st_mode & 0o777
    require(mode == 0o700, f"its data set has mode {mode:o}")
    security = output("systemd-analyze", "security", "--no-pager", UNIT).splitlines()
    print("systemd-analyze security:", *security[-1:])


def writes(pid: str, folder: str) -> str:
    """Why no file can be made there, as the process sees the folder; "": one can."""
    found = subprocess.run(
        ["nsenter", "-t", pid, "-m", "touch", f"{folder}/.probe"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if not found.returncode:
        subprocess.run(["nsenter", "-t", pid, "-m", "rm", f"{folder}/.probe"], check=True)
        return ""
    return os.strerror(errno.EROFS) if "Read-only" in found.stderr else found.stderr.strip()


def survives_a_restart_of_the_server() -> None:
    """It follows the server, in its cage."""
    is_next = next_recording()
    Path("/etc/mysql/mariadb.conf.d/99-slow.cnf").write_text("[server]\nconnect_timeout=600\n")
    subprocess.run(["systemctl", "restart", "mariadb"], check=True)
    until(is_next, "systemctl restart mariadb: the next process is recorded")
    connect(SECOND)
    until(lambda: shakes() == FIRST + SECOND, f"{SECOND} more connections are in rollups")


def survives_kill() -> None:
    """Kill -9 loses no rollup that was written, and the unit starts again."""
    before, pid = shakes(), show("MainPID")
    connect(THIRD)  # which no rollup has yet, or some
    is_next = next_recording()
    subprocess.run(["kill", "-9", pid], check=True)
    until(lambda: not recorders(), "kill -9: its recorder has ended")
    kept = shakes()
    is_kept = before <= kept <= before + THIRD
    require(is_kept, f"of {before} connections in rollups {kept} are there")
    until(is_next, "it was started again, and records")
    require(show("MainPID") not in ("0", pid), "it is another process")
    require(show("NRestarts") == "1", "systemd started it again once")
    connect(FOURTH)
    until(lambda: shakes() == kept + FOURTH, f"{FOURTH} connections after that are counted once")


def stops() -> None:
    """`systemctl stop` ends it in order."""
    expected = shakes() + FOURTH
    connect(FOURTH)
    peak = int((GROUP / "memory.peak").read_text()) >> 20
    tasks = (GROUP / "pids.peak").read_text().strip()
    events = (GROUP / "memory.events").read_text()
    is_alive = "oom_kill 0" in events
    require(is_alive, f"memory.peak is {peak} MB, pids.peak {tasks}; nothing was killed")
    begun_s = time.monotonic()
    subprocess.run(["systemctl", "stop", UNIT], check=True)
    print(f"systemctl stop took {time.monotonic() - begun_s:.0f} s")
    found = show("Result"), show("ExecMainStatus"), show("ActiveState")
    require(found == ("success", "0", "inactive"), f"systemctl stop: {found}")
    require(not recorders(), "no recorder is left")
    require(shakes() == expected, f"the last rollup is written: {shakes()} of {expected}")
    stacks = list(DATA.glob("tier=1h/table=stacks/**/*.parquet"))
    require(bool(stacks), f"its hours were explained: {len(stacks)} files of stacks")
    captures = list(DATA.glob("raw/**/*.tlstax"))
    require(len(captures) >= 3, f"{len(captures)} raw captures")
    said = journal()
    for word in ("Traceback", "Permission denied", "Operation not permitted", "could not be",
                 "Read-only"):  # fmt: skip
        require(word not in said, f"its journal says nothing of {word!r}")


def main() -> None:
    """All claims, in order."""
    print(output("systemctl", "--version").splitlines()[0], output("uname", "-r").strip())
    until(lambda: output("systemctl", "is-active", "mariadb").strip() == "active", "MariaDB runs")
    # An emulated CPU is slow.
    sql = "CREATE USER sb@'%' IDENTIFIED BY 'sb' REQUIRE SSL; SET GLOBAL connect_timeout=600"
    subprocess.run(["mariadb", "-uroot", "-e", sql], check=True)
    try:
        for claim in (begins, is_hardened, survives_a_restart_of_the_server, survives_kill, stops):
            print(f"== {claim.__name__}", flush=True)
            claim()
    except Exception:  # noqa: BLE001 - whatever it was, the guest ends and its journal is printed
        print(f"FAILED: {traceback.format_exc()}")
    print("== journal", journal()[-6000:], sep="\n")
    print("the end", flush=True)


if __name__ == "__main__":
    main()
