# SPDX-License-Identifier: GPL-2.0-only
"""What `tlstax doctor` reads about this host: privileges, settings, confinement, tools.

Each function returns what it found and raises LackError if that is not enough. Files are
those of proc(5), capabilities(7) and perf_event_open(2).
"""

import ctypes
import importlib.util
import os
import re
import resource
import shutil
import subprocess
from itertools import islice
from pathlib import Path

from tlstax import TlstaxError
from tlstax.collectors.binary.machine import SUPPORTED
from tlstax.collectors.host import tracefs
from tlstax.collectors.host.libbpf import open_library

# Bits of CapEff in /proc/self/status (linux/capability.h).
CAPABILITY_BITS = {
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_RESOURCE": 24,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
BTF_MAGIC = b"\x9f\xeb"
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, the same on every kernel
TOOL_SECONDS = 10


class LackError(Exception):
    """Something required is absent; the message says what was found instead."""


def _status(name: str) -> str:
    """One field of /proc/self/status, or an empty string."""
    found = re.search(rf"^{name}:\s*(.*)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return found.group(1).strip() if found else ""


def machine() -> str:
    """Probes are placed by disassembly, which knows x86-64 and arm64."""
    if os.uname().machine not in SUPPORTED.values():
        raise LackError(f"this machine is {os.uname().machine}")
    return f"{os.uname().machine}, kernel {os.uname().release}"


def privileges() -> str:
    """CAP_BPF and CAP_PERFMON, or the CAP_SYS_ADMIN that includes them."""
    effective = int(_status("CapEff"), 16)
    held = [name for name, bit in CAPABILITY_BITS.items() if effective >> bit & 1]
    found = f"uid {os.geteuid()}, {' '.join(held) or 'none of the needed capabilities'}"
    if "CAP_SYS_ADMIN" not in held and not {"CAP_BPF", "CAP_PERFMON"} <= set(held):
        raise LackError(found)
    return found


def other_processes() -> str:
    """CAP_SYS_PTRACE opens /proc/PID/map_files, exe and root of another user's process."""
    if not int(_status("CapEff"), 16) >> CAPABILITY_BITS["CAP_SYS_PTRACE"] & 1:
        raise LackError("no CAP_SYS_PTRACE")
    return "CAP_SYS_PTRACE is held"


def lockdown() -> str:
    """Kernel lockdown 'confidentiality' forbids BPF to read kernel memory."""
    try:
        text = Path("/sys/kernel/security/lockdown").read_text()
    except FileNotFoundError:
        return "no lockdown file: not in this kernel, or securityfs is not mounted"
    mode = re.search(r"\[(\w+)\]", text)
    if mode and mode.group(1) == "confidentiality":
        raise LackError("confidentiality")
    return mode.group(1) if mode else text.strip()


def kernel_types() -> str:
    """The kernel's BTF, which relocates the BPF programs to this kernel's structures."""
    path = Path("/sys/kernel/btf/vmlinux")
    with path.open("rb") as file:
        magic = file.read(2)
    if magic != BTF_MAGIC:
        raise LackError(f"{path} is not BTF data")
    return f"{path}, {path.stat().st_size} bytes"


def libbpf() -> str:
    """Version of libbpf.so.1 (0.6 or later of that name)."""
    version = open_library().libbpf_version_string()
    return f"libbpf.so.1, {version.decode() if version else 'version unknown'}"


def tracing_files() -> str:
    """tracefs, which bpftrace needs for tracepoints: mounted, or by tlstax for each tool."""
    try:
        return tracefs.availability()
    except TlstaxError as error:
        raise LackError(error.why) from None


def kernel_symbols() -> str:
    """Addresses in /proc/kallsyms are zero for readers without the privilege."""
    restrict = Path("/proc/sys/kernel/kptr_restrict").read_text().strip()
    with open("/proc/kallsyms", encoding="ascii") as file:
        shown = any(int(line.split(" ", 1)[0], 16) for line in islice(file, 2000))
    if not shown:
        raise LackError(f"addresses are hidden (kptr_restrict {restrict})")
    return f"addresses are readable (kptr_restrict {restrict})"


def perf_paranoia() -> str:
    """kernel.perf_event_paranoid: above -1 it restricts processes without CAP_PERFMON."""
    level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    effective = int(_status("CapEff"), 16)
    if level > -1 and not any(
        effective >> CAPABILITY_BITS[name] & 1 for name in ("CAP_PERFMON", "CAP_SYS_ADMIN")
    ):
        raise LackError(f"{level}, and CAP_PERFMON is not held")
    return str(level)


def unprivileged_bpf() -> str:
    """kernel.unprivileged_bpf_disabled; tlstax needs the privilege in any case."""
    level = Path("/proc/sys/kernel/unprivileged_bpf_disabled").read_text().strip()
    meaning = {"0": "allowed", "1": "forbidden until reboot", "2": "forbidden"}
    return f"{level} ({meaning.get(level, 'unknown')})"


def locked_memory() -> str:
    """RLIMIT_MEMLOCK counts BPF maps before kernel 5.11 only; root may raise it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)

    def shown(limit: int) -> str:
        return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit // 1024} KiB"

    found = f"{shown(soft)} (hard limit {shown(hard)})"
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    needed = 64 * 1024 * 1024
    may_raise = int(_status("CapEff"), 16) >> CAPABILITY_BITS["CAP_SYS_RESOURCE"] & 1
    small = hard != resource.RLIM_INFINITY and hard < needed
    if (major, int(minor)) < (5, 11) and small and not may_raise:
        raise LackError(found)
    return found


def thread_clocks() -> str:
    """schedstat: the scheduler's own CPU time, against which the ledger is checked."""
    fields = Path("/proc/thread-self/schedstat").read_text().split()
    if len(fields) != 3 or int(fields[0]) == 0:
        raise LackError("schedstat has no CPU time")
    return "schedstat counts CPU time and waiting"


def confinement() -> str:
    """Signs of a container or a seccomp filter: for information only, the trials decide."""
    signs = []
    if _status("Seccomp") == "2":
        signs.append(f"{_status('Seccomp_filters') or 'a'} seccomp filter(s)")
    with open("/proc/self/uid_map", encoding="ascii") as file:
        if file.readline().split() != ["0", "0", "4294967295"]:
            signs.append("a user namespace")
    if os.readlink("/proc/self/ns/pid") != FIRST_PID_NAMESPACE:
        signs.append("a pid namespace: pids differ from the host's")
    signs += [path for path in ("/.dockerenv", "/run/.containerenv") if Path(path).exists()]
    if signs:
        raise LackError(", ".join(signs))
    return "no container, no seccomp filter"


def tool_version(*command: str) -> str:
    """The first line with a digit in the output of a tool's --version."""
    path = shutil.which(command[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise LackError("not installed")
    result = subprocess.run(
        [path, *command[1:]], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
    )
    lines = (result.stdout + result.stderr).splitlines()
    version = next((line.strip() for line in lines if re.search(r"\d", line)), "")
    if result.returncode != 0 or not version:
        raise LackError(f"{path} does not run: {version or f'exit status {result.returncode}'}")
    return version


def bpftrace() -> str:
    """Version of bpftrace."""
    return tool_version("bpftrace", "--version")


def perf() -> str:
    """Version of perf."""
    return tool_version("perf", "--version")


def bcc() -> str:
    """Libraries of bcc; its Python module may exist only for the system's Python."""
    ctypes.CDLL("libbcc.so.0")
    for place in ("/usr/lib/python3/dist-packages/bcc/version.py",):
        if Path(place).exists():
            version = re.search(r"['\"]([\d.]+)['\"]", Path(place).read_text())
            return f"bcc {version.group(1)}" if version else "bcc"
    if importlib.util.find_spec("bcc") is None:
        raise LackError("libbcc without its Python module")
    return "bcc"
