# SPDX-License-Identifier: GPL-2.0-only
"""The arguments of `tlstax attach`, the level that they leave open, and the request they make."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.commands.options import (
    NO_BUDGET,
    accept_option,
    budget,
    duration,
    functions_option,
    networks_option,
    share_of,
    target_options,
)
from tlstax.collectors.host.features import HOST
from tlstax.collectors.preflight.safety import Safety
from tlstax.collectors.process.find_process import find_by_name
from tlstax.collectors.process.thread_room import ROOM_FACTOR, ROOM_LEAST, ROOM_MOST
from tlstax.collectors.recording.by_recorder.stretch_times import interval_s
from tlstax.collectors.recording.request import Request
from tlstax.collectors.recording.source_set import SourceSet
from tlstax.collectors.sources import registry
from tlstax.probes.model import Level

_POLL_S: Final = 1.0
QUIET_POLL_S: Final = 10.0  # every wake-up counts
_SMALL_BUDGET: Final = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is recorded, how long, within which limits."""
    target_options(parser, many=True)
    _add_output_options(parser)
    _add_detail_options(parser)
    _add_client_options(parser)
    _add_price_options(parser)
    registry.add_arguments(parser)
    accept_option(parser)
    parser.add_argument("--definitions", type=Path, metavar="DIR", help="further definitions")
    parser.add_argument("--quiet", action="store_true", help="no progress line")


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    """How long, and into which file."""
    parser.add_argument(
        "--for",
        dest="duration_s",
        type=duration,
        metavar="TIME",
        help="stop after this long, for example 30s or 5m (default: at Ctrl-C)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="capture to write; with several servers a folder, for NAME-PID.tlstax of each",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing capture")
    parser.add_argument("--window", type=duration, metavar="TIME", help="length of a window (1s)")


def _add_detail_options(parser: argparse.ArgumentParser) -> None:
    """What is recorded of the server beside the ledger."""
    parser.add_argument(
        "--sample-hz",
        type=sample_hz,
        default=99,
        metavar="HZ",
        help="CPU samples per second and CPU, 0 to 999; 0 takes none (99)",
    )
    parser.add_argument(
        "--stacks",
        choices=("tables", "frame-pointers"),
        help="how callers are found: by unwind tables of the server's files, or only by frame "
        "pointers, which libssl and libcrypto lack (tables)",
    )
    parser.add_argument(
        "--max-threads",
        type=thread_count,
        metavar="N",
        help=f"room in the ledger for N threads of the server, 1 to {ROOM_MOST} "
        f"(by its limits, {ROOM_LEAST} or {ROOM_FACTOR} times its present threads)",
    )
    parser.add_argument(
        "--functions",
        type=functions_option,
        default=(),
        metavar="LIST",
        help="also count and time the TLS library's own functions: some of cipher, digest, "
        "asymmetric, kdf, rng, or cipher:record, or ids of primitives (expensive: give --for)",
    )


def _add_client_options(parser: argparse.ArgumentParser) -> None:
    """What is recorded of its clients."""
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="PID|NAME",
        help="also record this client of the server: both sides in one report (repeatable)",
    )
    parser.add_argument(
        "--client-level",
        choices=("handshake", "command", "record"),
        default="handshake",
        help="what to probe in clients; handshake adds no overhead to queries (%(default)s)",
    )
    networks_option(parser)


def _add_price_options(parser: argparse.ArgumentParser) -> None:
    """How much is probed, and what it may cost."""
    parser.add_argument(
        "--level",
        type=level,
        metavar="LEVEL",
        help="how much is probed: sample (CPU samples only), signature (and each handshake with "
        "its signature), handshake (and all of its operations), flow "
        "(and the ledger, without a probe in a command), command (and where a command is read and "
        "executed) or record (and the records of a command) (with a budget: record all the time if "
        "that fits, else flow all the time with --calibrate, else record in windows; without a "
        "budget: record)",
    )
    parser.add_argument(
        "--budget",
        type=budget,
        metavar="SHARE",
        help="limit of the overhead, as a share of the server's CPU time, for example "
        "1%%: tlstax chooses what is on and when, and fails if the load exceeds it; or none: "
        "everything all the time (5%%; none with --window, --client, --functions or --collect "
        f"{','.join(registry.uncounted())})",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="with --level flow: short stretches with the probes of level record, by which reports "
        "split commands into reading, executing and answering, as often as the budget allows",
    )


def level(text: str) -> Level:
    """A level by its name."""
    try:
        return Level[text.upper()]
    except KeyError:
        names = ", ".join(one.name.lower() for one in Level)
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {names}") from None


def thread_count(text: str) -> int:
    """A number of threads from 1 to ROOM_MOST."""
    number = whole_number(text) or 0
    if not 1 <= number <= ROOM_MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {ROOM_MOST}")
    return number


