# SPDX-License-Identifier: GPL-2.0-only
"""The tools of bcc and libbpf-tools as child processes: which are installed, one run of each.

Both projects have tools of the same names. bcc's are Python scripts that compile their program at
every start and need kernel headers; those of libbpf-tools are compiled and need only BTF.
Distributions call them offcputime-bpfcc, offcputime-libbpf or just offcputime, so each program is
identified by its --help. A build of libbpf-tools is preferred.

A tool prints nothing when it has attached; its file descriptors show it.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, Literal

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.host.clock import monotonic_ns
from tlstax.collectors.host.tool_process import how_it_ended, last_words, reap
from tlstax.collectors.host.tracefs import prepare_tool

Kind = Literal["bcc", "libbpf-tools"]

SEARCH_PATH: Final = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/share/bcc/tools"]
)
HEADERS_VARIABLE: Final = "BCC_KERNEL_SOURCE"
"""bcc's own variable: another directory of kernel headers."""
_LIBBPF_TOOLS: Final = (
    "libbpf-tools (Debian: the package of that name; Debian 12's has no profile, Debian 13's has)"
)
_SPELLINGS: Final = ("{}-libbpf", "{}", "{}-bpfcc")
_ASK_PATIENCE_S: Final = 30.0
_ATTACH_PATIENCE_S: Final = 60.0  # bcc compiles with clang; the host may be busy
_SETTLED_S: Final = 0.2
_END_PATIENCE_S: Final = 60.0  # it looks up the name of every frame
_ATTACHED: Final = ("anon_inode:bpf_link", "anon_inode:[perf_event]", "anon_inode:bpf-raw-trace")


@dataclass(frozen=True)
class Tool:
    """An installed program and the options that it accepts."""

    name: str
    path: str
    kind: Kind
    version: str
    options: frozenset[str]
    note: str = ""
    """What limits it although it works; '' if nothing does."""

    def require(self, options: Sequence[str]) -> None:
        """Raise TlstaxError (HOST) if it does not accept all of these options."""
        lacking = [one for one in options if one.startswith("-") and one not in self.options]
        if lacking:
            raise TlstaxError(
                f"{self.path} is a version that tlstax does not support",
                f"its --help does not list {lacking[0]}",
                "Install bcc or libbpf-tools 0.26 or later, or leave it out with --bcc-tools",
                ExitCode.HOST,
            )


def find_tool(name: str, directory: Path | None = None) -> Tool:
    """The tool of that name, preferably the build of libbpf-tools.

    `directory` is searched first. Raises TlstaxError (HOST) if none is usable.
    """
    path = SEARCH_PATH if directory is None else f"{directory}{os.pathsep}{SEARCH_PATH}"
    found = [place for one in _SPELLINGS if (place := shutil.which(one.format(name), path=path))]
    known = [tool for place in found if (tool := _identify(name, place)) is not None]
    compiled = [tool for tool in known if tool.kind == "libbpf-tools"]
    if compiled:
        return compiled[0]
    if not known:
        strange = f"{found[0]} belongs to neither bcc nor libbpf-tools" if found else "not found"
        raise _missing(name, strange, f"Install {_LIBBPF_TOOLS}")
    if why := lacking_headers():
        raise _missing(
            name,
            f"{known[0].path} needs kernel headers to compile its program, and {why}",
            f"Install {_LIBBPF_TOOLS}, which need none, or the headers of this kernel",
        )
    return replace(known[0], note="compiled by bcc at its start: frames have names, no addresses")


def lacking_headers() -> str:
    """Why bcc finds no kernel headers; '' if it does."""
    release = os.uname().release
    named = os.environ.get(HEADERS_VARIABLE)
    places = (
        [Path(named)]
        if named
        else [Path(f"/lib/modules/{release}/{x}") for x in ("build", "source")]
    )
    if any(place.is_dir() for place in places) or Path("/sys/kernel/kheaders.tar.xz").exists():
        return ""
    return f"{places[0]} does not exist"


def _missing(name: str, why: str, do: str) -> TlstaxError:
    return TlstaxError(f"{name} cannot be used", why, do, ExitCode.HOST)


def _identify(name: str, path: str) -> Tool | None:
    """Identify a program by its help; None if it is an unrelated one of the same name."""
    said = _ask(path, "--help")
    options = frozenset(re.findall(r"(?<![\w-])(--?[A-Za-z][\w-]*)", said))
    if "--usage" in options and re.search(r"^Usage:", said, re.MULTILINE):  # GNU argp
        version = _ask(path, "--version").strip().partition("\n")[0]
        return Tool(name, path, "libbpf-tools", f"libbpf-tools, {version or path}", options)
    if re.search(r"^usage: ", said, re.MULTILINE):  # Python's argparse
        return Tool(name, path, "bcc", f"bcc {_bcc_version(path)}".strip(), options)
    return None


