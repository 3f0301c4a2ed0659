# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel in QEMU on this host's own file tree and run one command in it as root.

The guest's root is the host's, over 9p and read-only, so that the same Python, libbpf and libssl
run on another kernel; /tmp, /var/tmp and /run are its own. A guest of another architecture has
another root, and the source at the same place. QEMU emulates the CPU (TCG): a host
that offers /dev/kvm may still be unable to run a stock kernel, so that is not tried.
"""

import io
import lzma
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# What the initramfs needs to reach the root: stock kernels have virtio and 9p as modules.
# ext4 asks for crc32c by its algorithm's name up to 6.12.
BOOT_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "virtio_blk", "crc32c_generic", "ext4")
DISK_BYTES = 2 << 30
MEMORY_MIB = 3072
GUEST_DIED = 125

INITRAMFS_INIT = """#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for module in $($B cat /modules/order); do $B insmod /modules/$module; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro root /host
for folder in proc dev; do $B mount --move /$folder /host/$folder; done
exec $B switch_root /host /bin/sh -c '
mount -t tmpfs tmpfs /run && mkdir /run/guest /run/source
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 control /run/guest
exec /bin/sh /run/guest/init'
"""

# The guest's clock may be seconds behind: it takes the host's from the control folder.
GUEST_INIT = """
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/home TERM=dumb LC_ALL=C.UTF-8
export TLSTAX_EMULATED_CPU=1
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm /run/lock /run/home
mount -t devpts devpts /dev/pts
{source}
for covered in /dev/shm /var/tmp; do mount -t tmpfs tmpfs $covered; done
mount -t ext4 /dev/vda /tmp # a real disk: tests time what fsync waits for
[ -d {folder} ] || {{ mkdir -p {folder} && mount --bind /run/source {folder}; }}
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
ip link set lo up 2>/dev/null || /run/guest/busybox ip link set lo up
: > /run/guest/now
date -s @$(stat -c %.Y /run/guest/now) > /dev/null
cd {folder}
{command} > /run/guest/output 2>&1 < /dev/null
echo $? > /run/guest/status
sync
mkfifo /run/never
echo o > /proc/sysrq-trigger
read -r nothing < /run/never
"""


# QEMU's own network: a guest has 10.0.2.15, and what is forwarded comes in there.
NETWORK_UP = """device=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
ip link set "$device" up
ip address add 10.0.2.15/24 dev "$device"
ip route add default via 10.0.2.2"""
BIND_SOURCE = "mount --bind {folder} /run/source"
SHARED_SOURCE = "mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro source /run/source"


class Emulated(NamedTuple):
    """A machine that QEMU emulates."""

    program: str
    options: tuple[str, ...]
    console: str
    firmware: tuple[str, ...] = ()


AMD64 = Emulated(
    "qemu-system-x86_64", ("-cpu", "max", "-M", "pc"), "ttyS0 tsc=reliable",
    ("usr/share/seabios", "usr/share/qemu"),
)  # fmt: skip
# Pointer authentication, which `max` has, takes QEMU twice the time.
ARM64 = Emulated("qemu-system-aarch64", ("-cpu", "neoverse-n1", "-M", "virt"), "ttyAMA0")


class Outcome(NamedTuple):
    """How a command in the guest ended."""

    status: int  # its exit status, or GUEST_DIED
    output: str
    console: str  # what the kernel said


def archive(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """A cpio archive in the `newc` form that kernels unpack, of (name, mode, content)."""
    out = io.BytesIO()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        encoded = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        out.write(b"070701" + b"".join(b"%08x" % field for field in fields) + encoded)
        out.write(b"\0" * (-out.tell() % 4) + content)
        out.write(b"\0" * (-out.tell() % 4))
    return out.getvalue()


def boot_modules(modules: Path, wanted: tuple[str, ...] = BOOT_MODULES) -> list[Path]:
    """Modules and what they depend on, in load order; built-in ones are left out."""
    needs: dict[Path, list[Path]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[modules / module] = [modules / other for other in others.split()]
    by_name = {path.name.partition(".")[0]: path for path in needs}
    order: list[Path] = []
    for name in wanted:
        if name in by_name:
            for path in [*reversed(needs[by_name[name]]), by_name[name]]:
                if path not in order:
                    order.append(path)
    return order


def module_entries(modules: Path, wanted: tuple[str, ...]) -> list[tuple[str, int, bytes]]:
    """Modules for an initramfs, unpacked, and the file `order`, which names them in load order."""
    entries, names = [], []
    for path in boot_modules(modules, wanted):
        content = path.read_bytes()
        names.append(path.name.partition(".")[0] + ".ko")
        unpacked = lzma.decompress(content) if path.suffix == ".xz" else content
        entries.append((f"modules/{names[-1]}", stat.S_IFREG | 0o644, unpacked))
    entries.append(("modules/order", stat.S_IFREG | 0o644, "\n".join(names).encode()))
    return entries


def initramfs(modules: Path, busybox: Path, wanted: tuple[str, ...] = BOOT_MODULES) -> bytes:
    """The first file tree: busybox, the modules that reach the root, a script that goes there."""
    folders = ("bin", "dev", "modules", "proc", "host")
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries.append(("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
    entries.append(("init", stat.S_IFREG | 0o755, INITRAMFS_INIT.encode()))
    return archive([*entries, *module_entries(modules, wanted)])


def make_disk(path: Path) -> None:
    """An empty ext4 file system in a sparse file."""
    with path.open("wb") as disk:
        disk.truncate(DISK_BYTES)
    subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext4", str(path)], check=True)


def qemu_command(
    machine: Emulated,
    tools: Path,
    kernel: Path,
    control: Path,
    cpus_count: int,
    boot: str,
    folders: dict[str, Path],
    ports: dict[int, int],
) -> list[str]:
    """How QEMU is started: a scratch disk, folders over 9p by their tags, forwarded ports."""
    command = [str(tools / "usr/bin" / machine.program)]
    for firmware in machine.firmware:
        command += ["-L", str(tools / firmware)]
    command += ["-accel", "tcg,thread=multi", *machine.options, "-m", str(MEMORY_MIB)]
    command += ["-smp", str(cpus_count), "-nodefaults", "-no-user-config", "-no-reboot"]
    command += ["-display", "none", "-monitor", "none", "-device", "virtio-rng-pci"]
    command += ["-kernel", str(kernel), "-initrd", str(control / "initramfs")]
    line = f"console={machine.console} quiet loglevel=5 panic=-1 mitigations=off"
    command += ["-append", f"{line} {boot}".rstrip()]
    command += ["-serial", f"file:{control / 'console'}"]
    command += ["-drive", f"file={control / 'disk'},if=virtio,format=raw,cache=unsafe"]
    if ports:
        forwards = "".join(
            f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in ports.items()
        )
        command += ["-netdev", f"user,id=net,restrict=on{forwards}"]
        command += ["-device", "virtio-net-pci,netdev=net,romfile="]
    for tag, folder in folders.items():
        share = f"path={folder},mount_tag={tag},id={tag}"
        share += "" if tag == "control" else ",readonly=on"
        command += ["-virtfs", f"local,security_model=none,multidevs=remap,{share}"]
    return command


@contextmanager
def booted(
    cache: Path,
    suite: str,
    folder: Path,
    command: list[str],
    cpus_count: int = 2,
    boot: str = "",
    root: Path = Path("/"),
    ports: dict[int, int] | None = None,
    shared: Path | None = None,
) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A guest that runs `command` in `folder`, and the folder that it shares: see `run`.

    `ports`: those of this host that lead to ports of the guest; `shared`: copied to that folder,
    /run/guest of the guest. The guest ends with the block.
    """
    (modules,) = (cache / suite / "lib/modules").iterdir()
    is_arm64 = suite.endswith("-arm64")
    machine, tools = (ARM64, cache / "tools-arm64") if is_arm64 else (AMD64, cache / "tools")
    folders = {"root": root}
    source = BIND_SOURCE.format(folder=shlex.quote(str(folder)))
    if root != Path("/"):
        folders["source"], source = folder, SHARED_SOURCE
    wanted: tuple[str, ...] = BOOT_MODULES
    if ports:
        wanted, source = (*wanted, "virtio_net"), f"{source}\n{NETWORK_UP}"
    with tempfile.TemporaryDirectory(prefix="tlstax-guest-") as name:
        control = Path(name)
        busybox = tools / "bin/busybox"
        (control / "initramfs").write_bytes(initramfs(modules, busybox, wanted))
        make_disk(control / "disk")
        place = shlex.quote(str(folder))
        script = GUEST_INIT.format(folder=place, command=shlex.join(command), source=source)
        (control / "init").write_text(script)
        (control / "busybox").write_bytes(busybox.read_bytes())
        (control / "busybox").chmod(0o755)
        if shared is not None:
            shutil.copytree(shared, control / shared.name)
        folders["control"] = control
        kernel = cache / suite / "vmlinuz"
        qemu = subprocess.Popen(
            qemu_command(machine, tools, kernel, control, cpus_count, boot, folders, ports or {}),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": name},
        )
        try:
            yield qemu, control
        finally:
            qemu.kill()
            qemu.wait()


def run(
    cache: Path,
    suite: str,
    folder: Path,
    command: list[str],
    timeout_s: float,
    cpus_count: int = 2,
    boot: str = "",
    root: Path = Path("/"),
) -> Outcome:
    """Boot the kernel of `suite` from `cache` and run `command` in `folder`.

    `boot`: further parameters of the kernel; `root`: the file tree, whose architecture is that of
    the suite.
    """
    with booted(cache, suite, folder, command, cpus_count, boot, root) as (qemu, control):
        try:
            qemu.wait(timeout_s)
        except subprocess.TimeoutExpired:
            print(f"{suite}: no end after {timeout_s:.0f} s", file=sys.stderr)
            qemu.kill()
            qemu.wait()
        texts = {}
        for part in ("status", "output", "console"):
            path = control / part
            texts[part] = path.read_text(errors="replace") if path.exists() else ""
    status = texts["status"].strip()
    return Outcome(int(status) if status else GUEST_DIED, texts["output"], texts["console"])
