# SPDX-License-Identifier: GPL-2.0-only
"""Tools of bcc or libbpf-tools, with or without the native engine: `attach --collect bcc`.

| tool | what it records | options |
|---|---|---|
| offcputime | waits that ended, by thread and stack | no filter by state: stacks show it |
| profile | CPU samples by stack | at the rate of the other sources |
| funclatency | handshakes: how many took how long | on the server's own handshake function, in us |
| biolatency | block I/O by device: how many took how long | of all processes |

Each tool is a source of its own and may fail without the others. The tools count in the kernel and
print at the end: if one is killed, its counts are lost. biosnoop is not used because it prints an
event per I/O, dbslower and mysqld_qslower because they print statements.
"""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture import schema
from tlstax.collectors.host.child import run_in_child
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.process.target import Target, open_target
from tlstax.collectors.sources.bcc.tools import Tool, ToolRun, find_tool

ENGINE: Final = "bcc"
TOOLS: Final = ("offcputime", "profile", "funclatency", "biolatency")
STACKS_COUNT: Final = "16384"
"""Distinct stacks that a tool can keep, in 17 MB of kernel memory. With their default of 1,024 half
of the stacks are lost on a busy server, because two stacks cannot share a slot."""
_WITH_STACKS: Final = ("offcputime", "profile")
_SHORTEST_US: Final = "1"
_SHARED: Final = re.compile(r"lib(.+?)\.so(?:\.|$)")


@dataclass(frozen=True)
class Watched:
    """The process, and how its tools are set up."""

    pid: int
    sample_hz: int = 99
    directory: Path | None = None
    """The directory that is searched for tools first."""


class BccTool:
    """One of the tools during the recording."""

    def __init__(self, name: str, watched: Watched, part_of: str = "") -> None:
        """`part_of`: the name in `--collect`, unless the tool was named itself."""
        self.tool_name = name
        self.name = f"{ENGINE} {name}"
        self.part_of = part_of
        self.warning = ""
        self._watched = watched
        self._run: ToolRun | None = None
        self._target: Target | None = None
        self._symbolizer: Symbolizer | None = None

    def start(self) -> str:
        """Start it; return its version and path. Raises TlstaxError if none is usable."""
        tool = find_tool(self.tool_name, self._watched.directory)
        self.warning = tool.note
        run = ToolRun(tool, arguments(tool, self._watched))
        if self.tool_name in _WITH_STACKS:
            self._target = open_target(self._watched.pid)
            self._symbolizer = Symbolizer(self._target)
        try:
            run.start()
        except BaseException:
            self._close()
            raise
        self._run = run
        return f"{tool.version} ({tool.path})"

    def poll(self, now_ns: int) -> Iterable[schema.Row]:
        """No rows before the end, but it must still be running."""
        if self._run is not None:
            self._run.check()
        return ()

    def halt(self) -> None:
        """Stop counting; `stop` reads the output."""
        if self._run is not None:
            self._run.interrupt()

    def stop(self) -> Iterable[schema.Row]:
        """Let it print its counts, and read them."""
        run, self._run = self._run, None
        if run is None:
            return ()
        try:
            output, complaints = run.finish()
            return run_in_child(
                f"Reading the output of {run.tool.path}",
                lambda: self._rows(run, output, complaints),
            )
        finally:
            run.close()
            self._close()

    def _rows(self, run: ToolRun, output: str, complaints: str) -> list[schema.Row]:
        """The rows of its output. Runs in a child process because it needs much memory."""
        from tlstax.collectors.sources.bcc import rows as bcc_rows
        from tlstax.collectors.sources.bcc import text as bcc_text
        from tlstax.collectors.sources.stacks.stack_phases import StackPhases
        from tlstax.probes.definitions import load_definitions

        span = run.start_ns, run.end_ns
        window = schema.Window(bcc_rows.WINDOW_ID, None, *span, 1, "sample", ENGINE)
        if self.tool_name == "biolatency":
            return bcc_rows.block_times(bcc_text.parse_histogram(output), *span)
        if self.tool_name == "funclatency":
            return [window, *bcc_rows.handshakes(bcc_text.parse_histogram(output))]
        stacks = list(bcc_text.parse_stacks(output))
        homes = bcc_rows.homes_of(stacks, self._target) if self._target else {}
        number, phases = TOOLS.index(self.tool_name), StackPhases(load_definitions())
        made = bcc_rows.BccRows(number, phases, self._symbolizer, homes)
        is_waits = self.tool_name == "offcputime"
        rows = made.waits(stacks, run.start_ns) if is_waits else made.samples(stacks)
        missed = bcc_text.missed_stacks(output, complaints)
        if missed:
            rows.append(schema.Loss(window.window_id, "bcc_stack_missed", missed))
        if len(stacks) >= bcc_rows.MAP_ENTRIES_MAX:
            rows.append(schema.Loss(window.window_id, "bcc_map_full", 1))
        return [window, *rows]

    def _close(self) -> None:
        if self._symbolizer is not None:
            self._symbolizer.close()
            self._symbolizer = None


