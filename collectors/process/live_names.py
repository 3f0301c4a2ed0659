# SPDX-License-Identifier: GPL-2.0-only
"""Names for the frames of a recording that is still running.

The recorder names its frames at the end, because symbol tables are large. A live view, in another
process, looks them up here by the file and offset stored in the capture.
"""

from collections.abc import Callable
from pathlib import Path

from tlstax import TlstaxError
from tlstax.collectors.capture.schema import Frame
from tlstax.collectors.process.file_images import file_of_build
from tlstax.collectors.process.mappings import MappedObject
from tlstax.collectors.process.symbols import OpenObject, Symbolizer
from tlstax.collectors.process.target import open_target

NameFrame = Callable[[Frame], Frame]


def open_names(pid: int | None) -> NameFrame:
    """A function that names the user frames of the process; kernel frames are unchanged.

    None: the process is on another host. Its files are here too, or were fetched from there.
    """
    if pid is None:
        return _open_fetched_names()
    try:
        symbolizer = Symbolizer(open_target(pid))
    except TlstaxError:
        return lambda frame: frame  # it has ended: do not open its files

    def name(frame: Frame) -> Frame:
        if frame.source != "none" or frame.object in ("", "kernel"):
            return frame
        place = symbolizer.in_file(frame.object, frame.build_id, frame.offset_bytes)
        return Frame(frame.frame_id, *place) if place else frame

    return name


def _open_fetched_names() -> NameFrame:
    files: dict[tuple[str, str], OpenObject] = {}

    def name(frame: Frame) -> Frame:
        path, build_id = key = frame.object, frame.build_id
        if frame.source != "none" or not build_id:
            return frame
        if key not in files:
            found, identity = file_of_build(build_id, (path,))
            mapped = MappedObject(path, found, "", identity[1], build_id, False, (), None, identity)
            files[key] = OpenObject(mapped, Path("/"))
        return Frame(frame.frame_id, *files[key].place(frame.offset_bytes))

    return name
