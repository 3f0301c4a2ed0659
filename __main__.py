# SPDX-License-Identifier: GPL-2.0-only
"""Show where the time goes when a MySQL-family server speaks TLS."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from tlstax import ExitCode, TlstaxError, __version__

# In flow order. Only the chosen one is imported, so that `attach` stays small on a production host.
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
# What a command is lent of stages that it may not import, under the function's name.
LENT = {
    "attach": "analysis.report.command:headline",
    "top": "collectors.live_names:open_names collectors.tool_process:start_with_us",
    "whatif": "collectors.micro_costs:measure collectors.micro_costs:host_library",
    "lab": "collectors.recorder:open_recorder collectors.capture.join:join_captures "
    "collectors.library_code:crypto_instructions analysis.report.command:render_report "
    "analysis.report.command:render_folder",
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


def call_late(place: str, *arguments: Any, **named: Any) -> Any:
    """Call MODULE:FUNCTION, which is imported only now."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"tlstax.{module}"), name)(*arguments, **named)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (`tlstax.ExitCode`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        options = build_parser(chosen).parse_args(arguments)
        for place in LENT.get(chosen or "", "").split():
            setattr(options, place.partition(":")[2], partial(call_late, place))
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
