# SPDX-License-Identifier: GPL-2.0-only
"""What preflight left out of a recording, as rows of its capture.

Apart from safe_request.py, because planning does not need the rows of captures: to define
them takes 10 ms.
"""

from collections.abc import Iterator

from tlstax.collectors.capture import schema
from tlstax.collectors.preflight.safety import Safety


def safety_rows(safety: Safety | None, target_id: int = 1) -> Iterator[schema.Gap]:
    """What the recording lacks because of hazards, and which of them were accepted."""
    for note in safety.notes if safety else ():
        yield schema.Gap(target_id, f"preflight ({note.hazard})", note.text)
