# SPDX-License-Identifier: GPL-2.0-only
"""Show where the time goes when a MySQL-family server speaks TLS."""

import argparse
import sys
from functools import partial
from pkgutil import resolve_name
from typing import Any

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture.files import no_temporary_folder
from tlstax.collectors.capture.printable import complain, safe_streams

# In flow order. Only the chosen one is imported, so that `attach` stays small on a production host.
COMMANDS = {
    "certs": ("certs.command", "make a CA, a server and a client certificate"),
    "lab": ("workloads.command", "run TLS and plaintext workloads against a private server"),
    "canary": ("workloads.canary_command", "measure what TLS adds to a connection"),
    "probes": ("collectors.commands.probes", "show what would be probed in a process, and why"),
    "doctor": ("collectors.commands.doctor", "try what this host and a process can bear"),
    "attach": ("collectors.commands.attach", "record a running server"),
    "watch": ("collectors.commands.watch", "record a server for weeks"),
    "top": ("analysis.report.commands.top", "watch a server's TLS work live"),
    "recorder": ("collectors.commands.recorder", "write out the static recorder"),
    "pmp": ("collectors.commands.pmp", "sample all threads by stopping the server"),
    "import": ("collectors.commands.import_recording", "convert a stream, perf.data or stacks"),
    "symbolize": ("collectors.commands.symbolize", "add names of functions to a capture"),
    "report": ("analysis.report.commands.report", "explain a capture"),
    "diff": ("analysis.report.commands.diff", "compare two recordings"),
    "whatif": ("analysis.report.commands.whatif", "predict what a change would cost"),
    "export": ("analysis.report.commands.export", "write the stacks for another tool"),
    "flamegraph": ("analysis.report.commands.flamegraph", "draw a flame graph as SVG"),
    "fleet": ("analysis.report.commands.fleet", "keep the captures of many hosts and ask them"),
}
# What is passed of stages that a command may not import: parameter of `register`, function.
PASSED = {
    "canary": {"duration": "collectors.commands.options:duration"},
    "attach": {"headline": "analysis.report.commands.report:headline"},
    "watch": {"sinks": "analysis.report.commands.watch_sinks:Sinks"},
    "top": {
        "remote_options": "collectors.commands.options:remote_options",
        "open_names": "collectors.process.live_names:open_names",
        "start_with_us": "collectors.host.tool_process:start_with_us",
    },
    "whatif": {
        "measure": "collectors.microbench.micro_costs:measure",
        "host_library": "collectors.microbench.crypto_operations:host_library",
    },
    "lab": {
        "open_recorder": "collectors.commands.experiment:open_recorder",
        "join_captures": "collectors.capture.join:join_captures",
        "crypto_instructions": "collectors.placement.library_code:crypto_instructions",
        "render_report": "analysis.report.commands.report:render_report",
        "render_folder": "analysis.report.commands.folder:render_folder",
    },
}


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the `chosen` sub-command only."""
    parser = argparse.ArgumentParser(prog="tlstax", description=__doc__)
    parser.add_argument("--version", action="version", version=f"tlstax {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        if name == chosen:
            passed = {key: partial(call_late, at) for key, at in PASSED.get(name, {}).items()}
            resolve_name(f"tlstax.{module}:register")(subparsers, **passed)
        elif chosen is None:
            subparsers.add_parser(name, help=summary)
    return parser


def call_late(place: str, *arguments: Any, **named: Any) -> Any:
    """Call MODULE:FUNCTION, which is imported only now."""
    return resolve_name(f"tlstax.{place}")(*arguments, **named)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status (`tlstax.ExitCode`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        with safe_streams():
            options = build_parser(chosen).parse_args(arguments)
            return int(options.run(options))
    except TlstaxError as error:
        complain(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        complain("interrupted")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return int(ExitCode.IO)
    except FileNotFoundError as error:
        complain(str(no_temporary_folder(error)))
        return int(ExitCode.IO)


if __name__ == "__main__":
    sys.exit(main())
