# SPDX-License-Identifier: GPL-2.0-only
"""Suspend a guest in the middle of a recording, and judge what was recorded.

    python tests/kernels/suspend.py [--kernel SUITE]... [--keep FOLDER]

The guest of guest.py has its files on the host, which does not survive a suspend. This one has all
it needs in its initramfs: busybox, the truth program with its libraries, the static recorder, and a
plan made on this host. What was recorded comes out on a disk, as a tar archive.

It is suspended to memory: its second CPU, on which alone the truth program runs, is taken away and
comes back. (To idle it is not: nothing of QEMU's wakes it then.) The program's books tell what it
did.
"""

import argparse
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tlstax.collectors.host.executable import recorder_path
from tlstax.tests.kernels import guest
from tlstax.tests.kernels.suspended import RECORD_S, judge

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tlstax-kernels"
PROGRAM: Final = REPOSITORY / "tests/testprogs/bin/truth"
ROUNDS, UNIT_MS, BEFORE_S, HELD_S, ALARM_S = 2, 50, 3, 3, 30
"""The alarm is of the host's time, which a guest on a busy host needs much of to fall asleep."""
BOOT_S = 1800.0
MEMORY_MIB, DISK_BYTES = 1024, 64 << 20

INIT: Final = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir /sys/fs/cgroup/held
held() {{
    echo 0 > /sys/fs/cgroup/held/cgroup.procs
    exec "$@"
}}
for module in $(cat /modules/order); do insmod /modules/$module; done
ip link set lo up
mkdir /out /tmp
mkfifo /go
held taskset 2 /truth states /tmp/disk {rounds} {unit_ms} < /go > /out/books 2> /out/errors &
program=$!
exec 3> /go
until grep -q ready /out/books || ! kill -0 $program; do sleep 1; done
held /tlstax-recorder --plan /plan --any-kernel --pid $program --for {record_s}s --window 500ms \\
    > /out/stream 2> /out/said &
recorder=$!
until grep -q 'attached to' /out/said || ! kill -0 $recorder; do sleep 1; done
printf g >&3
sleep {before_s}
# Seconds with those suspended, nanoseconds without, date.
clocks() {{
    cut -d ' ' -f 1 /proc/uptime
    grep '^now at' /proc/timer_list | cut -d ' ' -f 3
    date +%s
}}
# As while devices take their time: longer than the recorder may be silent.
echo 1 > /sys/fs/cgroup/held/cgroup.freeze
sleep {held_s}
clocks > /out/before
echo +{alarm_s} > /sys/class/rtc/rtc0/wakealarm
echo mem > /sys/power/state 2>> /out/errors
clocks > /out/after
echo 0 > /sys/fs/cgroup/held/cgroup.freeze
wait $recorder
echo $? > /out/status
dmesg > /out/dmesg
tar c -C /out . > /dev/vda
sync
poweroff -f
"""


def tree(modules: Path, plan: Path) -> bytes:
    """All files of the guest."""
    said = subprocess.run(["ldd", PROGRAM], check=True, capture_output=True, text=True).stdout
    files = {word: Path(word) for word in said.split() if word.startswith("/")}
    files |= {"/truth": PROGRAM, "/tlstax-recorder": recorder(), "/plan": plan}
    files |= {"/plan.unwind": Path(f"{plan}.unwind"), "/bin/busybox": CACHE / "tools/bin/busybox"}
    folders = {"/bin", "/dev", "/proc", "/sys", "/modules"}
    folders.update(str(one) for name in files for one in Path(name).parents if one != Path("/"))
    entries = [(name[1:], stat.S_IFDIR | 0o755, b"") for name in sorted(folders)]
    entries += [(name[1:], stat.S_IFREG | 0o755, file.read_bytes()) for name, file in files.items()]
    script = INIT.format(
        rounds=ROUNDS,
        unit_ms=UNIT_MS,
        record_s=RECORD_S,
        before_s=BEFORE_S,
        held_s=HELD_S,
        alarm_s=ALARM_S,
    )
    entries.append(("init", stat.S_IFREG | 0o755, script.encode()))
    return guest.archive([*entries, *guest.module_entries(modules, ("virtio_pci", "virtio_blk"))])


def recorder() -> Path:
    """The one that is tested."""
    return Path(os.environ.get("TLSTAX_RECORDER") or recorder_path())


def make_plan(path: Path) -> None:
    """The plan of the truth program, which is started here for that."""
    command = [str(PROGRAM), "states", "/nowhere", "1", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as program:
        assert program.stdout is not None
        program.stdout.readline()
        plan = [sys.executable, "-m", "tlstax", "probes", "plan", str(program.pid), "--force"]
        plan += ["--definitions", str(REPOSITORY / "tests/testprogs"), "--output", str(path)]
        subprocess.run(plan, check=True, stdout=subprocess.DEVNULL)
        program.kill()


def run(suite: str, folder: Path) -> None:
    """Boot, and unpack into `folder` what the guest wrote."""
    (modules,) = (CACHE / suite / "lib/modules").iterdir()
    plan, disk = folder / "plan", folder / "disk"
    make_plan(plan)
    (folder / "initramfs").write_bytes(tree(modules, plan))
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    tools, machine = CACHE / "tools", guest.AMD64
    command = [str(tools / "usr/bin" / machine.program)]
    for firmware in machine.firmware:
        command += ["-L", str(tools / firmware)]
    command += ["-accel", "tcg,thread=single", *machine.options, "-m", str(MEMORY_MIB), "-smp", "2"]
    # Its time is that of its instructions: a busy host makes it slow, but starves no process in it.
    command += ["-icount", "shift=3,sleep=off"]
    command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    command += ["-monitor", "none", "-serial", f"file:{folder / 'console'}"]
    command += ["-kernel", str(CACHE / suite / "vmlinuz"), "-initrd", str(folder / "initramfs")]
    # Where the HPET emulates the clock of the alarm, it interrupts 64 times a second.
    boot = f"console={machine.console} hpet=disable no_timer_check quiet loglevel=5 panic=-1"
    command += [
        "-append",
        f"{boot} mitigations=off",
        "-drive",
        f"file={disk},if=virtio,format=raw,cache=unsafe",
    ]
    subprocess.run(command, check=True, timeout=BOOT_S, stdin=subprocess.DEVNULL)
    subprocess.run(["tar", "-xf", disk, "-C", folder], check=False, capture_output=True)


def test(suite: str, folder: Path) -> list[str]:
    """What is wrong; once more when the guest itself died, which emulation does now and then."""
    for _ in range(2):
        run(suite, folder)
        if (folder / "status").exists():
            return judge(folder)
        print(f"{suite}: the guest died\n{(folder / 'console').read_text()[-2000:]}", flush=True)
    return ["the guest died twice"]


def main() -> int:
    """Run it on every chosen kernel; fail when something is wrong of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", metavar="SUITE", help="default: trixie")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all files in it")
    options = parser.parse_args()
    suites = options.kernel or ["trixie"]
    subprocess.run([Path(__file__).with_name("fetch"), CACHE, *suites], check=True)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tlstax-suspend-") as name:
        for suite in suites:
            folder = (options.keep or Path(name)) / suite
            folder.mkdir(parents=True, exist_ok=True)
            start_s = time.monotonic()
            found = test(suite, folder)
            wrong += found
            took = f"{time.monotonic() - start_s:.0f} s"
            print(f"{suite}: {len(found)} faults, {took}", *found, sep="\n- ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