def sample_hz(text: str) -> int:
    """A sampling rate from 0 to 999."""
    number = whole_number(text, 3)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 999")
    return number


def budget_share(options: argparse.Namespace) -> float | None:
    """The limit as a share of the server's CPU time; None: there is none."""
    expensive = options.window or options.client or options.functions
    expensive = expensive or registry.uncounted(options.collect)
    return share_of(options.budget, is_expensive=expensive)


def settle_level(options: argparse.Namespace) -> None:
    """Set `level`, and `chooses_level`: whether that is where the recorder's choice begins.

    It chooses between `flow` with calibration stretches and `record`, by what they cost. Without a
    budget there is nothing to choose by: everything is recorded.
    """
    options.chooses_level = (
        options.level is None
        and not (options.calibrate or options.client or options.functions)
        and registry.NATIVE in options.collect
        and budget_share(options) is not None
        and bool(options.ssh or HOST.socket_events)
    )
    if options.level is None:
        options.level = Level.FLOW if options.chooses_level else Level.RECORD
    options.calibrate = options.calibrate or options.chooses_level


def request_for(
    options: argparse.Namespace,
    pid: int,
    sources: SourceSet | None = None,
    safety: Safety | None = None,
) -> Request:
    """What the native engine is to record of a process; `safety` as in Request."""
    warn_of_functions(options)
    return Request(
        pid=pid,
        capture=options.output,
        window_s=options.window or 1.0,
        sample_hz=options.sample_hz,
        unwind_tables=options.stacks != "frame-pointers",
        level=options.level,
        threads_most=options.max_threads,
        calibration_s=interval_s(options.duration_s) if options.calibrate else None,
        chooses_level=options.chooses_level,
        budget=budget_share(options),
        budget_is_default=options.budget is None,
        definitions=options.definitions,
        overwrite=options.force,
        functions=options.functions,
        clients=tuple(_client_pid(text) for text in options.client),
        client_level=Level[options.client_level.upper()],
        sources=sources,
        accepted=tuple(options.accept),
        safety=safety,
        duration_s=options.duration_s,
        network_bits=options.client_networks,
    )


def warn_of_functions(options: argparse.Namespace) -> None:
    """Tell what --functions does to the server if nobody ends it."""
    if options.functions and options.duration_s is None:
        print(
            "tlstax: --functions slows the server down at every call of its TLS library, and "
            "without --for it does so until Ctrl-C",
            file=sys.stderr,
        )


def poll_time_s(options: argparse.Namespace) -> float:
    """How often arrived windows are stored."""
    is_small = options.budget is not None and options.budget < _SMALL_BUDGET
    return QUIET_POLL_S if is_small else _POLL_S


def refuse_contradictions(options: argparse.Namespace) -> None:
    """Raise TlstaxError (USAGE) for options that exclude each other."""
    budgeted = options.budget is not None and options.budget != NO_BUDGET
    if options.client and budgeted:
        raise TlstaxError(
            "--client was given with --budget",
            "the budget limits the overhead in the server; probes in clients are not counted",
            "give one or the other",
            ExitCode.USAGE,
        )
    if options.calibrate and options.level != Level.FLOW:
        raise TlstaxError(
            "--calibrate was given without --level flow",
            "calibration stretches belong to level flow",
            "give --level flow --calibrate",
            ExitCode.USAGE,
        )
    if options.client_networks and options.level < Level.SIGNATURE:
        raise TlstaxError(
            "--client-networks was given with --level sample",
            "a network is that of a handshake, and that level records none",
            "give --level handshake, or leave out one of them",
            ExitCode.USAGE,
        )
    if options.functions and (budgeted or options.level < Level.RECORD):
        raise TlstaxError(
            "--functions was given with --budget or a lower --level",
            "it slows down every call of the TLS library, more than any budget allows",
            "give one or the other",
            ExitCode.USAGE,
        )

    if registry.NATIVE not in options.collect and (
        options.client
        or options.functions
        or options.client_networks
        or budgeted
        or options.level < Level.RECORD
    ):
        raise TlstaxError(
            "--collect without native was given with an option of the native engine",
            "--client, --client-networks, --functions, --budget and --level work only with its "
            "probes",
            "add native to --collect, or leave them out",
            ExitCode.USAGE,
        )
    uncounted = registry.uncounted(options.collect)
    if uncounted and budgeted:
        raise TlstaxError(
            f"--collect {uncounted[0]} was given with --budget",
            f"the overhead of {uncounted[0]} is not measured, so no budget can limit it",
            "give one or the other",
            ExitCode.USAGE,
        )


def _client_pid(text: str) -> int:
    """The process that `--client` names."""
    pid = whole_number(text)
    return find_by_name(text) if pid is None else pid
