# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of a prediction: a recording's costs per operation, changed by two models.

*by parts* scales each part of the handshake by the ratio of its micro-costs. *by handshake* adds
the difference of whole handshakes, multiplied by the ratio between the server and the loop (cold
caches). The interval covers both.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from tlstax.analysis.compare.replicates import Replicates
from tlstax.analysis.compare.rounds import COLUMNS, costs_of
from tlstax.analysis.statistics.sources import ErrorSources
from tlstax.analysis.statistics.units import Floats
from tlstax.collectors.capture.micro_costs import Cost, KeyCosts, MicroCosts

BY_PARTS: Final = "by parts"
BY_HANDSHAKE: Final = "by handshake"
KERNEL: Final = "handshake_kernel"
FIRST_MOST: Final = 10.0
"""Largest ratio between the first query of a connection and a later one: code and data of the first
are in no cache. Measured with the shortest query: docs/whatif.md."""
COLD: Final = (0.8, 2.0)
"""Bounds of the ratio between an operation in the server (cold caches) and in a loop."""
WARMTH: Final = 0.02, 0.05
WARMTH_MOST: Final = 0.2
"""By what share all other work becomes shorter for each ms that a signature becomes shorter (from,
to), and the maximum: long signatures leave cold caches. Measured for 4 ms on connections with one
query: docs/whatif.md. Of other connections only the first query is near a handshake."""
PARTED: Final = 1.15
"""Largest ratio between a query on a connection that is closed after a few queries and one on a
persistent connection; also the ratio for connecting. Measured: docs/whatif.md."""
RESUMED: Final = {"rest": 0.2, "kernel": 0.4, "certificate": 0.5}
"""Largest shares by which a resumed handshake shortens all other work and its own kernel part (it
sends no certificates), and the share of the work on certificates that may remain (the session holds
the client's certificate). Measured: docs/whatif.md."""
RECORDING: Final = "recording"
LIBRARY: Final = "library"
WARM: Final = "warm"
"""Recordings whose units differ: sources of error."""
_LEAST: Final = 1e-12


class Draws(Protocol):
    """What makes rows of a measured value."""

    def draw(self, value: float, low: float, high: float) -> Floats:
        """A measured value with its 95 % interval as rows."""
        ...


@dataclass(frozen=True)
class State:
    """CPU time per operation, by row of the error sources: of the server by part, of the client.

    Of many hosts the rows have a column for each host, and an operation is a second.
    """

    sources: Draws
    parts: Mapping[str, Floats]
    """Of the handshake, by step of the waterfall."""
    lump: Floats
    """The whole handshake, by the other model."""
    connection: Floats
    """Connecting and disconnecting, less the handshake."""
    query: Floats
    query_low: Floats
    client: Floats
    client_low: Floats
    connections: Floats | float
    queries: Floats | float
    handshakes: Floats | float
    """Each per operation."""
    less: Floats | float = 0.0
    more: Floats | float = 0.0
    """What caches may subtract from or add to the server's total."""

    @property
    def by_parts(self) -> Floats:
        """The handshake as the sum of its parts."""
        total: Floats = np.sum(list(self.parts.values()), axis=0)
        return total

    @property
    def reached(self) -> Floats:
        """What of connecting and of queries a change of handshakes may reach, at most.

        Of connections those that make such a handshake, and of their queries the first.
        """
        share = np.minimum(1.0, self.handshakes / np.maximum(self.connections, _LEAST))
        return share * self.connection + first_share(self.queries, self.handshakes) * self.query

    def totals(self) -> dict[str, tuple[Floats, Floats]]:
        """The server's CPU time, low and high, by model."""
        rest = self.connection
        return {
            name: (
                shake + rest + self.query_low - self.less,
                shake + rest + self.query + self.more,
            )
            for name, shake in ((BY_PARTS, self.by_parts), (BY_HANDSHAKE, self.lump))
        }


def first_share(queries: Floats | float, connections: Floats | float) -> Floats:
    """Largest share of the CPU time of queries that the first ones of connections can have."""
    each = queries / np.maximum(connections, _LEAST)
    return np.asarray(np.minimum(1.0, FIRST_MOST / np.maximum(each + FIRST_MOST - 1, _LEAST)))


