# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax top` of several servers, or of several captures: one line for each."""

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify.taxonomy import Taxonomy, builtin
from tlstax.analysis.document import live_snapshot
from tlstax.analysis.report import texts
from tlstax.analysis.report.commands.top_recording import Attached, record
from tlstax.analysis.report.live import servers_screen
from tlstax.analysis.report.live.feed import Feed
from tlstax.analysis.report.live.servers_screen import ServerLine
from tlstax.analysis.report.live.terminal import LiveScreen, PlainOutput
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Meta

_ENDED: Final = re.compile(r"tlstax: process (\d+) is no longer recorded: (.*); the others are")
_LOOK_S: Final = 0.1
_FIRST_S: Final = 30.0
"""How long the first windows are waited for."""


def run(options: argparse.Namespace, captures: Sequence[Path], who: list[str]) -> int:
    """Show captures, or record and show who is named. Raises TlstaxError."""
    if not captures:
        return record(
            options, who, "captures", lambda folder, recorder: _watch(options, folder, recorder)
        )
    with contextlib.ExitStack() as stack:
        readers: dict[Path, CaptureReader] = {}
        for path in captures:
            inside = sorted(path.glob("*.tlstax")) if os.path.isdir(path) else [path]
            found = {each: stack.enter_context(CaptureReader.open(each)) for each in inside}
            readers |= _last_recording(path, found) if os.path.isdir(path) else found
        feeds = {path: _feed(reader, options) for path, reader in readers.items()}
        _show(options, _Servers(lambda: feeds), None)
    return int(ExitCode.OK)


def _last_recording(folder: Path, found: dict[Path, CaptureReader]) -> dict[Path, CaptureReader]:
    """The captures of the recording that was begun last. Says which others lie in the folder.

    Raises TlstaxError (CAPTURE) if there are none.
    """
    if not found:
        raise TlstaxError(
            f"{folder} has no captures",
            "no file in it ends in .tlstax",
            "Name captures, or a folder that `tlstax attach` of several servers wrote",
            ExitCode.CAPTURE,
        )
    meta = {
        path: {row.key: row.value for row in reader.rows(Meta)} for path, reader in found.items()
    }
    recordings = {path: meta[path].get("recording_id", path.name) for path in found}
    last = max(found, key=lambda path: int(meta[path].get("created_wall_ns", "0")))
    others = [path for path in found if recordings[path] != recordings[last]]
    if others:
        each = ", ".join(map(str, others))
        text = f"{folder} also has captures of other recordings; name them to see them: {each}"
        print(f"tlstax: {texts.clean(text)}", file=sys.stderr)
    return {path: reader for path, reader in found.items() if path not in others}


def _feed(reader: CaptureReader, options: argparse.Namespace) -> Feed:
    return Feed(reader, lambda frame: frame, int(options.over * 1e9))


def _watch(options: argparse.Namespace, folder: Path, recorder: Attached) -> None:
    """Show the captures that the recorder writes there, as they come."""
    feeds: dict[Path, Feed] = {}
    with contextlib.ExitStack() as stack:

        def found() -> dict[Path, Feed]:
            for pid in recorder.pids:
                # Others may lie there, and may be written. It is in its place when that is told.
                for path in folder.glob(f"*-{pid}.tlstax"):
                    if path not in feeds:
                        reader = stack.enter_context(CaptureReader.open(path))
                        feeds[path] = _feed(reader, options)
            return feeds

        _show(options, _Servers(found), recorder)


class _Servers:
    """What is known of each."""

    def __init__(self, feeds: Callable[[], dict[Path, Feed]]) -> None:
        self._feeds = feeds
        self._endings: dict[int, str] = {}
        self._taxonomy: Taxonomy = builtin()
        self.running_ns = 0

    def advance(self) -> bool:
        """Read what is new; whether each has a window."""
        feeds = self._feeds().values()
        for feed in feeds:
            feed.advance()
            self.running_ns = max(self.running_ns, feed.span_ns)
        return bool(feeds) and all(feed.seen for feed in feeds)

    def span_ns(self) -> int:
        """The least time that was seen of one."""
        return min((feed.span_ns for feed in self._feeds().values()), default=0)

    def hear(self, said: Sequence[str]) -> None:
        """Note whose recording has ended."""
        for line in said:
            if found := _ENDED.match(line):
                self._endings[int(found[1])] = found[2]

    def lines(self) -> list[ServerLine]:
        """By name and pid."""
        made = []
        for _, feed in sorted(self._feeds().items()):
            snapshot = live_snapshot.look(list(feed.seen.values()), lambda _: (), self._taxonomy)
            ending = self._endings.get(feed.target.pid, "") if feed.target else ""
            made.append(ServerLine(feed.target, snapshot, ending))
        return made


def _show(options: argparse.Namespace, servers: _Servers, recorder: Attached | None) -> None:
    """Pictures until q, until they are enough, or until the recorder ends."""
    live = options.count is None and sys.stdout.isatty() and sys.stdin.isatty()
    with LiveScreen() if live else PlainOutput() as screen:
        if recorder is not None and _is_quit_early(options, servers, recorder, screen, live):
            return
        shown, due, paused = 0, time.monotonic(), list[ServerLine]()
        while True:
            due += options.every
            servers.advance()
            is_over = recorder is None or recorder.is_over
            servers.hear(recorder.said if recorder else ())
            note = "the recording has ended" if is_over and recorder else ""
            lines = paused or servers.lines()
            _draw(options, screen, servers, lines, note, bool(paused))
            shown += 1
            if shown == options.count or (is_over and not live):
                return
            while (left := due - time.monotonic()) > 0:
                key = screen.key(min(left, _LOOK_S)).lower()
                if key == "q":
                    return
                if key == "p":
                    paused = [] if paused else lines
                    _draw(options, screen, servers, lines, "", bool(paused))


def _is_quit_early(
    options: argparse.Namespace,
    servers: _Servers,
    recorder: Attached,
    screen: PlainOutput,
    live: bool,
) -> bool:
    """Wait for the first window of each, or as many as a picture takes; whether q was pressed."""
    deadline = time.monotonic() + _FIRST_S
    least_ns = 0 if live else int(options.every * 1e9)
    while not recorder.is_over and time.monotonic() < deadline:
        if servers.advance() and servers.span_ns() >= least_ns:
            return False
        if screen.key(_LOOK_S) == "q":
            return True
    return False


def _draw(
    options: argparse.Namespace,
    screen: PlainOutput,
    servers: _Servers,
    lines: Sequence[ServerLine],
    note: str,
    is_paused: bool,
) -> None:
    frame = servers_screen.Frame(
        servers.running_ns, note, is_paused, str(options.output or ""), options.ssh or ""
    )
    screen.show(servers_screen.draw(lines, frame, *screen.size()))
