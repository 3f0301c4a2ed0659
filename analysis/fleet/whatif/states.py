# SPDX-License-Identifier: GPL-2.0-only
"""The CPU time of hosts before and after a change, by the models of `analysis.whatif`.

Rows are the measured costs themselves, then draws of them; columns are hosts. Hosts with one file
of costs share its draws: if a signature was measured too short, it is too short on all of them.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from tlstax.analysis.fleet.whatif.inputs import Inputs
from tlstax.analysis.fleet.whatif.judging import Peers, Verdicts, Wish
from tlstax.analysis.rows.ledger import SERVED_PHASES
from tlstax.analysis.statistics import medians
from tlstax.analysis.statistics.units import LEAST_RANGE, Floats, rounds
from tlstax.analysis.whatif import forecast
from tlstax.analysis.whatif.forecast import KERNEL, State
from tlstax.collectors.capture.micro_costs import KeyCosts, MicroCosts
from tlstax.collectors.capture.vocabulary import HANDSHAKE_PHASES, HANDSHAKE_SUB_PHASES

DRAWS: Final = 100
PEER_DRAWS: Final = 200
"""Draws of hosts that have another library."""
_AT_ONCE: Final = 1000
"""Hosts whose rows are in memory together."""
_SEED: Final = 17
_OTHER: Final = "handshake_other"
_CONNECTION: Final = ("connect", "disconnect")
_COMMANDS: Final = tuple(
    name for name in SERVED_PHASES if name not in (*HANDSHAKE_PHASES, *_CONNECTION)
)


class Draws:
    """Rows of measured costs: the same for each group of hosts that uses them."""

    def __init__(self, number: int) -> None:
        self._generator = np.random.default_rng([_SEED, number])

    def draw(self, value: float, low: float, high: float) -> Floats:
        """A value with its 95 % interval as rows: itself, then draws of a normal distribution."""
        drawn = self._generator.normal(value, (high - low) / 3.92, DRAWS)
        rows: Floats = np.maximum(np.append([value], drawn), 0.05 * value)[:, None]
        return rows


class Ends(NamedTuple):
    """CPU time of connections after a change, in ns per second: rows of draws, a host a column."""

    low: Floats
    high: Floats


def after(
    inputs: Inputs, verdicts: Verdicts, costs: Sequence[MicroCosts]
) -> tuple[list[int], Ends]:
    """The hosts that are predicted, and what becomes of them."""
    chosen = [row for row, why in enumerate(verdicts.why) if not why and not verdicts.has_it[row]]
    low, high = (np.zeros((1 + DRAWS, len(chosen))) for _ in range(2))
    place = {row: at for at, row in enumerate(chosen)}
    groups: dict[tuple[int, str, Wish], list[int]] = defaultdict(list)
    for row in chosen:
        groups[verdicts.costs[row], verdicts.keys[row], verdicts.wishes[row]].append(row)
    for (number, key, wish), mine in groups.items():
        for start in range(0, len(mine), _AT_ONCE):
            part = mine[start : start + _AT_ONCE]
            at = [place[row] for row in part]
            kind = (costs[number], key) if number >= 0 else None
            low[:, at], high[:, at] = _group(inputs, part, wish, kind, number)
    return chosen, Ends(low, high)


def _group(
    inputs: Inputs,
    rows: Sequence[int],
    wish: Wish,
    kind: tuple[MicroCosts, str] | None,
    number: int,
) -> Ends:
    """Hosts with one key and one file of costs. What the kernel's part is lies between bounds."""
    ends = []
    for kernel in inputs.kernel:
        state = _present(inputs, rows, kernel, Draws(max(number, 0)))
        if kind is not None:
            state = _with_costs(state, wish, *kind)
        scale: Floats | float = 1.0
        if wish.pool:
            connections, commands = inputs.connections[rows], inputs.commands[rows]
            state = forecast.with_pool(state, connections, commands, wish.pool, None)
            scale = commands
        ends += [(low * scale, high * scale) for low, high in state.totals().values()]
    lows, highs = zip(*ends, strict=True)
    return Ends(np.maximum(np.minimum.reduce(lows), 0.0), np.maximum.reduce(highs))


def _with_costs(state: State, wish: Wish, costs: MicroCosts, name: str) -> State:
    old: KeyCosts = costs.keys[name]
    new = costs.keys[wish.key or name]
    if wish.key:
        state = forecast.with_key(state, costs, old, new)
    if wish.resume is not None:
        state = forecast.with_resumption(state, costs, new, wish.resume)
    return state


def _present(inputs: Inputs, rows: Sequence[int], kernel: Floats, draws: Draws) -> State:
    """Hosts as they are."""

    def of(*names: str) -> Floats:
        total: Floats = np.sum([inputs.cpu[name][rows] for name in names], axis=0)
        return np.broadcast_to(total, (1 + DRAWS, len(rows))).astype(np.float64)

    parts = {f"handshake_{name}": of(name) for name in HANDSHAKE_SUB_PHASES}
    rest, share = of("handshake"), kernel[rows]
    parts |= {_OTHER: rest * (1 - share), KERNEL: rest * share}
    serving = of(*_COMMANDS)
    nothing = np.zeros_like(serving)
    return State(
        sources=draws,
        parts=parts,
        lump=np.sum(list(parts.values()), axis=0),
        connection=of(*_CONNECTION),
        query=serving,
        query_low=serving,
        client=nothing,
        client_low=nothing,
        connections=inputs.connections[rows],
        queries=inputs.commands[rows],
        handshakes=inputs.signed[rows],
    )


def with_library(inputs: Inputs, verdicts: Verdicts, peers: Peers) -> tuple[list[int], Ends]:
    """The same for another library: a handshake costs what it costs on hosts like this one.

    The first row has the bounds of the median of those hosts, which are the same for all hosts that
    are alike. In each other row a host's handshakes cost what they cost on one of them: hosts
    differ, and the median says nothing of how much. All occur equally often.
    """
    chosen, ends = [], []
    generator = np.random.default_rng(_SEED)
    per_handshake = inputs.handshake_cpu / np.maximum(inputs.handshakes, 1e-12)
    for row, why in enumerate(verdicts.why):
        if why or verdicts.has_it[row]:
            continue
        like = peers.like(row)
        if len(like) < LEAST_RANGE:
            verdicts.why[row] = (
                f"fewer than {LEAST_RANGE} hosts with that library are like it (CPU, key, TLS "
                "version, client certificates, resumption)"
            )
            continue
        found = medians.of_values(per_handshake[like].tolist(), rounds(len(like)))
        assert found.low is not None
        assert found.high is not None
        rest = float(inputs.served_cpu[row] - inputs.handshake_cpu[row])
        shakes = float(inputs.handshakes[row])
        chosen.append(row)
        drawn = generator.permutation(np.resize(generator.permutation(like), PEER_DRAWS))
        each = per_handshake[drawn]
        ends.append([rest + shakes * np.append(end, each) for end in (found.low, found.high)])
    low, high = (
        np.array([end[side] for end in ends], dtype=np.float64).reshape(-1, 1 + PEER_DRAWS).T
        for side in (0, 1)
    )
    return chosen, Ends(low, high)