def present(side: Replicates, sources: ErrorSources, name: str = RECORDING) -> State:
    """A recording as it is; `name` is that of its units among the sources."""
    costs = costs_of(side.arm, side.weights)
    time_of = {
        kind.name: sources.rows_of(name, costs.steps_ns[:, index])
        for index, kind in enumerate(COLUMNS)
    }
    kinds = {kind.name: kind for kind in COLUMNS if kind.basis in ("exact", "sampled")}
    parts = {name: time_of[name] for name, kind in kinds.items() if kind.group == "handshake"}
    query = time_of["command"] + time_of["tde"] + time_of["probe"]
    query = query + np.sum(
        [time_of[name] for name, kind in kinds.items() if kind.group == "record"], axis=0
    )
    counts: Counter[str] = Counter()
    for row in side.tables.phase_counts:
        if row.window_id in side.rows:
            counts[row.phase] += row.ended_count
    operations = float(side.operations[0])
    return State(
        sources=sources,
        parts=parts,
        lump=np.sum(list(parts.values()), axis=0),
        connection=time_of["connect"] + time_of["disconnect"],
        query=query,
        query_low=query,
        client=time_of["client_cpu"],
        client_low=time_of["client_cpu"],
        connections=counts["connect"] / operations,
        # The request to close a connection is a command, too.
        queries=max(0, counts["command"] - counts["disconnect"]) / operations,
        handshakes=counts["handshake"] / operations,
    )


def draw(sources: Draws, cost: Cost) -> Floats:
    """A micro-cost with its uncertainty."""
    return sources.draw(cost.value_ns, cost.low_ns, cost.high_ns)


def cold_factor(state: State, key: KeyCosts) -> Floats:
    """The ratio between a signature in the server and in a loop."""
    per_handshake = state.parts["handshake_sign"] / np.maximum(state.handshakes, 1e-9)
    return np.clip(per_handshake / key.sign.value_ns, *COLD)


def cold_rest(state: State, key: KeyCosts) -> Floats:
    """The ratio between the rest of a handshake in the server and in a loop.

    Looking up algorithms and allocating memory depend more on caches than a signature does.
    """
    assert key.full is not None
    rest = state.by_parts - state.parts["handshake_sign"] - state.parts[KERNEL]
    looped = max(key.full.server.value_ns - key.sign.value_ns, 1.0)
    return np.clip(rest / np.maximum(state.handshakes, 1e-9) / looped, *COLD)


def _rest(draws: Draws, costs: MicroCosts, key: KeyCosts, which: str) -> Floats:
    """A handshake in memory at the server, less its public-key operations."""
    shake = key.full if which == "full" else key.resumed
    assert shake is not None
    total = draw(draws, shake.server)
    exchanges = which == "full" or costs.tls_version == "TLSv1.3"
    if exchanges:
        total = total - costs.keygen.value_ns - costs.derive.value_ns
    if which == "full":
        total = total - key.sign.value_ns - 2 * costs.mutual * key.verify.value_ns
    return np.maximum(total, 0.05 * shake.server.value_ns)


def with_key(state: State, costs: MicroCosts, old: KeyCosts, new: KeyCosts) -> State:
    """Another kind of key for the server, and with it for the CA and the clients."""
    draws = state.sources
    assert old.full is not None
    assert new.full is not None
    assert old.client_setup is not None
    assert new.client_setup is not None
    rest = _rest(draws, costs, new, "full") / _rest(draws, costs, old, "full")
    scales: dict[str, Floats | float] = dict.fromkeys(state.parts, rest)
    scales |= {
        "handshake_sign": draw(draws, new.sign) / draw(draws, old.sign),
        "handshake_verify": draw(draws, new.verify) / draw(draws, old.verify),
        "handshake_keygen": 1.0,
        "handshake_derive": 1.0,
        KERNEL: 1.0,
    }
    cold = cold_factor(state, old)
    change = draw(draws, new.full.server) - draw(draws, old.full.server)
    client = draw(draws, new.full.client) + draw(draws, new.client_setup)
    client = client - draw(draws, old.full.client) - draw(draws, old.client_setup)
    client = state.client + client * state.handshakes * cold
    parts = {name: values * scales[name] for name, values in state.parts.items()}
    signed = parts["handshake_sign"]
    rest_ns = np.sum(list(parts.values()), axis=0) - signed
    server = rest_ns + state.reached
    whole = np.maximum(rest_ns + state.connection + state.query, _LEAST)
    low, high = _warmth(new.sign.value_ns - old.sign.value_ns)
    warm = np.maximum(0.0, client - signed) * server / whole
    return replace(
        state,
        parts=parts,
        lump=np.maximum(0.0, state.lump + change * cold * state.handshakes),
        client=np.maximum(0.0, client + high * warm),
        client_low=np.maximum(0.0, client + low * warm),
        less=-low * server,
        more=high * server,
    )


