# SPDX-License-Identifier: GPL-2.0-only
"""Turn a stream of the recorder, or a recording of another tool, into a capture.

    tlstax-recorder --plan server.plan --pid PID --for 30s > x.stream
    tlstax import x.stream -o server.tlstax
    perf record -k CLOCK_MONOTONIC -F 99 --call-graph dwarf,16384 -p PID -- sleep 30
    tlstax import perf.data -o server.tlstax
    tlstax import script.txt --hz 99 -o server.tlstax      what `perf script` printed
    profile-bpfcc -f -F 99 -p PID 30 > x.folded
    tlstax import x.folded --hz 99 -o server.tlstax

A stream becomes what `tlstax attach` would have recorded; one that was cut has the windows up to
there. Of a stream with several processes one is imported: --pid says which. Addresses are named in
files on this host that have the recorded build-ids.
A file that begins like none of these is read as folded stacks, `frame;frame COUNT`, without files
or threads. Texts do not contain the sampling rate: give it with --hz.
Of other tools only names and counts are imported. Phases are inferred from the boundary functions
in the stacks; there is no ledger, and times are numbers of samples. Functions without a name are
described if their file is on this host with the build-id that perf recorded.
Exit status: 0; 1 perf or its file cannot be read; 2 wrong arguments; 3 perf is not installed; 5 a
stream cannot be used.
"""

import argparse
import os
import stat
import sys
import time
from collections.abc import Iterable
from itertools import dropwhile
from pathlib import Path
from typing import BinaryIO

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.writer import write_whole
from tlstax.collectors.recording.stream.definition import definition
from tlstax.collectors.recording.stream.frames import targets_of
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.collectors.sources.perf.recording import read_data
from tlstax.collectors.sources.perf.rows import FIRST_ID, PerfRows
from tlstax.collectors.sources.perf.script import begins_sample, parse
from tlstax.collectors.sources.stacks import folded
from tlstax.probes.definitions import load_definitions

