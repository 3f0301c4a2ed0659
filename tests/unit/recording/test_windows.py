# SPDX-License-Identifier: GPL-2.0-only
"""Windows cut out of growing totals: they join without gaps and lose nothing.

The engine is a stand-in here, because the point is the arithmetic between two looks at its
memory; tests/truth and tests/kernel use the real one.
"""

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import PHASES, STATES
from tlstax.collectors.process.symbols import Symbolizer
from tlstax.collectors.recording import windows
from tlstax.collectors.recording.handshake_rows import NO_BITS
from tlstax.collectors.recording.programs.ledger_layout import (
    LATENCY_BUCKETS,
    PHASE_CELLS,
    PHASE_INDEX,
    STATE_CELLS,
    STATE_INDEX,
    HandshakeRecord,
    OffcpuKey,
    OffcpuValue,
    SampleKey,
    bucket_bounds,
)
from tlstax.collectors.recording.programs.views import ProcessReading, SlotView
from tlstax.collectors.recording.stack_store import StackStore
from tlstax.collectors.recording.thread_roles import ThreadRoles
from tlstax.collectors.recording.tls_names import cipher_name, version_name
from tlstax.tests.unit.recording.test_stack_store import Places

KNOWN = 7
CELLS = PHASE_CELLS * STATE_CELLS


def slot(cells: dict[tuple[str, str], int], last_ns: int, owner: str, state: str) -> SlotView:
    flat = [0] * CELLS
    for (phase, name), value in cells.items():
        flat[PHASE_INDEX[phase] * STATE_CELLS + STATE_INDEX[name]] = value
    return SlotView(
        index=0,
        tid=7,
        exited=False,
        paused=False,
        role=1,
        comm=b"conn",
        thread_start_ns=0,
        first_ns=0,
        last_ns=last_ns,
        state=STATE_INDEX[state],
        owner=PHASE_INDEX[owner],
        uncertain_ns=0,
        steal_ns=0,
        handed_ns=0,
        healed_count=0,
        cells=tuple(flat),
        counts=(0,) * PHASE_CELLS,
    )


def wait_on(stack: int) -> OffcpuKey:
    return OffcpuKey(user_stack=stack, kernel_stack=-1)


class NoStacks:
    """What WindowCutter asks of a StackStore where there is no stack."""

    forgotten_count = 0


class StillEngine:
    """What WindowCutter asks of an engine, answered from a list of looks."""

    pid = 1
    has_counts = True

    def __init__(self) -> None:
        self.views: list[SlotView] = []
        self.taken: list[Any] = []
        self.ended: list[Any] = []
        self.records: list[HandshakeRecord] = []

    network_bits = NO_BITS

    def read(self) -> ProcessReading:
        return ProcessReading(None, 0, 0, 0, False, ())

    def slots(self) -> list[SlotView]:
        return self.views

    def handshake_records(self) -> list[HandshakeRecord]:
        return self.records

    def samples(self) -> list[Any]:
        return self.taken

    def waits(self) -> list[Any]:
        return self.ended

    def executed_ns(self) -> int:
        return 0

    def span_of(self, view: SlotView) -> int:
        del view
        return 0

    def recycle(self, index: int) -> None:
        self.views = [view for view in self.views if view.index != index]

    def loss_counts(self) -> dict[str, int]:
        return {"healed": 0}

    def latency_counts(self) -> dict[int, tuple[int, ...]]:
        return {}


class StillClocks:
    """What WindowCutter asks of the recorder's clocks."""

    def __init__(self, time_ns: int = 0) -> None:
        self.time_ns = time_ns

    def now_ns(self) -> int:
        return self.time_ns

    def host_times(self) -> tuple[int, int, int, int, int]:
        return (0, 0, 0, 0, 0)

    def own_cpu_ns(self) -> int:
        return 0

    def resident_bytes(self) -> int:
        return 0

    def target_counters(self, pid: int) -> None:
        """There are none."""


def cutter_of(
    engine: StillEngine, stacks: object, clocks: StillClocks | None = None
) -> windows.WindowCutter:
    """A cutter of stand-ins."""
    clocks = clocks or StillClocks()
    return windows.WindowCutter(engine, stacks, clocks=clocks)  # type: ignore[arg-type]


def cut_at(looks: list[tuple[int, SlotView]]) -> list[list[schema.Ledger]]:
    """The ledger rows of each window; the first look is the start."""
    engine, clocks = StillEngine(), StillClocks(looks[0][0])
    engine.views = [looks[0][1]]
    cutter = cutter_of(engine, NoStacks(), clocks)
    result = []
    for clocks.time_ns, view in looks[1:]:
        engine.views = [view]
        rows, _ = cutter.cut(None)
        result.append([row for row in rows if isinstance(row, schema.Ledger)])
    return result


