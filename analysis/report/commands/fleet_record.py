# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet record`: a round of recordings over ssh, straight into the data set."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import location, rounds
from tlstax.analysis.fleet.rounds import Round
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.report.commands.fleet_options import add_command
from tlstax.analysis.report.commands.into_data_set import IntoDataSet

_UNITS_S: Final = {"s": 1, "m": 60}
_MOST: Final = 1000


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = add_command(commands, "record", "record many hosts over ssh, some at a time", run)
    parser.add_argument("--hosts", type=Path, required=True, metavar="FILE",
                        help="a [USER@]HOST, and maybe its cluster, on each line")  # fmt: skip
    parser.add_argument("--name", required=True, help="name of the server's process on each host")
    parser.add_argument("--for", dest="for_s", type=_seconds, default=30.0, metavar="TIME",
                        help="how long each is recorded, such as 30s or 5m (30s)")  # fmt: skip
    parser.add_argument("--parallel", type=_count, default=20, metavar="N",
                        help="hosts at a time (20)")  # fmt: skip
    parser.add_argument("--per-cluster", type=_count, default=1, metavar="N",
                        help="hosts of a cluster at a time (1)")  # fmt: skip
    parser.add_argument("--jitter", type=_seconds, default=0.0, metavar="TIME",
                        help="begin each after a random time up to this (0s)")  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the captures there")
    parser.add_argument("options", nargs="*", metavar="-- OPTION",
                        help="further options of tlstax attach, such as -- --sudo")  # fmt: skip


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or len(number) > 5 or unit not in _UNITS_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s or 5m")
    return float(int(number) * _UNITS_S[unit])


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text[:9]) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Record every host; one that cannot be recorded costs its line only."""
    parquet_files.arrow()
    location.require(options.data)
    hosts = rounds.hosts_in(options.hosts)
    words = ["--name", options.name, "--for", f"{options.for_s:.0f}s", *options.options]
    wanted = Round(
        *(hosts, words, options.for_s, options.parallel, options.per_cluster, options.jitter)
    )
    recorded = 0
    into = IntoDataSet(options.data)
    with _folder(options.keep, into) as folder, _Interrupts() as interrupts:
        for outcome in rounds.record(
            wanted, folder, lambda: interrupts.requested or into.is_given_up
        ):
            why = outcome.why or into.add(outcome)
            print(f"{outcome.host.plain_name}: {why or 'recorded'}", flush=True)
            recorded += not why
            if not options.keep and not into.holds(outcome.capture):
                outcome.capture.unlink(missing_ok=True)
        for host in into.add_again():
            print(f"{host.plain_name}: recorded; it is in the data set now", flush=True)
            recorded += 1
    print(f"{recorded:,} of {len(hosts):,} hosts were recorded", file=sys.stderr)
    if into.left:
        raise into.error()
    return int(ExitCode.OK if recorded == len(hosts) else ExitCode.TARGET)


@contextmanager
def _folder(kept: Path | None, into: IntoDataSet) -> Iterator[Path]:
    """Where captures are: a folder that goes at the end, but for those that are in no data set."""
    if kept is not None:
        try:
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise TlstaxError(
                f"cannot keep captures in {kept}",
                error.strerror or str(error),
                "Name another folder with --keep",
                ExitCode.IO,
            ) from error
        yield kept
        return
    made = Path(tempfile.mkdtemp(prefix="tlstax-round-"))
    try:
        yield made
    finally:
        for path in [path for path in made.iterdir() if not into.holds(path)]:
            path.unlink(missing_ok=True)
        if not into.left:
            made.rmdir()


class _Interrupts:
    """The first SIGINT or SIGTERM ends the round in order."""

    requested = False

    def __enter__(self) -> "_Interrupts":
        self._before = {
            number: signal.signal(number, self._request)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