_MAGIC = (b"PERFILE2", b"2ELIFREP")
_LONGEST_NS = 1 << 62  # times of a capture are 64-bit numbers


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax import`."""
    parser = subparsers.add_parser(
        "import",
        help="make a capture of a stream, a perf.data file or folded stacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recording",
        type=Path,
        metavar="FILE",
        help="stream, perf.data, text of `perf script`, folded stacks",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="capture to write"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing capture")
    parser.add_argument(
        "--root", default="", metavar="DIR", help="where the paths in the recording begin (/)"
    )
    parser.add_argument("--hz", type=_hz, metavar="N", help="samples per second and CPU, of a text")
    parser.add_argument(
        "--pid", type=int, metavar="N", help="which process of a stream that has several"
    )
    parser.set_defaults(run=run)


def _hz(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= 1_000_000:
        raise argparse.ArgumentTypeError("a frequency is more than 0 and at most 1,000,000")
    return value


def run(options: argparse.Namespace) -> int:
    """Read the recording, write the capture."""
    if _is_stream(options.recording):
        with options.recording.open("rb") as stream:
            name = str(options.recording)
            number = _number(stream, name, options.pid)
            text = import_stream(stream, name, options.output, options.force, number)
        print(f"{options.output}: {text}", file=sys.stderr)
        return int(ExitCode.OK)
    if options.pid is not None:
        raise TlstaxError(
            f"cannot import {options.recording}",
            "--pid chooses from a stream of tlstax-recorder, and this is none",
            "leave out --pid",
            ExitCode.USAGE,
        )
    rows, engine = _read(options.recording, options.root, options.hz)
    samples = sum(row.sample_count for row in rows if isinstance(row, schema.SampleStack))
    if not samples:
        raise _unusable(options.recording, "it holds no sample")
    facts = {
        "tlstax_version": __version__,
        "created_wall_ns": time.time_ns(),
        "engine": engine,
        "command_level": "sample",
        "privacy": "names and counts only; no payload, key or password is imported",
    }
    target = schema.Target(1, 0, "", "", "unknown", "unknown", "unknown", "unknown", "none")
    meta = [schema.Meta(key, str(value)) for key, value in facts.items()]
    write_whole(options.output, [*meta, target, *rows], options.force)
    print(f"{options.output}: {samples} samples", file=sys.stderr)
    return int(ExitCode.OK)


def _number(stream: BinaryIO, name: str, pid: int | None) -> int:
    """The number of the process in a stream; 0 for one that has none, which its reader refuses."""
    pids = targets_of(stream)
    stream.seek(0)
    if not pids:
        return 0  # its reader says what is wrong
    if pid in pids:
        return pids[pid]
    if pid is None and len(pids) == 1:
        return next(iter(pids.values()))
    known = ", ".join(map(str, pids))
    raise TlstaxError(
        f"cannot import {name}",
        f"it has the processes {known}" if pid is None else f"it has no process {pid}: {known}",
        "Give --pid with one of them, and an --output for each",
        ExitCode.USAGE,
    )


def _is_stream(path: Path) -> bool:
    """Whether a file begins like a stream of the recorder."""
    try:
        # A pipe would be waited for, and a recording is read more than once.
        if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
            raise TlstaxError(
                f"cannot import {path}",
                "it is a pipe or a device, and a recording is read more than once",
                "Write it to a file, and import that",
                ExitCode.USAGE,
            )
        with path.open("rb") as file:
            return file.read(4) == definition().number("MAGIC").to_bytes(4, "little")
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error


def _read(path: Path, root: str, hz: float | None) -> tuple[list[schema.Row], str]:
    """The rows of a recording, and what made it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    try:
        is_perf = os.pread(descriptor, 8, 0) in _MAGIC
        window = schema.Window(FIRST_ID, None, 0, 0, 1, "record", "perf")
        if is_perf:
            return read_data(descriptor, window, root), "perf"
        if b"\0" in os.pread(descriptor, 4096, 0):
            raise _unusable(path, "it is neither a perf.data file nor text")
        return _read_text(path, window, hz)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    finally:
        os.close(descriptor)


def _read_text(path: Path, window: schema.Window, hz: float | None) -> tuple[list[schema.Row], str]:
    """The rows of a text, and what made it."""
    if hz is None:
        raise TlstaxError(
            f"cannot import {path}",
            "a text does not contain the sampling rate",
            "Give --hz, such as --hz 99",
            ExitCode.USAGE,
        )
    rows = PerfRows(load_definitions(), {})
    with path.open(encoding="utf-8", errors="replace") as lines:
        is_perf = _is_perf_script(lines)
        lines.seek(0)
        if is_perf:
            for sample in parse(dropwhile(_is_beside, lines)):
                rows.add(sample)
        else:
            folded.read(lines, rows)
    if rows.sample_count * 1e9 / hz >= _LONGEST_NS:
        raise TlstaxError(
            f"cannot import {path}",
            f"{rows.sample_count:,} samples at {hz:g} Hz last longer than a capture can",
            "Give the frequency that the samples were taken with as --hz",
            ExitCode.USAGE,
        )
    length_ns = round(rows.sample_count * 1e9 / hz)
    made = rows.rows(window._replace(end_ns=max(1, length_ns)), 1e9 / hz)
    return made, "perf" if is_perf else "folded"


def _is_perf_script(lines: Iterable[str]) -> bool:
    """By the first line that is neither empty nor a comment."""
    return begins_sample(next(dropwhile(_is_beside, lines), ""))


def _is_beside(line: str) -> bool:
    """Whether a line is empty, or of the head that `perf script --header` prints."""
    return not line.strip() or line.startswith("#")


def _unusable(path: Path, why: str) -> TlstaxError:
    return TlstaxError(
        f"cannot import {path}",
        why,
        "Name a file of `perf record -o`, the text of `perf script`, or folded stacks",
        ExitCode.FAILED,
    )
