# SPDX-License-Identifier: GPL-2.0-only
"""Watch a server's TLS work live: handshakes, phases and what they wait for, functions, own cost.

    tlstax top --name mariadbd              until q is pressed
    tlstax top 4119 -o now.tlstax           and keep the recording
    tlstax top 4119 --count 3 --every 5s    three screens, for scripts
    tlstax top now.tlstax                   show a capture, even while it is written
    tlstax top --ssh [USER@]HOST --sudo --name mariadbd    a server of another host
    tlstax top --name mysqld --all          several servers, one line for each (also pids, captures)

A recorder is attached as by `tlstax attach`, with the same overhead; the second-last line shows it.
The recorder ends with the display, also on another host, where nothing is left of it. Keys: q
quits, p pauses, s sorts by function or by category.
With NO_COLOR or on a dumb terminal the display is plain text.
Exit status: that of `tlstax attach`; 5 the file is no capture.
"""

import argparse
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.document import live_snapshot
from tlstax.analysis.report.commands import top_several
from tlstax.analysis.report.commands.top_recording import Attached, found_by, record
from tlstax.analysis.report.live import screen as top_screen
from tlstax.analysis.report.live.feed import Feed
from tlstax.analysis.report.live.terminal import LiveScreen, PlainOutput
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame

if TYPE_CHECKING:
    import subprocess

NameFrame = Callable[[Frame], Frame]
WINDOW_PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.1
SEEN_WELL: Final = 0.5
BUDGET_NOTE: Final = "phases by windows; all: --budget none"


def register(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    remote_options: Callable[[argparse.ArgumentParser], None],
    open_names: Callable[[int | None], "NameFrame"],
    start_with_us: "Callable[..., subprocess.Popen[str]]",
) -> None:
    """Add `tlstax top`."""
    parser = subparsers.add_parser(
        "top",
        help="watch a server's TLS work live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="PID|CAPTURE",
        help="process, or a capture; of several, or of a folder of captures, one line for each",
    )
    parser.add_argument("--name", metavar="NAME", help="or its name, if only one process has it")
    parser.add_argument("--all", action="store_true", help="or all of them, as `tlstax attach`")
    for kind, what in (("unit", "systemd unit"), ("container", "container"), ("pod", "pod")):
        parser.add_argument(f"--{kind}", metavar="ID", help=f"or its {what}, as `tlstax attach`")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="keep the recording; with several servers a folder, as `tlstax attach`",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing capture")
    parser.add_argument("--once", action="store_true", help="print one screen and exit")
    parser.add_argument("--count", type=_count, metavar="N", help="print N screens and exit")
    parser.add_argument(
        "--every", type=_seconds, default=1.0, metavar="TIME", help="time between updates (1s)"
    )
    parser.add_argument(
        "--over", type=_seconds, default=5.0, metavar="TIME", help="length of the period shown (5s)"
    )
    parser.add_argument(
        "--sort", choices=top_screen.SORTS, default=top_screen.SORTS[0], help="order of functions"
    )
    parser.add_argument("--level", metavar="LEVEL", help="as of tlstax attach")
    parser.add_argument(
        "--budget", metavar="SHARE", help="as of tlstax attach, or none: all phases, all the time"
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="HAZARD", help="as of tlstax attach"
    )
    parser.add_argument("--definitions", metavar="DIR", help="as of tlstax attach")
    remote_options(parser)
    parser.set_defaults(run=run, open_names=open_names, start_with_us=start_with_us)


