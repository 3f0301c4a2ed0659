# SPDX-License-Identifier: GPL-2.0-only
"""CPU samples of a client by category: the server's taxonomy, and what differs in a client.

- A client may read and write its socket in any phase, because its own code is one phase: such a
  call is known by the socket functions in the kernel stack instead.
- Code that is neither of the kernel nor of a TLS library nor of libc is the client's program, its
  client library, or what a JIT made of its scripts: `program`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tlstax.analysis.classify.composition import Counts, Stacks
from tlstax.analysis.classify.taxonomy import UNKNOWN, Sample, Taxonomy
from tlstax.collectors.capture.schema import SampleStack

PROGRAM: Final = "program"
_SOCKET_CODE: Final = re.compile(r"^(sock|tcp|inet6?|unix)_")
_TLS_OBJECT: Final = re.compile(r"lib(ssl|crypto|gnutls|nettle|hogweed|gmp|wolfssl)[-.\w]*\.so")


def count_client_samples(
    rows: Iterable[SampleStack], stacks: Stacks, taxonomy: Taxonomy
) -> dict[int, Counts]:
    """Samples by window, phase and category."""
    counts: dict[int, Counts] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.sample_count > 0:
            category = client_category(stacks.sample(row), taxonomy)
            counts[row.window_id][row.phase, category] += row.sample_count
    return {window_id: dict(mine) for window_id, mine in counts.items()}


def client_category(sample: Sample, taxonomy: Taxonomy) -> str:
    """The category of one sample of a client."""
    if any(_SOCKET_CODE.match(frame.symbol) for frame in sample.kernel):
        sample = sample._replace(phase="record_read")
    category = taxonomy.category(sample)
    if category == "server":
        return PROGRAM
    if category == UNKNOWN and sample.side == "user" and sample.user:
        name = sample.user[0].object.rpartition("/")[2]
        if not _TLS_OBJECT.match(name):
            return PROGRAM
    return category
