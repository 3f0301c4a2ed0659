# SPDX-License-Identifier: GPL-2.0-only
"""Keep the captures of many hosts as one data set, and ask questions about all of them.

    tlstax fleet add rec/*.tlstax --data fleet         captures into the data set, as Parquet files
    tlstax fleet record --hosts FILE --name mysqld --data fleet    a round over ssh
    tlstax fleet compact --data fleet                  one file for each hour
    tlstax fleet top --data fleet                      the hosts that pay most for TLS
    tlstax fleet compare --data fleet --at 2026-11-22T12:00    what changed at that time
    tlstax fleet explain db17 --data fleet             one host among its peers
    tlstax fleet flamegraph --data fleet -o fleet.svg  the stacks of all hosts
    tlstax fleet whatif --data fleet --key ec:p256 --costs FILE   what another key would save
    tlstax fleet sql "SELECT ..." --data fleet         read-only SQL over the tables

The data set needs pyarrow and DuckDB: pip install 'tlstax[fleet]'. docs/fleet.md explains it, and
docs/fleet-columns.md its tables.
Exit status: 0; 1 an engine could not answer, or no prediction within 20 %; 2 wrong arguments; 3 a
package is missing; 4 some hosts of a round could not be recorded; 5 a capture or file is damaged or
too new, or no host can be predicted; 6 a file cannot be written.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.fleet import columns, location
from tlstax.analysis.fleet.rollup import capture
from tlstax.analysis.report.commands import fleet_questions, fleet_record, fleet_sql, fleet_whatif
from tlstax.analysis.report.commands.fleet_options import add_command
from tlstax.collectors.capture.printable import complain


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax fleet`."""
    parser = subparsers.add_parser(
        "fleet",
        help="keep the captures of many hosts and ask them",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="fleet_command", metavar="COMMAND", required=True)
    add = add_command(commands, "add", "put captures into the data set", _add)
    add.add_argument(
        "captures", metavar="CAPTURE|DIR", nargs="+", help="captures, or folders of captures"
    )
    add.add_argument("--host", metavar="NAME", default="", help="name of the host, of one capture")
    add.add_argument("--cluster", metavar="NAME", default="", help="cluster that the hosts are of")
    add_command(commands, "compact", "merge the files of each hour", _compact)
    fleet_record.register(commands)
    fleet_questions.register(commands)
    fleet_whatif.register(commands)
    fleet_sql.register(commands)


def _add(options: argparse.Namespace) -> int:
    """Add every capture; one that cannot be added costs its line only."""
    paths = list(_captures(options.captures))
    if options.host and len(paths) != 1:
        raise TlstaxError(
            "cannot give one name to several captures",
            f"--host is one host, and there are {len(paths)} captures",
            "Add them one by one, or without --host",
            ExitCode.USAGE,
        )
    location.require(options.data)
    status, told = ExitCode.OK, set[str]()
    for path in paths:
        try:
            rolled = capture.read(path, options.host, options.cluster)
            outcome = location.add(rolled, options.data)
        except TlstaxError as error:
            if len(paths) == 1 or error.exit_code in (ExitCode.IO, ExitCode.HOST):
                raise
            complain(str(error))
            status = status or error.exit_code
            continue
        recorded_ns = sum(
            row.recorded_ns
            for row in rolled.rows["1h"][columns.Interval]
            if isinstance(row, columns.Interval)
        )
        if rolled.recording.is_beside_others and not options.host:
            told.add(rolled.recording.host)
        print(f"{path}: {rolled.recording.host}, {quantities.time_text(recorded_ns)}: {outcome}")
    for name in sorted(told):
        complain(
            f"{name} has several servers that were recorded together: they are one host of the "
            "data set, whose CPUs are the mean of theirs. To tell them apart, add each with --host"
        )
    return int(status)


def _captures(texts: list[str]) -> Iterator[Path]:
    """The files, and those of folders. Raises TlstaxError (USAGE) for a folder without any."""
    for text in texts:
        path = Path(text)
        if not os.path.isdir(path):
            yield path
            continue
        found = sorted(path.rglob("*.tlstax"))
        if not found:
            raise TlstaxError(
                f"there is no capture in {path}",
                "no file below it is named *.tlstax",
                "Give another folder, or the files",
                ExitCode.USAGE,
            )
        yield from found


def _compact(options: argparse.Namespace) -> int:
    outcome = location.compact(options.data)
    for text in outcome.left_out:
        print(f"tlstax: {text}", file=sys.stderr)
    print(f"{outcome.merged_count:,} files merged into {outcome.hours_count:,}")
    return int(ExitCode.CAPTURE if outcome.left_out else ExitCode.OK)