def arguments(tool: Tool, watched: Watched) -> list[str]:
    """The arguments of the tool. Raises TlstaxError if it cannot watch this process."""
    pid = str(watched.pid)
    compiled = tool.kind == "libbpf-tools"
    form = ["-v"] if compiled else ["-f", "-d"]  # addresses, or at least one line per stack
    stacks = ["-p", pid, "--stack-storage-size", STACKS_COUNT]
    if tool.name == "offcputime":
        return [*form, *stacks, "-m", _SHORTEST_US]
    if tool.name == "profile":
        return [*dict.fromkeys([*form, "-d"]), *stacks, "-F", str(watched.sample_hz)]
    if tool.name == "biolatency":
        return ["-D"]
    place = run_in_child("Looking for the handshake function", lambda: handshake_place(watched.pid))
    return ["-u", "-p", pid, place.shown(compiled)]


@dataclass(frozen=True)
class FunctionPlace:
    """A function in a file of the process, for funclatency."""

    path: str
    function: str
    is_program: bool
    is_ours: bool
    """Whether its path is the same file on the host."""

    def shown(self, compiled: bool) -> str:
        """`path:function`; for libbpf-tools `library:function`, or `:function` in the program."""
        if not compiled:
            return f"{self.path}:{self.function}"
        library = _SHARED.match(self.path.rpartition("/")[2])
        if not self.is_ours or not (self.is_program or library):
            raise _no_function(
                "funclatency of libbpf-tools cannot read files in another root directory"
            )
        return f"{'' if self.is_program or library is None else library[1]}:{self.function}"


def handshake_place(pid: int) -> FunctionPlace:
    """The function that is called once per handshake. Raises TlstaxError if there is none."""
    from tlstax.collectors.placement.detection import detect
    from tlstax.probes.definitions import load_definitions

    target = open_target(pid)
    with ExitStack() as resources:
        definitions = [one for one in load_definitions() if one.kind in ("tls", "server")]
        for library in detect(target, definitions, resources):
            for boundary in library.definition.boundaries:
                whole = boundary.action == "handshake_bound" or (
                    boundary.action == "handshake_call" and boundary.blocking
                )
                for function in boundary.functions if whole else ():
                    for mapped, _, symbol in library.functions(function):
                        return FunctionPlace(
                            mapped.open_path, symbol.name, mapped == target.program,
                            _same_file(mapped.path, mapped.open_path),
                        )  # fmt: skip
    raise _no_function("no function with a symbol is called exactly once per handshake")


def _same_file(path: str, open_path: str) -> bool:
    try:
        return Path(path).samefile(open_path)
    except OSError:
        return False


def _no_function(why: str) -> TlstaxError:
    return TlstaxError(
        "funclatency cannot time handshakes in this process",
        why,
        "Leave it out with --bcc-tools, or add native to --collect, which times every handshake",
        ExitCode.TARGET,
    )
