# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet whatif`: what a change of every host would save."""

import argparse
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet.whatif.judging import Wish
from tlstax.analysis.fleet.whatif.savings import savings
from tlstax.analysis.report.commands.fleet_options import (
    add_command,
    add_outputs,
    add_question,
    add_reports,
    answer,
    question_of,
)
from tlstax.analysis.report.commands.whatif import SIGNATURES, queries, share
from tlstax.analysis.report.terminal import fleet as terminal
from tlstax.collectors.capture import micro_costs


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = add_command(commands, "whatif", "what a change on every host would save", _run)
    add_question(parser)
    parser.add_argument("--key", choices=SIGNATURES, help="another kind of key everywhere")
    parser.add_argument(
        "--from-key", choices=SIGNATURES, help="the present key, if signatures do not reveal it"
    )
    parser.add_argument(
        "--resume", type=share, metavar="SHARE", help="this share of handshakes resumed: 0.9"
    )
    parser.add_argument("--pool", type=queries, metavar="N", help="N commands on each connection")
    parser.add_argument(
        "--library", metavar="NAME", default="",
        help="the TLS library that other hosts of the data set have, such as openssl-3.5",
    )  # fmt: skip
    parser.add_argument(
        "--costs", metavar="FILE", type=Path, action="append", default=[],
        help="costs of a TLS library on a CPU, of `tlstax whatif --save-costs`; repeatable",
    )  # fmt: skip
    parser.add_argument("--most", type=int, default=10, metavar="N", help="hosts to list (10)")
    add_reports(parser)
    add_outputs(parser, has_page=False)


def _run(options: argparse.Namespace) -> int:
    wish = _wish(options)
    costs = [micro_costs.load(path) for path in options.costs]
    found = savings(question_of(options), wish, costs, options.most)
    status: int = answer(options, found, terminal.print_savings)
    return int(ExitCode.FAILED) if found.is_wide else status


def _wish(options: argparse.Namespace) -> Wish:
    """What is to change. Raises TlstaxError (USAGE)."""
    wish = Wish(
        options.key or "",
        options.resume,
        options.pool,
        options.library,
        options.from_key or "",
    )
    others = bool(wish.pool or wish.needs_costs)
    if not others and not options.library:
        raise _refuse(
            "nothing is to change",
            "no wish was given",
            "Give --library alone, or one or more of --key, --resume and --pool",
        )
    if others and options.library:
        raise _refuse(
            "cannot predict another library together with another change",
            "a library is compared on hosts that have it, with their keys and clients",
            "Ask for one after the other",
        )
    if wish.needs_costs and not options.costs:
        raise _refuse(
            "the costs of single TLS operations are unknown",
            "--key and --resume need them, of each TLS library and CPU of the hosts",
            "Measure them on a host of each kind with `tlstax whatif CAPTURE ... --save-costs "
            "FILE`, and give the files with --costs",
        )
    for option, given in (("--costs", options.costs), ("--from-key", options.from_key)):
        if given and not wish.needs_costs:
            raise _refuse(
                f"{option} has no effect here",
                "only --key and --resume use it",
                f"Leave {option} out, or add one of them",
            )
    if options.most < 1:
        raise _refuse(
            f"cannot list {options.most} hosts", "--most is less than 1", "Give a number from 1 on"
        )
    return wish


def _refuse(what: str, why: str, do: str) -> TlstaxError:
    return TlstaxError(what, why, do, ExitCode.USAGE)
