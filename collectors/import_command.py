# SPDX-License-Identifier: GPL-2.0-only
"""Turn a recording of another tool into a capture that `tlstax report` explains.

    perf record -k CLOCK_MONOTONIC -F 99 --call-graph dwarf,16384 -p PID -- sleep 30
    tlstax import perf.data -o server.tlstax

Only names and counts are taken over. Phases are told by the boundary functions in the stacks, so
they are as good as these; there is no ledger, and times are samples. Functions without a name are
described where their files are on this host, with the build-id that perf saw.
Exit status: 0; 1 perf or its file cannot be read; 2 wrong arguments; 3 perf is not installed.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.perf import read_data

_MAGIC = (b"PERFILE2", b"2ELIFREP")


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax import`."""
    parser = subparsers.add_parser(
        "import",
        help="make a capture of a perf.data file",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recording", type=Path, metavar="FILE", help="written by perf record")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="capture to write"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing capture")
    parser.add_argument(
        "--root", default="", metavar="DIR", help="where the paths in the recording begin (/)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the recording, write the capture."""
    rows = _read(options.recording, options.root)
    samples = sum(row.sample_count for row in rows if isinstance(row, schema.SampleStack))
    if not samples:
        raise _unusable(options.recording, "it holds no sample")
    facts = {
        "tlstax_version": __version__,
        "created_wall_ns": time.time_ns(),
        "engine": "perf",
        "command_level": "sample",
        "privacy": "names and counts only; no payload, key or password is taken over",
    }
    target = schema.Target(1, 0, "", "", "unknown", "unknown", "unknown", "unknown", "none")
    meta = [schema.Meta(key, str(value)) for key, value in facts.items()]
    write_whole(options.output, [*meta, target, *rows], options.force)
    print(f"{options.output}: {samples} samples", file=sys.stderr)
    return int(ExitCode.OK)


def _read(path: Path, root: str) -> list[schema.Row]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    try:
        if os.read(descriptor, 8) not in _MAGIC:
            raise _unusable(path, "it does not begin like a perf.data file")
        os.lseek(descriptor, 0, os.SEEK_SET)
        return read_data(descriptor, schema.Window(0, None, 0, 0, 1, "record", "perf"), root)
    finally:
        os.close(descriptor)


def _unusable(path: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot import {path}", why, "Name a file that `perf record -o` wrote", ExitCode.FAILED
    )
