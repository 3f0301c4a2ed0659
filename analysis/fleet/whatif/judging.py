# SPDX-License-Identifier: GPL-2.0-only
"""Of which hosts a change can be predicted, which have it already, and why the others are left out.

The rules are those of `tlstax whatif` for one recording: costs of the same library and CPU, none
for a library that is linked into the server, a key that the time of a signature identifies, no
resumption that would already be in the figures.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tlstax.analysis.fleet.whatif.inputs import Inputs
from tlstax.analysis.whatif.recorded import ALIKE
from tlstax.collectors.capture.micro_costs import MicroCosts

LEAST_SEEN: Final = 20
"""Handshakes below which a host says too little."""
RESUMED_MOST: Final = 0.02
"""Share of resumed handshakes that the models bear in a recording."""
LINKED: Final = "its TLS library is linked into the server"
"""How the reason to leave out a host begins that has a library of its own."""
_TOLD_LEAST: Final = 0.98
_RESUMED_ALIKE: Final = 0.05
_VERIFIES_NS: Final = 1000.0
"""Signature checks that take less wall time per handshake do not take place."""


@dataclass(frozen=True)
class Wish:
    """What is to change on every host."""

    key: str = ""
    resume: float | None = None
    pool: int | None = None
    library: str = ""
    present_key: str = ""
    """The present key of every host, if signatures do not reveal it."""

    @property
    def needs_costs(self) -> bool:
        """Whether costs of single TLS operations are needed."""
        return bool(self.key) or self.resume is not None

    def summary(self) -> list[str]:
        """The changes, for people."""
        found = [f"a key of kind {self.key}"] if self.key else []
        found += [f"the TLS library {self.library}"] if self.library else []
        if self.resume is not None:
            found.append(f"{self.resume * 100:.3g} % of the handshakes resumed")
        found += [f"{self.pool} commands on each connection"] if self.pool else []
        return found


@dataclass
class Verdicts:
    """One place for each host."""

    costs: list[int]
    """Which of the costs is the host's; -1: none is needed."""
    keys: list[str]
    """Kind of the present key; '': not needed."""
    why: list[str]
    """Why it is left out; '': it is not."""
    has_it: list[bool]
    """Whether it is not left out, and nothing changes for it."""
    wishes: list[Wish]
    """What changes for it: the wish without what it has already."""


def judge(inputs: Inputs, wish: Wish, costs: Sequence[MicroCosts]) -> Verdicts:
    """A verdict on each host, for a change of key, resumption or pooling."""
    count = len(inputs.hosts)
    found = Verdicts([-1] * count, [""] * count, [""] * count, [False] * count, [wish] * count)
    for row in range(count):
        why = _unseen(inputs, row, wish)
        mine = wish
        if not why and wish.pool and _is_pooled(inputs, row, wish.pool):
            mine = replace(mine, pool=None)
        if not why and wish.resume is not None:
            why, has_resumed = _resumption(inputs, row, wish.resume)
            mine = replace(mine, resume=None) if has_resumed else mine
        if not why and mine.needs_costs:
            found.costs[row], why = _costs_of(inputs, row, costs)
        if not why and mine.needs_costs:
            of = costs[found.costs[row]]
            found.keys[row], why = _key(float(inputs.sign_ns[row]), of, wish)
            mine = replace(mine, key="") if found.keys[row] == wish.key else mine
            why = why or _unmeasured(found.keys[row], of, mine)
        if not mine.needs_costs:  # it has that key, of which there may be no costs
            found.costs[row] = -1
        found.why[row], found.wishes[row] = why, mine
        found.has_it[row] = not why and not (mine.pool or mine.needs_costs)
    return found


def _unseen(inputs: Inputs, row: int, wish: Wish) -> str:
    if not inputs.served_cpu[row] > 0:
        return "no ledger was kept"
    if inputs.seen[row] < LEAST_SEEN:
        return f"fewer than {LEAST_SEEN} handshakes were seen"
    if wish.pool and not inputs.commands[row] > 0:
        return "no command was seen"
    return ""


def _is_pooled(inputs: Inputs, row: int, wished: int) -> bool:
    """Whether a connection has as many commands already, or none was set up."""
    return bool(inputs.commands[row] >= wished * inputs.connections[row])


def _costs_of(inputs: Inputs, row: int, costs: Sequence[MicroCosts]) -> tuple[int, str]:
    """The costs of a host's library, CPU and TLS version, or why there are none."""
    library, cpu_model = inputs.fact("tls_library")[row], inputs.fact("cpu_model")[row]
    if _is_linked(inputs, row):
        return -1, f"{LINKED}, and not the one whose costs can be measured"
    if not math.isfinite(inputs.verify_ns[row]):
        return -1, "whether clients have certificates was not recorded"
    version, mutual = inputs.versions[row], bool(inputs.verify_ns[row] > _VERIFIES_NS)
    for number, one in enumerate(costs):
        mine = (branch(one.library), one.cpu_model, one.tls_version, one.mutual)
        if mine == (branch(library), cpu_model, version, mutual):
            return number, ""
    clients = "with" if mutual else "without"
    return -1, (
        f"no --costs for {library}, {version or 'no TLS'} {clients} client certificates, on "
        f"{cpu_model or 'an unknown CPU'}"
    )


