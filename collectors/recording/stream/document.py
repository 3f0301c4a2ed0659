# SPDX-License-Identifier: GPL-2.0-only
"""Prints docs/stream.md from collectors/recorder/stream.h.

python -m tlstax.collectors.recording.stream.document > docs/stream.md
"""

from collections.abc import Iterator
from typing import Final

from tlstax.collectors.recording.stream.definition import Definition, Structure, definition

_HEAD: Final = """\
# The stream

<!-- Made by `make capture-docs`: change collectors/recorder/stream.h, not this file. -->

`tlstax-recorder` writes a stream, `tlstax import` makes a [capture](capture.md) of it. A stream
is a sequence of frames, to a file, a pipe or a socket.

- **One or several targets.** A recorder records one process or several, and the head of a frame
  says whose it is. Without the frames of the others, each has a stream as if it were alone.
- **Readable up to where it was cut.** Each frame has its length, its number and a checksum. A
  reader stops at the first frame that is not whole; all windows that ended before are valid.
- **Totals, not differences.** Numbers are totals since the recording began. What did not change
  since it was sent last is left out.
- **Windows are whole.** All frames up to a `WINDOW` frame belong to that window, and are sent
  together or not at all. If the reader is too slow, a window is not cut: it becomes a part of the
  next one, which `merged_count` counts. Handshakes, samples and waits stay in the kernel until
  there is room; what then finds no room there is counted as a loss of the window. If nothing is
  taken for 2 s and the queue is full, the recording ends.
- **Little-endian**, aligned to 8 bytes. Times are `CLOCK_MONOTONIC` nanoseconds.
- **Versioned.** A reader refuses another version by number.
- **Answers.** Frames from type 32 on (and `MAPPING`, `ERROR`) answer requests of `tlstax attach
  --ssh` before the recording, whose frames are numbered from 0 again
  ([agentless.md](agentless.md)).
- **Nothing secret.** No SQL text, no payload, no key, no password. Addresses of functions in the
  target and in the kernel are in it, and paths of its files: keep a stream like a core file's
  list of mappings. A capture holds no address.
"""
_SIZES: Final = ("MAGIC", "VERSION", "FRAME_MOST", "SPANS_MOST", "TARGETS_MOST")
_OF_PROGRAMS: Final = ("thread_counts", "handshake", "function_sum")


def stream_markdown() -> str:
    """The text of docs/stream.md."""
    known = definition()
    parts = [_HEAD, "## Frames\n", *_frames(known), ""]
    for name, structure in known.structures.items():
        if name.startswith("stream_") or name in _OF_PROGRAMS:
            parts += [f"## {name}\n", *_members(structure), ""]
    return "\n".join(parts).rstrip() + "\n"


def _frames(known: Definition) -> Iterator[str]:
    most = known.number("FRAME_MOST")
    version = known.number("VERSION")
    yield f"Version {version}. A frame is a `stream_head` and at most {most} bytes.\n"
    yield "| type | name | holds |"
    yield "|---|---|---|"
    for constant in known.constants.values():
        name = constant.name.removeprefix("STREAM_")
        if name not in _SIZES:
            yield f"| {constant.value} | `{name}` | {constant.text} |"


def _members(structure: Structure) -> Iterator[str]:
    yield f"{structure.text} {structure.size_bytes} bytes.\n"
    yield "| offset | type | name | what it is |"
    yield "|---|---|---|---|"
    for member in structure.members:
        yield f"| {member.offset_bytes} | {member.type} | `{member.name}` | {member.text} |"


if __name__ == "__main__":
    print(stream_markdown(), end="")
