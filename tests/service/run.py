# SPDX-License-Identifier: GPL-2.0-only
"""The systemd unit of `tlstax watch` under systemd, beside Debian's MariaDB.

    python tests/service/run.py [--kernel SUITE] [--keep FOLDER]

systemd wants to be process 1, and tlstax the host's own pids, so a pid namespace is no place for
both. So a guest is booted (QEMU, Debian's kernel): its root is a plain Debian with systemd, MariaDB
and the wheel of `make dist`, over 9p and read-only but for /etc and /var, which are on the guest's
own disk. In it the unit is installed as docs/watch.md says, and in_guest.py judges what happens.
An emulated CPU keeps no budget, so `--budget none` is added, which is all that is changed.
"""

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tlstax.tests.kernels import guest

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parents[1]
CHROOTS: Final = REPOSITORY / "tests/chroots"
HOME: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KERNELS, ROOT = HOME / "tlstax-kernels", HOME / "tlstax-chroots/service"
SUITE: Final = "trixie"
PACKAGES: Final = ("systemd-sysv", "mariadb-server", "mariadb-client", "python3-venv", "iproute2")
UNIT: Final = REPOSITORY / "docs/monitoring/tlstax-watch.service"
BOOT_S: Final = 3600.0
"""An emulated CPU is slow, and the unit waits 30 s before it starts again."""

INIT: Final = """#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in $($B cat /modules/order); do $B insmod /modules/$module; done
share=trans=virtio,version=9p2000.L,msize=262144
$B mount -t 9p -o $share,cache=loose,ro root /host
$B mount -t ext4 /dev/vda /disk
# No overlay: preflight takes no probes through one.
for folder in etc var; do
    $B cp -a /host/$folder /disk/
    $B mount --bind /disk/$folder /host/$folder
done
$B mount -t tmpfs tmpfs /host/root
$B mount -t tmpfs tmpfs /host/run
$B mkdir /host/run/guest
$B mount -t 9p -o $share control /host/run/guest
: > /host/run/guest/now
$B date -s @$($B stat -c %Y /host/run/guest/now)
units=/host/etc/systemd/system
$B cp /host/run/guest/shared/tlstax-check.service $units
$B mkdir -p $units/multi-user.target.wants
$B ln -s ../tlstax-check.service $units/multi-user.target.wants/
for folder in proc sys dev; do $B mount --move /$folder /host/$folder; done
exec $B switch_root /host /lib/systemd/systemd
"""
CHECK: Final = """[Unit]
Description=what tests the unit of tlstax
After=multi-user.target mariadb.service

[Service]
Type=oneshot
ExecStart=/opt/tlstax/bin/python /run/guest/shared/in_guest.py /run/guest/shared
ExecStopPost=/bin/sh -c 'sync; systemctl --no-block --force --force poweroff'
StandardOutput=file:/run/guest/output
StandardError=file:/run/guest/output
TimeoutStartSec=infinity
"""


def make_root() -> None:
    """A Debian with the wheel in /opt/tlstax."""
    subprocess.run([CHROOTS / "make-root", SUITE, ROOT, *PACKAGES], check=True)
    (wheel,) = (REPOSITORY / "dist").glob("tlstax-*.whl")
    shutil.rmtree(ROOT / "opt/tlstax", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="tlstax-service-", dir="/var/tmp") as work:
        shutil.copy(wheel, work)
        install = (
            "python3 -m venv /opt/tlstax && /opt/tlstax/bin/pip install -q --only-binary :all: "
            f"'/mnt/{wheel.name}[fleet,metrics]'"
        )
        enter = [str(CHROOTS / "enter"), str(ROOT), work, "writable"]
        subprocess.run([*enter, "sh", "-c", install], check=True)


def initramfs(modules: Path, busybox: Path) -> bytes:
    """What leads to systemd as process 1."""
    folders = ("bin", "dev", "disk", "host", "modules", "proc", "sys")
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries.append(("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
    entries.append(("init", stat.S_IFREG | 0o755, INIT.encode()))
    return guest.archive([*entries, *guest.module_entries(modules, guest.BOOT_MODULES)])


def run(suite: str, folder: Path) -> str:
    """Boot; what in_guest.py wrote."""
    (modules,) = (KERNELS / suite / "lib/modules").iterdir()
    shared = folder / "shared"
    shared.mkdir()
    for file in (UNIT, HERE / "in_guest.py"):
        shutil.copy(file, shared)
    (shared / "tlstax-check.service").write_text(CHECK)
    (folder / "initramfs").write_bytes(initramfs(modules, KERNELS / "tools/bin/busybox"))
    guest.make_disk(folder / "disk")
    command = guest.qemu_command(
        guest.AMD64, KERNELS / "tools", KERNELS / suite / "vmlinuz", folder, cpus_count=2,
        boot="systemd.mask=serial-getty@ttyS0.service", folders={"root": ROOT, "control": folder},
        ports={},
    )  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as qemu:
        try:
            qemu.wait(BOOT_S)
        finally:
            qemu.kill()
    output = folder / "output"
    return output.read_text(errors="replace") if output.exists() else ""


def main() -> int:
    """Run it; 1 if a claim does not hold, or the guest did not come to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", default="trixie", metavar="SUITE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all files in it")
    options = parser.parse_args()
    subprocess.run([REPOSITORY / "tests/kernels/fetch", KERNELS, options.kernel], check=True)
    make_root()
    with tempfile.TemporaryDirectory(prefix="tlstax-service-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        said = run(options.kernel, folder)
        print(said)
        if "the end" not in said.splitlines():
            print((folder / "console").read_text(errors="replace")[-3000:])
            return 1
    return int(any(line.startswith("FAILED") for line in said.splitlines()))


if __name__ == "__main__":
    sys.exit(main())
