# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet record`: a round of recordings over ssh, straight into the data set.

A recording that ended early (its server ended, the line was cut) is in the data set as far as it
goes, and the host counts as recorded in part.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.fleet import location, rounds
from tlstax.analysis.fleet.rollup.recording import require_names
from tlstax.analysis.fleet.rounds import Host, Outcome, Round
from tlstax.analysis.fleet.store import parquet_files
from tlstax.analysis.report.commands.fleet_options import add_command
from tlstax.analysis.report.commands.into_data_set import IntoDataSet
from tlstax.collectors.capture.printable import whole_number

_UNITS_S: Final = {"s": 1, "m": 60}
_MOST: Final = 1000
_LONGEST_S: Final = 7 * 86400
_IN_PART: Final = "recorded in part"
_OWN: Final = ("--all", "--for", "--help", "--name", "--output", "--ssh")
_OWN_SHORT: Final = ("-h", "-o")
"""Options of `attach` that do not go behind --."""
_JOURNAL: Final = "-journal"
"""Ends the name of a file that belongs to a capture whose recording was killed."""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = add_command(commands, "record", "record many hosts over ssh, some at a time", run)
    parser.add_argument("--hosts", type=Path, required=True, metavar="FILE",
                        help="a [USER@]HOST, and maybe its cluster, on each line")  # fmt: skip
    parser.add_argument("--name", required=True, help="name of the server's process on each host")
    parser.add_argument("--for", dest="for_s", type=_length, default=30.0, metavar="TIME",
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
    number, unit = whole_number(text[:-1], 5), text[-1:]
    if number is None or unit not in _UNITS_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s or 5m")
    return float(number * _UNITS_S[unit])


def _length(text: str) -> float:
    seconds = _seconds(text)
    if not 1 <= seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1s and a week")
    return seconds


def _count(text: str) -> int:
    number = whole_number(text) or 0
    if not 1 <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST}")
    return number


def run(options: argparse.Namespace) -> int:
    """Record every host; one that cannot be recorded costs its line only."""
    parquet_files.arrow()
    location.require(options.data)
    hosts = rounds.hosts_in(options.hosts)
    _refuse_own(options.options)
    words = ["--name", options.name, "--for", f"{options.for_s:.0f}s", *options.options]
    wanted = Round(
        *(_usable(hosts), words, options.for_s),
        *(options.parallel, options.per_cluster, options.jitter),
    )
    into, warned = IntoDataSet(options.data), set[str]()
    tally = _Tally(into)
    with _folder(options.keep, into) as folder, _Interrupts() as interrupts:
        stops = interrupts.stops_if(lambda: into.is_given_up)
        with closing(rounds.record(wanted, folder, stops)) as outcomes:
            for outcome in outcomes:
                interrupts.say(f"{outcome.host.plain_name}: {tally.take(outcome)}")
                for warning in sorted({*outcome.warnings} - warned):  # of all such hosts
                    print(warning, file=sys.stderr)
                warned.update(outcome.warnings)
                if not options.keep and not into.holds(outcome.capture):
                    outcome.capture.unlink(missing_ok=True)
        for host in into.add_again():
            interrupts.say(f"{host.plain_name}: {tally.take_again(host)}")
        interrupts.end()
    print(tally.summary(len(hosts)), file=sys.stderr)
    if into.left:
        raise into.error()
    return int(ExitCode.OK if tally.whole_count == len(hosts) else ExitCode.TARGET)


def _refuse_own(options: Sequence[str]) -> None:
    """Raise TlstaxError (USAGE) for an option of `attach` that is the round's to give, or -h.

    With another --ssh each host of the file would have the recording of that one.
    """
    for option in options:
        name = option.partition("=")[0]
        if name == "--":
            raise TlstaxError(
                "a round cannot be made with a second --",
                "what stands behind it would be no option of its recordings",
                "Leave it out",
                ExitCode.USAGE,
            )
        is_short = name.startswith(_OWN_SHORT) and not name.startswith("--")
        if is_short or (len(name) > 2 and any(own.startswith(name) for own in _OWN)):
            raise TlstaxError(
                f"a round cannot be made with {name}",
                "it gives each recording its host, server, length and output by itself",
                "Leave it out: --hosts, --name, --for and --keep are options of the round",
                ExitCode.USAGE,
            )


def _usable(hosts: Sequence[Host]) -> list[Host]:
    """Those whose recordings the data set can take; the others cost their line only."""
    found = []
    for host in hosts:
        try:
            require_names("", host.plain_name, host.cluster)
        except TlstaxError as error:
            print(f"{host.plain_name}: not recorded: {error.why}", flush=True)
        else:
            found.append(host)
    return found


class _Tally:
    """Puts the recordings of a round into the data set, and counts them."""

    def __init__(self, into: IntoDataSet) -> None:
        self._into = into
        self._in_part: set[Host] = set()
        self.whole_count = self.part_count = 0
        """Hosts whose recordings are in the data set."""

    def take(self, outcome: Outcome) -> str:
        """What is told of a host that is over."""
        if not outcome.capture.exists():
            return outcome.why
        why = self._into.add(outcome)
        if why and not self._into.holds(outcome.capture):
            return outcome.why or why  # it has no window, or is damaged
        told = "recorded"
        if outcome.why:
            self._in_part.add(outcome.host)
            told = f"{_IN_PART}: {outcome.why}"
            why = why and f"{told}; {why.removeprefix('recorded, but ')}"
        if not why:
            self._count(outcome.host)
        return why or told

    def take_again(self, host: Host) -> str:
        """The same of a host whose recording is in the data set now."""
        self._count(host)
        return f"{_IN_PART if host in self._in_part else 'recorded'}; it is in the data set now"

    def _count(self, host: Host) -> None:
        if host in self._in_part:
            self.part_count += 1
        else:
            self.whole_count += 1

    def summary(self, hosts_count: int) -> str:
        """The last line of a round."""
        in_part = f", and {self.part_count:,} in part" if self.part_count else ""
        return f"{self.whole_count:,} of {hosts_count:,} hosts were recorded{in_part}"


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
        for path in list(made.iterdir()):
            if not into.holds(path.with_name(path.name.removesuffix(_JOURNAL))):
                path.unlink(missing_ok=True)
        if not into.left:
            made.rmdir()


class _Interrupts:
    """The first SIGINT, SIGTERM or SIGHUP ends the round in order, and so does lost output.

    Its recordings are sessions of their own, which a terminal that is closed does not end; writing
    to it fails before the signal comes.
    """

    requested = False
    _unsaid: BaseException | None = None

    def stops_if(self, is_over: Callable[[], bool]) -> Callable[[], bool]:
        """Whether to stop: if asked to, or if it is over."""
        return lambda: self.requested or is_over()

    def say(self, text: str) -> None:
        """Print a line; where that fails the round is ended, and `end` says why."""
        try:
            print(text, flush=True)
        except (TlstaxError, BrokenPipeError) as error:
            if not self.requested:
                self._unsaid = error
            self.requested = True

    def end(self) -> None:
        """Raise what kept a line from being printed, unless the round was asked to end before."""
        if self._unsaid is not None:
            raise self._unsaid

    def __enter__(self) -> "_Interrupts":
        self._before = {
            number: signal.signal(number, self._request)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # as by nohup
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
