# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel this is: its upstream version, whose build it is, and whether it is preemptible.

`uname -r` alone does not name the source: Debian's 6.1.0-41-amd64 is Linux 6.1.158, Ubuntu's
6.8.0-45-generic is 6.8.12. RHEL and SUSE keep a number and change the source below it.
"""

import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_GZIP: Final = 31  # as zlib calls it
# A mark in `uname -r` or `uname -v`, and the distribution that makes such builds.
_DISTRIBUTIONS: Final = (
    (r"\bDebian\b", "Debian"),
    (r"-Ubuntu\b|-generic\b|-lowlatency\b", "Ubuntu"),
    (r"\.el\d", "RHEL"),
    (r"\.fc\d", "Fedora"),
    (r"\.amzn\d", "Amazon Linux"),
    (r"-default\b|-azure\b|-gcp\b|-aws\b", "a distribution"),
    (r"\.uek\b|uek\.", "Oracle UEK"),
    (r"-cloud-|-amd64\b|-pve\b", "a distribution"),
)
_UPSTREAM_KEPT: Final = frozenset({"Debian", "Ubuntu", "Fedora", "Amazon Linux"})


@dataclass(frozen=True)
class KernelBuild:
    """A kernel, as far as it can be told without its source."""

    release: str  # as uname -r prints it
    version: tuple[int, ...]  # of the upstream source
    distribution: str  # who built it; "" when there is no sign of a distribution
    preemptible: bool | None  # None: unknown
    cpu_count: int = 1
    has_symbol: Callable[[str], bool] = lambda _name: True

    @property
    def name(self) -> str:
        """The upstream version, and the release where it differs."""
        upstream = ".".join(map(str, self.version))
        return upstream if self.release.startswith(upstream) else f"{upstream} ({self.release})"

    @property
    def keeps_upstream(self) -> bool:
        """Whether its version says which source it is, apart from single fixes."""
        return not self.distribution or self.distribution in _UPSTREAM_KEPT


def parse_build(
    release: str, version_text: str, signature: str = "", preemption: str = ""
) -> KernelBuild:
    """The kernel of `uname -r`, `uname -v` and /proc/version_signature (Ubuntu's; else "").

    `preemption`: the mode in use (none, voluntary, lazy, full), "" when it is unknown.
    """
    text = f"{release} {version_text}"
    distribution = next((name for mark, name in _DISTRIBUTIONS if re.search(mark, text)), "")
    numbers = release
    if distribution == "Debian" and (found := re.search(r"Debian (\d[\d.]*)", version_text)):
        numbers = found[1]
    elif signature:
        numbers = signature.split()[-1]
    found = re.match(r"\d+(\.\d+)*", numbers)
    version = tuple(int(part) for part in found[0].split(".")) if found else (0,)
    return KernelBuild(release, version, distribution, _preemptible(version_text, preemption))


def _preemptible(version_text: str, mode: str) -> bool | None:
    """Whether a thread can lose its CPU inside the kernel."""
    if "PREEMPT_RT" in version_text:
        return True
    if mode:
        return mode in ("full", "lazy")
    if "PREEMPT_DYNAMIC" in version_text:
        return None
    return "PREEMPT" in version_text


def preemption_mode(debug_text: str, command_line: str, config: str) -> str:
    """The mode in use, "" when unknown.

    `debug_text` is /sys/kernel/debug/sched/preempt ("none (voluntary) full"), which decides;
    otherwise preempt= of the kernel's command line; otherwise its configuration.
    """
    if found := re.search(r"\((\w+)\)", debug_text):
        return found[1]
    if given := re.findall(r"(?:^| )preempt=(\w+)", command_line):
        return str(given[-1])
    for mode, option in (
        ("none", "PREEMPT_NONE"),
        ("voluntary", "PREEMPT_VOLUNTARY"),
        ("lazy", "PREEMPT_LAZY"),
        ("full", "PREEMPT"),
    ):
        if re.search(rf"^CONFIG_{option}=y$", config, re.MULTILINE):
            return mode
    return ""


def this_kernel(debug_text: str, cpu_count: int, proc: Path = PROC) -> KernelBuild:
    """The running kernel; `debug_text` as in `preemption_mode`, "" when it cannot be read.

    `proc` as in `process.mappings`.
    """
    release, version = (_text(proc / "sys/kernel" / name) for name in ("osrelease", "version"))
    mode = preemption_mode(debug_text, _text(proc / "cmdline"), _config(release, proc))
    build = parse_build(release, version, _text(proc / "version_signature"), mode)
    return KernelBuild(
        build.release,
        build.version,
        build.distribution,
        build.preemptible,
        cpu_count,
        partial(has_symbol, proc=proc),
    )


def has_symbol(name: str, proc: Path = PROC) -> bool:
    """Whether /proc/kallsyms lists a function; True when it cannot be read."""
    try:
        content = (proc / "kallsyms").read_bytes()
    except OSError:
        return True
    return re.search(rb" [tTwW] " + re.escape(name.encode()) + rb"\b", content) is not None


def _config(release: str, proc: Path) -> str:
    with suppress(OSError, zlib.error):
        packed = (proc / "config.gz").read_bytes()
        return zlib.decompress(packed, _GZIP).decode(errors="replace")
    return _text(proc.parent / f"boot/config-{release}")


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""
