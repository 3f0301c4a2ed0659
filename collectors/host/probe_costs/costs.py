# SPDX-License-Identifier: GPL-2.0-only
"""The cost of a probe hit, as the recorder measures it, and the files that keep it between runs.

`tlstax-recorder --prices` measures on code of its own, on 1, 2, 4 ... and all CPUs at once. What it
found is kept for a week (for an hour if a CPU was too busy) for this kernel and CPU, in prices.json
in tlstax.cache_directory(); what recorders of other hosts found, in files beside it. If a file is
damaged or of another host, the cost is measured again.
"""

import hashlib
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tlstax import TlstaxError, cache_directory
from tlstax.collectors.capture.printable import visible
from tlstax.collectors.host.cpu_facts import cpu_field
from tlstax.collectors.host.executable import recorder_path
from tlstax.collectors.host.features import HOST
from tlstax.collectors.host.kept_file import keep_file, read_kept
from tlstax.collectors.host.probe_costs.prices import (
    PLAIN,
    STEPPED,
    HostCosts,
    Price,
    host_costs_of,
    price_of,
    unmeasured_note,
)

FILE: Final = "prices.json"
ELSEWHERE: Final = "prices"
HOSTS_MOST: Final = 1024
FRESH_S: Final = 7 * 86_400
FRESH_PART_S: Final = 3_600
"""For costs that are not known on all CPUs at once, because one was too busy."""
_PATIENCE_S: Final = 10.0
_TRIES: Final = 2
_SAID: Final = "tlstax-recorder: what a probe costs cannot be measured: "
"""Before the reason (prices.c)."""
_KINDS: Final = ("uprobe", "uretprobe", "uprobe_multi", "uretprobe_multi")
_CODE: Final = {"emulated": PLAIN, "stepped": STEPPED}
_ROWS_MOST, _COST_NS_MOST, _CPUS_MOST = 100, 1e8, 1 << 16


class UnmeasuredError(Exception):
    """What a probe hit costs could not be measured; says why."""


def this_host_costs(tell: Callable[[str], None]) -> HostCosts:
    """The stored costs of this host; if there are none, measure them (about a second).

    Where that fails, the default costs, and `tell` is given a sentence that says why. Forks: call
    it while this process has one thread.
    """
    kept = load(path(), host())
    if kept is not None:
        return kept
    emulated = HOST.emulated_forms.ask()
    try:
        host_costs = costs_in(measured_text(), emulated)
    except UnmeasuredError as error:
        tell(unmeasured_note("this host", str(error)))
        return HostCosts(emulated=frozenset(emulated))
    save(path(), host(), host_costs, own_cpus_count())
    return host_costs


def measured_text() -> str:
    """What this host's recorder measures now (prices.h). A busy host is asked twice.

    Raises UnmeasuredError.
    """
    why = ""
    for _ in range(_TRIES):
        try:
            done = subprocess.run(
                [recorder_path(), "--prices"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_PATIENCE_S,
            )
        except TlstaxError as error:
            why = f"{error.what}: {error.why}"
        except subprocess.CalledProcessError as error:
            said = visible(error.stderr.decode(errors="replace").strip())
            why = said.removeprefix(_SAID) or f"its recorder ended with status {error.returncode}"
        except subprocess.TimeoutExpired:
            why = f"its recorder took longer than {_PATIENCE_S:.0f} s"
        except OSError as error:
            why = f"its recorder cannot be run: {error.strerror}"
        else:
            return done.stdout.decode(errors="replace")
    raise UnmeasuredError(why)


def costs_in(text: str, emulated: Iterable[str]) -> HostCosts:
    """The costs in what a host's recorder wrote. Raises UnmeasuredError."""
    try:
        made = host_costs_of(prices_in(text), emulated)
    except ValueError as error:
        raise UnmeasuredError(f"its recorder sent what no recorder sends: {error}") from None
    if not made.measured:
        raise UnmeasuredError("a kind of probe is missing")
    return made


def prices_in(text: str) -> list[Price]:
    """The prices in the lines that a recorder writes (prices.h). Raises ValueError."""
    rows = []
    for line in text.splitlines():
        kind, code, cpus, *costs = line.split()
        costs_ns = [float(cost) for cost in costs]
        if kind not in _KINDS or code not in _CODE or not 1 <= int(cpus) <= _CPUS_MOST:
            raise ValueError(f"a price of {kind} {code} {cpus}")
        if not costs_ns or not all(
            math.isfinite(cost) and abs(cost) <= _COST_NS_MOST for cost in costs_ns
        ):
            raise ValueError("a price that is none")
        rows.append(price_of(kind, _CODE[code], costs_ns, int(cpus)))
    if len(rows) > _ROWS_MOST:
        raise ValueError(f"{len(rows)} prices")
    return rows


def load(place: Path, whose: str) -> HostCosts | None:
    """The costs in a file, if they are of that host; None if absent or too old."""
    try:
        content = json.loads(read_kept(place))
        age_s = time.time() - content["time_s"]
        if content["host"] != whose or not 0 <= age_s < min(content["fresh_s"], FRESH_S):
            return None
        return host_costs_of((Price(*row) for row in content["rows"]), content["emulated"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def save(place: Path, whose: str, host_costs: HostCosts, cpus_count: int) -> None:
    """Store the costs of a host with so many CPUs; if that fails, the next run measures again."""
    is_whole = host_costs.on(cpus_count).cpus_count >= cpus_count
    content = {
        "host": whose,
        "time_s": int(time.time()),
        "fresh_s": FRESH_S if is_whole else FRESH_PART_S,
        "rows": host_costs.rows,
        "emulated": sorted(host_costs.emulated),
    }
    with suppress(OSError):
        keep_file(place, json.dumps(content, indent=1).encode(), folder_mode=0o755)


def own_cpus_count() -> int:
    """On how many CPUs the recorder of this process measures."""
    return len(os.sched_getaffinity(0))


def path() -> Path:
    """The file of this host."""
    return cache_directory() / FILE


def path_of(whose: str) -> Path:
    """The file of another host. The oldest of too many go."""
    folder = cache_directory() / ELSEWHERE
    with suppress(OSError):
        by_age = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in by_age[:-HOSTS_MOST]:
            old.unlink()
    return folder / f"{hashlib.sha256(whose.encode(errors='replace')).hexdigest()[:40]}.json"


def host() -> str:
    """What the costs depend on: the kernel's build, the CPU model, the number of CPUs."""
    name = os.uname()
    return f"{name.release} {name.version} / {cpu_field('model name')} x {os.cpu_count()}"
