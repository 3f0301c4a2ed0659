# SPDX-License-Identifier: GPL-2.0-only
"""Write the stacks of a capture in another tool's format.

    tlstax export demo.tlstax --format pprof -o demo.pb.gz          go tool pprof -top demo.pb.gz
    tlstax export demo.tlstax --format speedscope -o demo.json      https://www.speedscope.app
    tlstax export demo.tlstax --format firefox -o demo.json         https://profiler.firefox.com
    tlstax export demo.tlstax --format folded -o demo.folded        FlameGraph, inferno
    tlstax export demo.tlstax --format parquet -o demo.parquet      DuckDB, pandas; needs pyarrow
    tlstax export demo.tlstax --format pprof --workload storm/connect/tls -o tls.pb.gz

Every format has the same content: CPU time and waits of each workload, exact by the ledger and
split by samples, in nanoseconds, with the phase as the first frame.
Exit status: 0; 2 wrong arguments; 3 pyarrow is missing; 5 CAPTURE is no capture or damaged; 6 it
cannot be written.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify import profiles
from tlstax.analysis.classify.stacks import Folded
from tlstax.analysis.document import health
from tlstax.analysis.report.export import firefox, folded, parquet, pprof, speedscope
from tlstax.analysis.report.output import write
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Tables
from tlstax.collectors.capture.reader import CaptureReader

Graphs = Mapping[str, Folded]
_TITLE: Final = "tlstax"


def _pprof(graphs: Graphs, rows: Tables) -> bytes:
    return pprof.render(graphs, _start_ns(rows), health.duration_ns(rows))


def _speedscope(graphs: Graphs, rows: Tables) -> str:
    return speedscope.render(graphs, _name(rows))


def _firefox(graphs: Graphs, rows: Tables) -> str:
    process = rows.targets[0].exe if rows.targets else _TITLE
    return firefox.render(graphs, _name(rows), _start_ns(rows), process)


FORMATS: Final[Mapping[str, Callable[[Graphs, Tables], str | bytes]]] = {
    "folded": lambda graphs, rows: folded.render(graphs),
    "pprof": _pprof,
    "speedscope": _speedscope,
    "firefox": _firefox,
    "parquet": lambda graphs, rows: parquet.render(graphs),
}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax export`."""
    parser = subparsers.add_parser(
        "export",
        help="write the stacks in another tool's format",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("capture", metavar="CAPTURE", help="file written by tlstax")
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="- prints it")
    parser.add_argument(
        "--workload", metavar="NAME", help="driver/scenario/arm, or all; default: every one"
    )
    parser.add_argument("--kind", choices=("on_cpu", "off_cpu"), help="default: both")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the requested format."""
    with CaptureReader.open(options.capture) as reader:
        rows = tables.load(reader)
    graphs = stacks_of(rows, options.workload, options.kind)
    write(options.output, FORMATS[options.format](graphs, rows))
    return int(ExitCode.OK)


def stacks_of(rows: Tables, workload: str | None = None, kind: str | None = None) -> Graphs:
    """The whole stacks by WORKLOAD/KIND; the report's own graphs leave out what is too small.

    Raises TlstaxError (USAGE) for a workload that the capture does not hold.
    """
    names = [part.name for part in tables.groups(rows)]
    if workload is not None and workload not in names:
        raise TlstaxError(
            f"there is no workload {workload}",
            f"the capture holds {', '.join(names)}",
            "Name one of them, or leave out --workload",
            ExitCode.USAGE,
        )
    return {
        name: graph
        for name, graph in profiles.fold_all(rows).items()
        for group, _, one in (name.rpartition("/"),)
        if workload in (None, group) and kind in (None, one)
    }


def _name(rows: Tables) -> str:
    return " ".join((_TITLE, rows.meta.get("hostname", ""))).strip()


def _start_ns(rows: Tables) -> int:
    """Wall clock at the start, 0 where the capture does not say."""
    text = rows.meta.get("created_wall_ns", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