def _is_linked(inputs: Inputs, row: int) -> bool:
    """Whether its library is no package's: it was built with the server, and is renewed with it."""
    return inputs.fact("tls_linkage")[row] == "static"


def branch(library: str) -> str:
    """`OpenSSL 3.0.19` is of the branch `OpenSSL 3.0`; of other names the whole."""
    name, _, version = library.rpartition(" ")
    return f"{name} {'.'.join(version.split('.')[:2])}" if name == "OpenSSL" else library


def _resumption(inputs: Inputs, row: int, wished: float) -> tuple[str, bool]:
    """Why resumption makes a prediction impossible, and whether it is as wished already."""
    resumed, told = float(inputs.resumed_share[row]), float(inputs.told_share[row])
    if told < _TOLD_LEAST or not math.isfinite(resumed):
        return "its library does not tell whether handshakes were resumed", False
    if resumed >= wished:
        return "", True
    if resumed > RESUMED_MOST:
        return "some of its handshakes were resumed already", False
    return "", False


def _key(sign_ns: float, costs: MicroCosts, wish: Wish) -> tuple[str, str]:
    """The present key, identified by the time of a signature, or why it is not known."""
    if wish.present_key:
        return wish.present_key, ""
    if not math.isfinite(sign_ns) or sign_ns <= 0:
        return "", "too few signatures were seen to identify its key"
    near = min(
        ((abs(math.log(sign_ns / key.sign.value_ns)), name) for name, key in costs.keys.items()),
        default=(math.inf, ""),
    )
    if near[0] > math.log(ALIKE):
        return "", "its key cannot be identified by the time of a signature (see --from-key)"
    return near[1], ""


def _unmeasured(key: str, costs: MicroCosts, wish: Wish) -> str:
    """Why the costs do not suffice for what changes."""
    if not wish.needs_costs:
        return ""
    for name in (key, wish.key or key):
        one = costs.keys.get(name)
        if one is None or one.full is None or one.resumed is None or one.client_setup is None:
            return f"--costs of {costs.library} have no handshake with a key of kind {name}"
    return ""


class Peers:
    """Hosts that have another library already, to be compared with the others."""

    def __init__(self, inputs: Inputs, rows: Sequence[int]) -> None:
        self._rows = np.array(rows, dtype=np.int64)
        kinds = zip(inputs.fact("cpu_model"), inputs.versions, strict=True)
        checks = inputs.verify_ns > _VERIFIES_NS
        known = np.isfinite(inputs.verify_ns)
        names = [
            f"{cpu}\n{version}" if cpu and is_known else ""
            for (cpu, version), is_known in zip(kinds, known, strict=True)
        ]
        self._kinds = np.array(
            [f"{n}\n{c}" if n else "" for n, c in zip(names, checks, strict=True)]
        )
        self._resumed = np.nan_to_num(inputs.resumed_share)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._signs = np.log(inputs.sign_ns)

    def like(self, row: int) -> npt.NDArray[np.int64]:
        """Those that differ from a host in nothing that changes a handshake but the library.

        That is CPU, TLS version, client certificates, resumption, and the time of a signature
        within a factor that tells kinds of key apart.
        """
        rows = self._rows
        if not len(rows) or not self._kinds[row] or not np.isfinite(self._signs[row]):
            return np.zeros(0, dtype=np.int64)
        is_like = self._kinds[rows] == self._kinds[row]
        is_like &= np.abs(self._signs[rows] - self._signs[row]) < math.log(ALIKE)
        is_like &= np.abs(self._resumed[rows] - self._resumed[row]) <= _RESUMED_ALIKE
        found: npt.NDArray[np.int64] = rows[is_like]
        return found


def judge_library(inputs: Inputs, wanted: str) -> Verdicts:
    """A verdict on each host, for another library; who has it is compared with, not predicted.

    One with a library linked in is neither: a package does not exchange it, nor is it a package's.
    """
    count = len(inputs.hosts)
    names = [name.lower().replace(" ", "-") for name in inputs.fact("tls_library")]
    linked = f"{LINKED}: no package exchanges it"
    why = [
        _unseen(inputs, row, Wish()) or (linked if _is_linked(inputs, row) else "")
        for row in range(count)
    ]
    return Verdicts(
        costs=[-1] * count,
        keys=[""] * count,
        why=why,
        has_it=[wanted.lower() in names[row] and not why[row] for row in range(count)],
        wishes=[Wish(library=wanted)] * count,
    )
