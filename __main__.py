# SPDX-License-Identifier: GPL-2.0-only
"""Show where the time goes when a MySQL-family server speaks TLS."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from tlstax import ExitCode, TlstaxError, __version__

# One sub-command per stage, in flow order. Only the chosen one's module is imported,
# so that `attach` stays small on a production host.
COMMANDS = {
    "certs": ("tlstax.certs.command", "make a CA, a server and a client certificate"),
    "lab": ("tlstax.workloads.command", "run TLS and plaintext workloads against a private server"),
    "probes": ("tlstax.collectors.probes_command", "what would be probed in a process, and why"),
    "doctor": ("tlstax.collectors.doctor_command", "what this host can do, found by trying"),
    "attach": ("tlstax.collectors.attach_command", "record a running server"),
    "top": ("tlstax.analysis.report.top_command", "watch a server's TLS work live"),
    "pmp": ("tlstax.collectors.pmp_command", "where each thread stands, by stopping the server"),
    "import": ("tlstax.collectors.import_command", "make a capture of perf.data or folded stacks"),
    "report": ("tlstax.analysis.report.command", "explain a capture"),
    "diff": ("tlstax.analysis.report.diff_command", "compare two recordings"),
    "whatif": ("tlstax.analysis.report.whatif_command", "predict what a change would cost"),
    "export": ("tlstax.analysis.report.export_command", "write the stacks for another tool"),
    "flamegraph": ("tlstax.analysis.report.flamegraph_command", "draw a flame graph as SVG"),
}


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the `chosen` sub-command only."""
    parser = argparse.ArgumentParser(prog="tlstax", description=__doc__)
    parser.add_argument("--version", action="version", version=f"tlstax {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        if name == chosen:
            importlib.import_module(module).register(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def connect_stages(options: argparse.Namespace) -> None:
    """Hand an experiment the later stages, which it may not import."""
    from tlstax.analysis.report import command as report
    from tlstax.analysis.report import libraries_command as libraries
    from tlstax.analysis.report import matrix_command as matrix
    from tlstax.collectors.capture.join import join
    from tlstax.collectors.library_code import crypto_instructions
    from tlstax.collectors.recorder import open_recorder
    from tlstax.workloads.stages import Stages

    def render_report(capture: Path, output: Path) -> Path:
        page = output / f"{capture.stem}.html"
        chosen = {"json": None, "folded": None, "markdown": None}
        report.run(argparse.Namespace(capture=capture, html=str(page), **chosen))
        return page

    options.stages = Stages(
        open_recorder, render_report, join, crypto_instructions, libraries.render, matrix.render
    )


def explain(capture: Path) -> str:
    """The sentence at the head of a capture's report; imported late: `attach` has to stay small."""
    from tlstax.analysis.report.command import headline

    return headline(capture)


def connect_live(options: argparse.Namespace) -> None:
    """Hand a report what it may not import: how to measure and name on this host."""
    from tlstax.collectors import child, live_names, micro_costs

    options.measure, options.host_library = micro_costs.measure, micro_costs.library()
    options.open_names = live_names.open_names
    options.die_with_parent = child.die_with_parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (`tlstax.ExitCode`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        options = build_parser(chosen).parse_args(arguments)
        if chosen == "lab" and options.action in ("demo", "run", "resume"):
            connect_stages(options)
        if chosen == "attach":
            options.explain = explain
        if chosen in ("top", "whatif"):
            connect_live(options)
        return int(options.run(options))
    except TlstaxError as error:
        print(f"tlstax: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("tlstax: interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.IO)


if __name__ == "__main__":
    sys.exit(main())
