# SPDX-License-Identifier: GPL-2.0-only
"""Names the functions of a finished raw capture, in a process of its own.

Symbol tables are large, and the watch stays small. A file is used only if it has the recorded
build-id. `python -m tlstax.collectors.watching.naming` reads a pickled Naming from standard input.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tlstax import TlstaxError
from tlstax.collectors.capture.frame_names import store_names
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import Frame
from tlstax.collectors.process.later_names import LaterNames
from tlstax.collectors.process.mappings import PROC
from tlstax.collectors.process.symbols import KernelSymbols
from tlstax.collectors.recording.stack_store import Unnamed, is_own, without_own

MODULE: Final = "tlstax.collectors.watching.naming"
LAST_OF_ALL: Final = 19  # nice


class Naming(NamedTuple):
    """A capture, the process that it is of, and what has no name in it."""

    capture: Path
    pid: int
    unnamed: Unnamed


def start(naming: Naming) -> "subprocess.Popen[bytes]":
    """Begin to name; the process ends with 0 if the names were stored."""
    with tempfile.TemporaryFile() as asked:
        pickle.dump(naming, asked)
        asked.seek(0)
        return subprocess.Popen([sys.executable, "-m", MODULE], stdin=asked, process_group=0)


def name(naming: Naming) -> None:
    """Look the names up and store them. Raises TlstaxError."""
    symbols = KernelSymbols()
    named, own = [], set()
    for (is_kernel, address), frame_id in naming.unnamed.frames.items():
        if is_kernel:
            place = symbols.place(address)
            named.append(Frame(frame_id, *place))
            if is_own(place):
                own.add(frame_id)
    with CaptureReader.open(naming.capture) as reader:
        frames = list(reader.rows(Frame))
    root = PROC / str(naming.pid) / "root"
    known = LaterNames([], None, root if os.path.isdir(root) else Path("/"), inlined=False)
    for file in known.name(frames):
        named += file.changed
    store_names(naming.capture, named, stacks=list(without_own(naming.unnamed.waits, own)))


def _main() -> int:
    os.nice(LAST_OF_ALL)
    try:
        name(pickle.load(sys.stdin.buffer))  # written by our own parent
    except TlstaxError as error:
        print(f"tlstax: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    # Under its own name, or what was pickled would be of another class.
    from tlstax.collectors.watching import naming as itself

    sys.exit(itself._main())
