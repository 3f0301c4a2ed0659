# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax attach --collect`: which sources fill a capture, with the native engine or without."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.recording.source_set import Source, SourceSet
from tlstax.probes import programs

NATIVE: Final = "native"
CALL_GRAPHS: Final = ("dwarf", "fp", "lbr")
NAMES: Final = (NATIVE, "procfs", "iostat", "status", "perf", "bpftrace", "bcc")


@dataclass(frozen=True)
class Wanted:
    """What `--collect` and the options of single sources ask for."""

    names: tuple[str, ...] = (NATIVE,)
    option_file: Path | None = None
    login_path: str | None = None
    call_graph: str = "dwarf"
    perf_hz: int = 99
    bcc_tools: tuple[str, ...] = ()
    """Of bcc's tools those to run; none: all that tlstax knows and that are here."""
    bcc_directory: Path | None = None
    programs: tuple[str, ...] = ()
    """What bpftrace runs; none: its default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that choose and set up sources."""
    parser.add_argument(
        "--collect",
        type=parse_names,
        default=(NATIVE,),
        metavar="LIST",
        help="what to record: native (tlstax's own engine), procfs (CPU, pressure and disks from"
        " /proc), iostat, status (the server's counters), perf, bpftrace, bcc (its tools, or"
        " those of libbpf-tools) (native)",
    )
    access = parser.add_mutually_exclusive_group()
    access.add_argument(
        "--status-file",
        type=Path,
        metavar="FILE",
        help="option file of a read-only account, for status; a password is never an argument",
    )
    access.add_argument(
        "--status-login-path", metavar="NAME", help="or a login path of mysql_config_editor"
    )
    parser.add_argument(
        "--perf-call-graph",
        choices=CALL_GRAPHS,
        default="dwarf",
        help="how perf walks stacks (%(default)s); lbr needs such a CPU",
    )
    parser.add_argument(
        "--bpftrace-programs",
        type=parse_programs,
        default=(),
        metavar="LIST",
        help="which of `tlstax probes list` bpftrace runs (handshake,oncpu,offcpu)",
    )
    parser.add_argument(
        "--bcc-tools",
        type=parse_bcc_tools,
        default=(),
        metavar="LIST",
        help="which of offcputime, profile, funclatency and biolatency to run for bcc (those that "
        "are here)",
    )
    parser.add_argument(
        "--bcc-directory", type=Path, metavar="DIR", help="where bcc's tools are looked for first"
    )


def parse_names(text: str) -> tuple[str, ...]:
    """The sources of a list such as `native,iostat`."""
    return _names(text, NAMES)


def parse_bcc_tools(text: str) -> tuple[str, ...]:
    """The tools of a list such as `offcputime,profile`."""
    from tlstax.collectors.sources.bcc.source import TOOLS

    return _names(text, tuple(TOOLS))


def parse_programs(text: str) -> tuple[str, ...]:
    """The bpftrace programs of a list such as `handshake,locks`."""
    return _names(text, tuple(programs.names()))


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"{unknown[0] if unknown else text!r} is none of {', '.join(known)}"
        )
    return names


def wanted(options: argparse.Namespace) -> Wanted:
    """What the command line asks for. Raises TlstaxError (USAGE) if something is missing."""
    has_access = options.status_file is not None or options.status_login_path is not None
    if ("status" in options.collect) != has_access:
        raise TlstaxError(
            "the server's counters cannot be read like this",
            "--collect status needs --status-file or --status-login-path, and they need it",
            "Give both or neither",
            ExitCode.USAGE,
        )
    return Wanted(
        options.collect,
        options.status_file,
        options.status_login_path,
        options.perf_call_graph,
        max(options.sample_hz, 1),
        options.bcc_tools,
        options.bcc_directory,
        options.bpftrace_programs,
    )


def open_sources(what: Wanted, pid: int, capture: Path) -> SourceSet:
    """The sources beside the native engine, not started yet."""
    sources: list[Source] = []
    for name in what.names:
        if name == "bcc":
            from tlstax.collectors.sources.bcc.source import TOOLS, Asked, BccTool

            asked = Asked(pid, what.perf_hz, what.bcc_directory)
            sources += (BccTool(tool, asked) for tool in what.bcc_tools)
            if not what.bcc_tools:
                sources += (BccTool(tool, asked, part_of=name) for tool in TOOLS)
        elif name != NATIVE:
            sources.append(_open(name, what, pid, capture))
    return SourceSet(sources)


def _open(name: str, what: Wanted, pid: int, capture: Path) -> Source:
    """One source; imported here, so that an attach without it stays as small as it is."""
    if name == "procfs":
        from tlstax.collectors.sources.procfs import Procfs

        return Procfs(devices="iostat" not in what.names)
    if name == "iostat":
        from tlstax.collectors.sources.iostat import Iostat

        return Iostat()
    if name == "status":
        from tlstax.collectors.sources.status import ServerStatus

        return ServerStatus(option_file=what.option_file, login_path=what.login_path)
    if name == "bpftrace":
        from tlstax.collectors.sources.bpftrace.source import DEFAULT, Bpftrace

        return Bpftrace(pid, what.programs or DEFAULT)
    from tlstax.collectors.sources.perf.recording import Perf

    directory = capture.absolute().parent
    return Perf(pid, directory, sample_hz=what.perf_hz, call_graph=what.call_graph)
