# SPDX-License-Identifier: GPL-2.0-only
"""The second clock of servers whose TLS library is linked in: bpftrace.

A program is generated for the plan's functions. It reads the time where a function begins and where
it has returned, and subtracts what the thread waited for a CPU by the scheduler's own count
(sched_info.run_delay) and what operations within it took. What two readings take is timed on a
function that does nothing, and taken off.

tlstax sees the end of a call elsewhere: before its return, or in the caller. The traps that lie
between both ends are in the time of one clock only. A probe of bpftrace where tlstax has its own
times them.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tlstax.collectors.binary.elf import Elf
from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.placement.planning import plan_in_child
from tlstax.collectors.sources.bpftrace.process import Run, Tool, find_bpftrace
from tlstax.collectors.sources.bpftrace.program_text import Rendered
from tlstax.tests.bench.crypto.newer_tool import TOOLS, fetch
from tlstax.tests.bench.crypto.second_clock import OPERATIONS, Reading

_NOTHING: Final = "nothing"
_CALLS: Final = 20_000
_SOURCE: Final = f"""
__attribute__((noinline)) void {_NOTHING}(void) {{ __asm__ volatile(""); }}
int main(void) {{ for (int i = 0; i < {_CALLS}; i++) {_NOTHING}(); }}
"""
_NOW: Final = "nsecs - (uint64)curtask->sched_info.run_delay"
_CALL: Final = """
uprobe:%(begin)s
%(filter)s
{
	@depth[tid] = @depth[tid] + 1;
	@inner[tid, @depth[tid]] = (uint64)0;
	@open[tid, %(number)d] = 1;
	delete(@ended[tid, %(number)d]);
	@began[tid, @depth[tid]] = %(now)s;
}

uretprobe:%(begin)s
%(filter)s
{
	$end = %(now)s;
	$depth = @depth[tid];
	$took = $end - @began[tid, $depth];
	@calls[%(number)d] = sum((uint64)1);
	@cpu_ns[%(number)d] = sum($took - @inner[tid, $depth]);
	if (@crossed[tid, %(number)d]) {
		@before_ns[%(number)d] = sum($end - @crossed[tid, %(number)d]);
		delete(@crossed[tid, %(number)d]);
	}
	@inner[tid, $depth - 1] = @inner[tid, $depth - 1] + $took;
	@depth[tid] = $depth - 1;
	delete(@open[tid, %(number)d]);
	@ended[tid, %(number)d] = $end;
}
"""
_END: Final = """
uprobe:%(end)s
%(filter)s
{
	$now = %(now)s;
	if (@open[tid, %(number)d]) {
		@crossed[tid, %(number)d] = $now;
	} else if (@ended[tid, %(number)d]) {
		@after_ns[%(number)d] = sum($now - @ended[tid, %(number)d]);
		delete(@ended[tid, %(number)d]);
	}
}
"""
_CLEAR: Final = (
    "END { clear(@depth); clear(@inner); clear(@open); clear(@began); clear(@crossed);"
    " clear(@ended); }\n"
)


class Traced:
    """bpftrace at work on a server."""

    def __init__(self, tool: Tool, pid: int, idle: Path) -> None:
        _, plan = plan_in_child(pid)
        text = program(plan, pid, idle)
        self._run = Run(tool, Rendered("clock", text, (), (), ()), pid)
        self._idle = idle

    def start(self) -> None:
        """Attach, and time the function that does nothing."""
        self._run.spawn()
        self._run.wait_attached()
        subprocess.run([str(self._idle)], check=True)

    def finish(self) -> dict[str, Reading]:
        """Detach; what was measured."""
        sums: dict[str, dict[str, int]] = {}
        for message in self._run.finish():
            if message.get("type") in ("map", "stats"):
                sums.update({name: _numbers(value) for name, value in message["data"].items()})
        return readings(sums)

    def close(self) -> None:
        """End bpftrace if it still runs."""
        self._run.close()


@contextmanager
def traced(pid: int, folder: Path) -> Iterator[Traced]:
    """The clock for a server that runs; it is not attached yet."""
    idle = folder / "idle"
    subprocess.run(
        ["gcc", "-O0", "-x", "c", "-o", str(idle), "-"], input=_SOURCE, text=True, check=True
    )
    clock = Traced(find_bpftrace(fetch(TOOLS["bpftrace"])), pid, idle)
    try:
        yield clock
    finally:
        clock.close()


def program(plan: Plan, pid: int, idle: Path) -> str:
    """The bpftrace program for the plan's operations, and for the function that does nothing."""
    mine = {"filter": f"/pid == {pid}/", "now": _NOW}
    parts: dict[str, None] = {}
    for site in plan.sites:
        if site.phase in OPERATIONS:
            number = OPERATIONS.index(site.phase)
            at = _attach_point(site)
            text = _CALL if site.event == "enter" else _END
            parts[text % {**mine, "begin": at, "end": at, "number": number}] = None
    whole = {"filter": "", "now": _NOW, "number": len(OPERATIONS)}
    return "".join((*parts, _CALL % {**whole, "begin": f"{idle}:{_NOTHING}"}, _CLEAR))


def _attach_point(site: Site) -> str:
    """Where a site lies, as bpftrace writes it. Raises SystemExit for a site without a name."""
    with Elf(site.object.open_path) as elf:
        starts = [symbol.address for symbol in elf.find(re.compile(re.escape(site.function)))]
    if not starts or (site.event == "enter" and site.virtual_address not in starts):
        raise SystemExit(f"{site.function}: its entry cannot be traced by name")
    start = max(start for start in starts if start <= site.virtual_address)
    offset = site.virtual_address - start
    return f"{site.object.open_path}:{site.function}" + (f"+{offset}" if offset else "")


def readings(sums: dict[str, dict[str, int]]) -> dict[str, Reading]:
    """Calls and CPU time by operation, without what two readings take."""
    calls, cpu_ns = sums.get("@calls", {}), sums.get("@cpu_ns", {})
    before_ns, after_ns = sums.get("@before_ns", {}), sums.get("@after_ns", {})
    nothing = str(len(OPERATIONS))
    reading_ns = cpu_ns[nothing] / calls[nothing]
    found = {}
    for number, name in enumerate(OPERATIONS):
        key = str(number)
        if count := calls.get(key, 0):
            readings_ns = count * reading_ns  # part of what lies before the clock's end
            before, after = before_ns.get(key, 0), after_ns.get(key, 0)
            found[name] = Reading(
                count, cpu_ns[key] - readings_ns, max(0.0, before - readings_ns), after,
                apart_ns=max(before, after) / count,
            )  # fmt: skip
    return found


def _numbers(value: Any) -> dict[str, int]:
    return dict(value) if isinstance(value, dict) else {}