def _bcc_version(path: str) -> str:
    """The version of the bcc module that the script imports; '' if unknown."""
    with open(path, "rb") as script:
        first = script.readline(200).decode(errors="replace")
    interpreter = first.removeprefix("#!").split() if first.startswith("#!") else []
    if not interpreter:
        return ""
    code = "import bcc.version as v; print(v.__version__)"
    said = _ask(interpreter[0], *interpreter[1:], "-c", code)
    return said.strip() if re.fullmatch(r"[\w.+~-]+", said.strip()) else ""


def _ask(path: str, *arguments: str) -> str:
    try:
        said = subprocess.run(
            [path, *arguments], capture_output=True, text=True, errors="replace", check=False,
            timeout=_ASK_PATIENCE_S, stdin=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout or said.stderr


class ToolRun:
    """One run of a tool, from its start until it has printed its result."""

    def __init__(self, tool: Tool, arguments: Sequence[str]) -> None:
        self.tool = tool
        self.start_ns = self.end_ns = 0
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._files: tuple[IO[bytes], IO[bytes]] | None = None

    def start(self) -> None:
        """Start it and return once it has attached. Raises TlstaxError if it does not attach."""
        self.tool.require(self._arguments)
        output, complaints = self._files = _unlinked_file(), _unlinked_file()
        try:
            self._process = subprocess.Popen(
                [self.tool.path, *self._arguments], stdin=subprocess.DEVNULL, stdout=output,
                stderr=complaints, start_new_session=True, preexec_fn=prepare_tool,
                env=os.environ | {"LC_ALL": "C"},
            )  # fmt: skip
            self._await_attached(self._process)
        except OSError as error:
            self.close()
            raise self._failed("it cannot be run", error.strerror or str(error)) from None
        except BaseException:
            self.close()
            raise
        self.start_ns = monotonic_ns()

    def check(self) -> None:
        """Raise TlstaxError (FAILED) if it has ended: its counts are lost."""
        if self._process is not None and self._process.poll() is not None:
            raise self._failed(
                "it ended before the recording did",
                f"{how_it_ended(self._process)}; it said: {self._said()}",
            )

    def interrupt(self) -> None:
        """Ask it to end and print its counts; `finish` waits for that."""
        if self._process is not None and not self.end_ns and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self.end_ns = monotonic_ns()

    def finish(self) -> tuple[str, str]:
        """Its standard output and standard error. Call it once only."""
        if not self.end_ns:
            self.check()
            self.interrupt()
        process, files = self._process, self._files
        assert process is not None
        assert files is not None
        try:
            process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise self._failed("it did not end", f"{_END_PATIENCE_S:.0f} s after SIGINT") from None
        if process.returncode != 0:
            raise self._failed("it failed", f"{how_it_ended(process)}; it said: {self._said()}")
        return _text(files[0]), _text(files[1])

    def close(self) -> None:
        """Kill it if it is still running. Closing twice does nothing."""
        process, self._process = self._process, None
        if process is not None:
            reap(process)
        files, self._files = self._files, None
        for file in files or ():
            file.close()

    def _await_attached(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until it has links and their number no longer grows."""
        deadline = time.monotonic() + _ATTACH_PATIENCE_S
        links, since = 0, time.monotonic()
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise self._failed("it does not start", self._said())
            if (now := _links(process.pid)) != links:
                links, since = now, time.monotonic()
            elif links and time.monotonic() - since > _SETTLED_S:
                return
            time.sleep(0.01)
        raise self._failed("it does not attach", f"no probe after {_ATTACH_PATIENCE_S:.0f} s")

    def _said(self) -> str:
        """The last meaningful line of its standard error."""
        return last_words(_text(self._files[1]) if self._files is not None else "")

    def _failed(self, what: str, why: str) -> TlstaxError:
        return TlstaxError(
            f"{self.tool.path}: {what}",
            why,
            f"Run it by hand: {self.tool.path} {' '.join(self._arguments)}",
            ExitCode.FAILED,
        )


def _unlinked_file() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _links(pid: int) -> int:
    """The number of probes that a process holds."""
    count = 0
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return 0
    for descriptor in descriptors:
        try:
            count += os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith(_ATTACHED)
        except OSError:
            continue
    return count


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
