# SPDX-License-Identifier: GPL-2.0-only
"""What a probe hit costs on this host, and where that is kept between runs.

Measured once a week, or by `tlstax doctor --calibrate`, and kept in a file for this kernel and CPU:
$XDG_CACHE_HOME/tlstax/calibration.json, without that variable in /var/cache for root and in
~/.cache for others. A file that does not fit, or is damaged, is measured anew.
"""

import json
import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tlstax.collectors.recording_facts import cpu_field

FILE: Final = "calibration.json"
FRESH_S: Final = 7 * 86_400
PLAIN: Final = "nop"
STEPPED: Final = "mov %rdi,%rax"


class Price(NamedTuple):
    """Nanoseconds per hit of one kind of probe: a row of the capture's table `calibration`."""

    kind: str
    instruction: str
    cost_ns: float
    low_ns: float  # of the 95 % interval of the median
    high_ns: float
    rounds_count: int


@dataclass(frozen=True)
class Prices:
    """Nanoseconds per probe hit, by which placements are compared.

    The defaults are those of the machine that docs/limits.md shows.
    """

    emulated_ns: float = 400.0  # one trap
    stepped_ns: float = 14_000.0  # the trap and a single step
    return_ns: float = 230.0  # what a return probe adds to the trap that arms it

    def trap_ns(self, emulated: bool) -> float:
        """One hit on an instruction."""
        return self.emulated_ns if emulated else self.stepped_ns


@dataclass(frozen=True)
class Kernel:
    """What was measured and tried on this host that placements depend on."""

    prices: Prices = Prices()
    measured: bool = False  # whether the prices are this host's own
    emulated: frozenset[str] = frozenset()  # forms of instructions beyond those of every kernel
    rows: tuple[Price, ...] = ()


def kernel_of(rows: Iterable[Price], emulated: Iterable[str]) -> Kernel:
    """The prices that placements compare, from those of each kind of probe."""
    rows = tuple(rows)
    known = {(row.kind, row.instruction): row.cost_ns for row in rows}
    for suffix in ("_multi", ""):
        entry = known.get((f"uprobe{suffix}", PLAIN))
        both = known.get((f"uretprobe{suffix}", PLAIN))
        stepped = known.get((f"uprobe{suffix}", STEPPED))
        if entry is not None and both is not None and stepped is not None:
            prices = Prices(max(1.0, entry), max(1.0, stepped), max(0.0, both - entry))
            return Kernel(prices, True, frozenset(emulated), rows)
    return Kernel(emulated=frozenset(emulated), rows=rows)


def this_kernel() -> Kernel:
    """What is known of this host; measured now, in about a third of a second, if nothing is.

    Where nothing may be attached, the defaults. Forks: call it while this process has one thread.
    """
    kept = load()
    if kept is not None:
        return kept
    # Only here: a process that stays attached needs neither.
    from tlstax.collectors.calibration import measure_basic
    from tlstax.collectors.emulation import emulated_forms

    kernel = kernel_of(measure_basic(), emulated_forms())
    if kernel.measured:
        save(kernel)
    return kernel


def load() -> Kernel | None:
    """What was kept for this kernel and CPU, None when that is nothing or too old."""
    try:
        content = json.loads(path().read_text(encoding="utf-8"))
        if content["host"] != host() or not 0 <= time.time() - content["time_s"] < FRESH_S:
            return None
        return kernel_of((Price(*row) for row in content["rows"]), content["emulated"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def save(kernel: Kernel) -> None:
    """Keep it for the next run; where that cannot be, it is measured again."""
    content = {
        "host": host(),
        "time_s": int(time.time()),
        "rows": kernel.rows,
        "emulated": sorted(kernel.emulated),
    }
    with suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        scratch = path().with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(content, indent=1), encoding="utf-8")
        scratch.replace(path())


def path() -> Path:
    """Where prices are kept."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(named):
        named = "/var/cache" if os.geteuid() == 0 else str(Path.home() / ".cache")
    return Path(named) / "tlstax" / FILE


def host() -> str:
    """What prices depend on: the kernel's build, the CPU, the number of CPUs."""
    name = platform.uname()
    return f"{name.release} {name.version} / {cpu_field('model name')} x {os.cpu_count()}"
