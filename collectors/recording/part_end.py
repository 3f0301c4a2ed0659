# SPDX-License-Identifier: GPL-2.0-only
"""Where one capture ends while its recording goes on in another."""

from typing import NamedTuple

from tlstax.collectors.capture import schema
from tlstax.collectors.recording.stack_store import Unnamed


class PartEnd(NamedTuple):
    """The end of a capture, while its recording goes on in another."""

    rows: list[schema.Row]
    """Its last rows."""
    unnamed: Unnamed
    """What is to be named in it."""
    carried: list[schema.Row]
    """Frames and stacks for the next capture, where a window refers to them."""