def _count(text: str) -> int:
    number = whole_number(text) or 0
    if not 1 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1,000,000")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 0.2s to 3600s")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Show the live display. `tlstax.__main__` passes what names functions."""
    options.count = 1 if options.once else options.count
    finders, targets = found_by(options), options.targets
    if bool(targets) == bool(finders):
        raise TlstaxError(
            "two targets given" if targets else "no target given",
            "tlstax top watches processes or captures",
            "Give PID, CAPTURE, or --name, --unit, --container or --pod",
            ExitCode.USAGE,
        )
    captures = [Path(target) for target in targets if whole_number(target) is None]
    _refuse_captures(options, captures)
    with _stop_on_signals():
        if len(targets) > 1 or options.all or any(map(os.path.isdir, captures)):
            return top_several.run(options, captures, finders or targets)
        if captures:
            return _show(options, captures[0], lambda frame: frame, None)
        return record(
            options,
            finders or targets,
            "top.tlstax",
            lambda capture, recorder: _show(
                options,
                capture,
                options.open_names(None if options.ssh else recorder.pid),
                recorder,
            ),
        )


def _refuse_captures(options: argparse.Namespace, captures: list[Path]) -> None:
    """Raise TlstaxError (USAGE) for what does not go with captures."""
    given = {
        "a pid": (len(captures) < len(options.targets), "they are shown in turn, not together"),
        "--ssh": (options.ssh, "a capture is a file of this host"),
        "--all": (options.all, "it means all processes of a name, unit, container or pod"),
    }
    for name, (is_given, why) in given.items():
        if captures and is_given:
            raise TlstaxError(
                f"a capture was given with {name}",
                why,
                "Give captures, or processes by pid, --name, --unit, --container or --pod",
                ExitCode.USAGE,
            )


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[None]:
    """A hang-up or SIGTERM ends the display as Ctrl-C does, so that the terminal is restored."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(
    options: argparse.Namespace,
    capture: Path,
    name: NameFrame,
    recorder: Attached | None,
) -> int:
    """Pictures until q, until they are enough, or until the recorder ends."""
    live = options.count is None and sys.stdout.isatty() and sys.stdin.isatty()
    screen = LiveScreen() if live else PlainOutput()
    with CaptureReader.open(capture) as reader, screen:
        feed = Feed(reader, name, int(options.over * 1e9))
        least_ns = 0 if live else int(options.every * 1e9)
        if recorder is not None:
            _await_windows(feed, recorder, screen, least_ns)
        _Display(options, feed, screen, recorder).run()
    return int(ExitCode.OK)


def _await_windows(feed: Feed, recorder: Attached, screen: PlainOutput, least_ns: int) -> None:
    """Wait for the first window, or as many as it takes for a picture of that length."""
    deadline = time.monotonic() + WINDOW_PATIENCE_S
    while not recorder.is_over and time.monotonic() < deadline:
        if (feed.advance() or feed.seen) and feed.span_ns >= least_ns:
            return
        if screen.key(LOOK_S) == "q":
            return


class _Display:
    """The loop, and what keys change."""

    def __init__(
        self,
        options: argparse.Namespace,
        feed: Feed,
        screen: PlainOutput,
        recorder: Attached | None,
    ) -> None:
        self._options = options
        self._feed = feed
        self._screen = screen
        self._recorder = recorder
        self._taxonomy = builtin()
        self._paused: live_snapshot.LiveSnapshot | None = None
        self._sort: str = options.sort

    def run(self) -> None:
        """Until q, until there were enough pictures, or until the recorder has ended."""
        shown, due = 0, time.monotonic()
        while True:
            due += self._options.every
            self._feed.advance()
            is_over = self._recorder is None or self._recorder.is_over
            self._draw("the recording has ended" if is_over and self._recorder else "")
            shown += 1
            if shown == self._options.count or self._await_keys(due):
                return
            if is_over and isinstance(self._screen, PlainOutput) and not self._is_live:
                return

    @property
    def _is_live(self) -> bool:
        return isinstance(self._screen, LiveScreen)

    def _draw(self, note: str) -> None:
        picture = self._paused or live_snapshot.look(
            list(self._feed.seen.values()), self._feed.stack, self._taxonomy
        )
        frame = top_screen.Frame(
            target=self._feed.target,
            running_ns=self._feed.end_ns - self._feed.start_ns,
            note=note,
            is_paused=self._paused is not None,
            sort=self._sort,
            output=str(self._options.output or ""),
            host=self._options.ssh or "",
        )
        self._last = picture
        if not note and picture.measured_ns < SEEN_WELL * picture.span_ns:
            frame = dataclasses.replace(frame, note=BUDGET_NOTE)
        self._screen.show(top_screen.draw(picture, frame, *self._screen.size()))

    def _await_keys(self, due: float) -> bool:
        """Heed keys until the next picture is due; whether it is time to quit."""
        while (left := due - time.monotonic()) > 0:
            key = self._screen.key(min(left, LOOK_S)).lower()
            if key == "q":
                return True
            if key == "p":
                self._paused = None if self._paused else self._last
            elif key == "s":
                sorts = top_screen.SORTS
                self._sort = sorts[(sorts.index(self._sort) + 1) % len(sorts)]
            if key in ("p", "s"):
                self._draw("")
        return False