def test_operations_are_unknown_where_they_were_not_seen_from_the_beginning() -> None:
    """Level signature sees only one, and a handshake may begin there and end in another one."""
    engine, clocks = StillEngine(), StillClocks()
    cutter = cutter_of(engine, NoStacks(), clocks)
    found = []
    for level in ("full", "signature", "full", "handshake", "sample", "connection"):
        begin_ns, clocks.time_ns = clocks.time_ns, clocks.time_ns + 100
        engine.records = [
            HandshakeRecord(start_ns=begin_ns + shift, phase_ns=(9, 1, 2, 3, 4, 5), cipher_id=-1)
            for shift in (-10, 10)
        ]
        rows, _ = cutter.cut(None, None, level)
        shakes = [row for row in rows if isinstance(row, schema.Handshake)]
        assert {row.sign_ns for row in shakes} <= {1}
        found.append(
            [(row.keygen_ns, row.derive_ns, row.verify_ns, row.certificate_ns) for row in shakes]
        )
    known, unknown = (2, 3, 4, 5), (-1, -1, -1, -1)
    assert found == [
        [known, known], [unknown, unknown], [unknown, known], [known, known], [], [unknown, known],
    ]  # fmt: skip


def test_the_open_interval_belongs_to_where_the_thread_is() -> None:
    start = slot({}, 100, "idle", "blocked_network")
    (first, second) = cut_at([(100, start), (1100, start), (2100, start)])
    for rows in (first, second):
        assert [(r.phase, r.state, r.time_ns) for r in rows] == [("idle", "blocked_network", 1000)]


def test_a_charge_after_the_end_waits_for_the_next_window() -> None:
    start = slot({}, 0, "command", "on_cpu")
    # Between the clock and the look at memory the thread was charged 50 ns past the end.
    late = slot({("command", "on_cpu"): 1050}, 1050, "record_write", "on_cpu")
    after = slot(
        {("command", "on_cpu"): 1050, ("record_write", "on_cpu"): 950}, 2000, "idle", "on_cpu"
    )
    first, second = cut_at([(0, start), (1000, late), (2000, after)])
    assert sum(row.time_ns for row in first) == 1000
    assert sum(row.time_ns for row in second) == 1000
    assert {row.phase: row.time_ns for row in second} == {"command": 50, "record_write": 950}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PHASES), st.sampled_from(STATES), st.integers(1, 10**9), st.booleans()
        ),
        min_size=1,
        max_size=30,
    )
)
def test_windows_add_up_to_the_whole(steps: list[tuple[str, str, int, bool]]) -> None:
    """However time is spent and wherever windows end, their sums are the elapsed time."""
    cells: dict[tuple[str, str], int] = {}
    time_ns = 0
    looks = [(0, slot({}, 0, "idle", "on_cpu"))]
    owner, state = "idle", "on_cpu"
    for phase, name, spent, charged in steps:
        time_ns += spent
        if charged:
            last = looks[-1][1].last_ns if not cells else max(0, sum(cells.values()))
            cells[owner, state] = cells.get((owner, state), 0) + time_ns - last
            owner, state = phase, name
        looks.append((time_ns, slot(cells, sum(cells.values()), owner, state)))
    rows = [row for window in cut_at(looks) for row in window]
    assert sum(row.time_ns for row in rows) == time_ns


def test_a_wait_that_lost_its_stack_is_counted() -> None:
    """A wait of an hour outlasts the stacks that are remembered: the report must say so."""
    engine = StillEngine()
    store = StackStore(lambda stack: (1, 2) if stack == KNOWN else (), cast(Symbolizer, Places()))
    cutter = cutter_of(engine, store)
    engine.ended = [(wait_on(KNOWN), OffcpuValue(5, 50)), (wait_on(KNOWN + 1), OffcpuValue(3, 30))]
    engine.taken = [(SampleKey(user_stack=KNOWN + 2, kernel_stack=-1, user_ip=4), 7)]
    rows, totals = cutter.cut(None)
    assert totals.losses == {"stack_forgotten": 3 + 7}
    engine.ended, engine.taken = [(wait_on(KNOWN), OffcpuValue(5, 50))], []
    assert cutter.cut(None)[1].losses == {}
    stacks = [row.user_stack_id for row in rows if isinstance(row, schema.OffcpuStack)]
    assert [stack is None for stack in stacks] == [False, True]


@pytest.mark.parametrize("level", ["full", "handshake"])
def test_a_thread_that_ended_is_forgotten_at_each_level(level: str) -> None:
    """Servers end threads for weeks, and a budget keeps the ledger now and then only."""
    engine, clocks = StillEngine(), StillClocks()
    roles = ThreadRoles(engine, ())  # type: ignore[arg-type]
    view = replace(slot({}, 100, "idle", "on_cpu"), role=0)
    engine.views = [view]
    cutter = windows.WindowCutter(engine, NoStacks(), roles, clocks=clocks)  # type: ignore[arg-type]
    cutter.cut(None, 1000)
    assert len(roles._known) == 1
    engine.views = [replace(view, exited=True)]
    cutter.cut(None, 2000, level)
    assert not engine.views
    assert not roles._known


def test_buckets_touch_and_stay_narrow() -> None:
    previous = 0
    for bucket in range(LATENCY_BUCKETS):
        low, high = bucket_bounds(bucket)
        assert low == previous
        previous = high
        assert high - low <= max(1, low / 16)  # the middle is at most 3.1 % off


def test_names_on_the_wire() -> None:
    assert version_name(0x0304) == "TLSv1.3"
    assert version_name(-1) == "unknown"
    assert cipher_name(0x03001302) == "TLS_AES_256_GCM_SHA384"
    assert cipher_name(0x0300C030) == "ECDHE-RSA-AES256-GCM-SHA384"
    assert cipher_name(-1) == "unknown"