def _warmth(change_ns: float) -> tuple[float, float]:
    """Share by which other work of a connection changes (from, to) as a signature gets longer."""
    first, second = (
        math.copysign(min(WARMTH_MOST, each * abs(change_ns) / 1e6), change_ns) for each in WARMTH
    )
    return min(first, second), max(first, second)


def with_resumption(state: State, costs: MicroCosts, key: KeyCosts, share: float) -> State:
    """A share of the handshakes resumed: no signature, no certificate."""
    draws = state.sources
    assert key.full is not None
    assert key.resumed is not None
    cold, rest_cold = cold_factor(state, key), cold_rest(state, key)
    per = np.maximum(state.handshakes, 1e-9)
    # A resumed handshake has no chain checks, so they are excluded from what is scaled.
    certificates = state.parts["handshake_certificate"] / per / cold
    full = np.maximum(_rest(draws, costs, key, "full") - certificates, 1.0)
    rest = np.minimum(1.0, _rest(draws, costs, key, "resumed") / full)
    exchange = 1.0 if costs.tls_version == "TLSv1.3" else 0.0
    scales: dict[str, Floats | float] = dict.fromkeys(state.parts, rest)
    scales |= dict.fromkeys(("handshake_sign", "handshake_verify", "handshake_certificate"), 0.0)
    scales |= {"handshake_keygen": exchange, "handshake_derive": exchange, KERNEL: 1.0}
    sign = draw(draws, key.sign)
    saved = sign * cold
    saved += (draw(draws, key.full.server) - draw(draws, key.resumed.server) - sign) * rest_cold
    client = (
        (draw(draws, key.full.client) - draw(draws, key.resumed.client)) * share * state.handshakes
    )
    ends = client * cold, client * rest_cold
    kept = RESUMED["certificate"] * costs.mutual * state.parts["handshake_certificate"]
    rest_less = RESUMED["rest"] * state.reached
    return replace(
        state,
        parts={
            name: values * (1 - share + share * scales[name])
            for name, values in state.parts.items()
        },
        lump=np.maximum(0.0, state.lump - saved * share * state.handshakes),
        client=np.maximum(0.0, state.client - np.minimum(*ends)),
        client_low=np.maximum(0.0, state.client_low - np.maximum(*ends)),
        less=state.less + share * (rest_less + RESUMED["kernel"] * state.parts[KERNEL]),
        more=state.more + share * kept,
    )


def with_pool(
    state: State,
    connections: Floats | float,
    queries: Floats | float,
    wished: int,
    warm: State | None,
) -> State:
    """Per query, on connections with `wished` queries each; both counts are per present operation.

    The present queries of a connection stay, and further queries cost the same as in `warm`, or
    slightly more. Without `warm` they cost between a tenth of a first query and the same.
    """
    each = queries / connections
    asked = state.query / connections
    further = np.maximum(0.0, wished - each)
    kept = np.minimum(1.0, wished / each)
    if warm is None:
        ends = asked / (each + FIRST_MOST - 1), asked / each
    else:
        ends = warm.query, warm.query * PARTED
    scale = 1 / (connections * wished)
    client = np.zeros_like(asked)
    return replace(
        state,
        parts={name: values * scale for name, values in state.parts.items()},
        lump=state.lump * scale,
        connection=state.connection * scale,
        query_low=(asked * kept + further * ends[0]) / wished,
        query=(asked * kept + further * ends[1]) / wished,
        client=client,
        client_low=client,
        connections=state.connections * scale,
        queries=1.0,
        handshakes=state.handshakes * scale,
        less=state.less * scale,
        more=state.more * scale + (PARTED - 1) * state.connection * scale,
    )


def with_library(state: State, other: State) -> State:
    """The handshake of another recording, whose server has the other library."""
    scale = state.handshakes / np.maximum(other.handshakes, 1e-9)
    parts = {name: values * scale for name, values in other.parts.items()}
    return replace(state, parts=parts, lump=other.lump * scale)
