# SPDX-License-Identifier: GPL-2.0-only
"""Streams: whatever was cut, damaged or made up is refused, or read up to there."""

import io
import random
from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.schema import (
    Effect,
    Frame,
    Ledger,
    Loss,
    Meta,
    Primitive,
    PrimitiveCalls,
    PrimitiveTime,
    Probe,
    Window,
)
from tlstax.collectors.capture.vocabulary import PHASES, ROLES, STATES
from tlstax.collectors.recording.programs.ledger_layout import OUTCOMES, HandshakeRecord
from tlstax.collectors.recording.stream import document
from tlstax.collectors.recording.stream.frames import VERSION, Reading, read_frames
from tlstax.collectors.recording.stream.replay import UNKNOWN
from tlstax.collectors.recording.stream_recording import import_stream
from tlstax.tests.unit.recording.plan_mutants import plan_mutants
from tlstax.tests.unit.recording.streams import (
    COMMAND_ON_CPU,
    KNOWN,
    SECOND,
    change,
    frame,
    slot,
    stream,
    struct,
    window,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def whole(parts: list[tuple[str, bytes]]) -> bytes:
    return stream(parts)


def test_a_stream_becomes_a_capture(whole: bytes, tmp_path: Path) -> None:
    capture = tmp_path / "a.tlstax"
    text = import_stream(io.BytesIO(whole), "x.stream", capture, overwrite=False)
    assert text == "2 windows of process 4711"
    with CaptureReader.open(capture) as reader:
        windows = list(reader.rows(Window))
        ledger = list(reader.rows(Ledger))
        meta = {row.key: row.value for row in reader.rows(Meta)}
        symbols = {row.symbol for row in reader.rows(Frame)}
    assert [(row.start_ns, row.end_ns) for row in windows] == [
        (SECOND, 2 * SECOND),
        (2 * SECOND, 3 * SECOND),
    ]
    assert [(row.phase, row.state, row.time_ns) for row in ledger] == [
        ("command", "on_cpu", SECOND)
    ] * 2
    assert meta["target_ending"] == "it was running"
    assert "do_work" in symbols


@pytest.mark.parametrize(
    ("number", "source", "told"),
    [
        (0, "none", {}),
        (1, "tracepoints", {"on_receive": ("tp_btf", 0), "on_send": ("tp_btf", 0)}),
        (2, "functions", {"inet_received": ("fexit", 4), "unix_sent": ("fexit", 9)}),
    ],
)
def test_what_told_of_sockets_is_in_the_capture(
    parts: list[tuple[str, bytes]], tmp_path: Path, number: int, source: str,
    told: dict[str, tuple[str, int]],
) -> None:  # fmt: skip
    start = KNOWN.layout("start").from_buffer_copy(parts[0][1])
    start.socket_events = number
    at = next(n for n, (kind, _) in enumerate(parts) if kind == "WINDOW")
    programs = [
        ("PROGRAM", struct("program", name=name, run_ns=1000, run_count=count))
        for name, count in ((b"inet_received", 4), (b"unix_sent", 9))
        if source == "functions"
    ]
    content = stream([("START", bytes(start)), *parts[1:at], *programs, *parts[at:]])
    capture = tmp_path / "a.tlstax"
    import_stream(io.BytesIO(content), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        meta = {row.key: row.value for row in reader.rows(Meta)}
        probes = [row for row in reader.rows(Probe) if row.boundary == "socket"]
    assert meta["socket_events"] == source
    assert {row.function: (row.kind, row.hits_count) for row in probes} == told


def test_what_an_ended_process_used_is_not_known(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """Its clock is gone with it: 0 would be a figure that nobody measured."""
    capture = tmp_path / "a.tlstax"
    made = [
        window(2, 3 * SECOND, process_cpu_ns=UNKNOWN) if part == window(2, 3 * SECOND) else part
        for part in parts
    ]
    import_stream(io.BytesIO(stream(made)), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        assert [row.target_cpu_ns for row in reader.rows(Effect)] == [SECOND, None]


def test_functions_have_what_was_counted_in_a_window(whole: bytes, tmp_path: Path) -> None:
    capture = tmp_path / "a.tlstax"
    import_stream(io.BytesIO(whole), "x.stream", capture, overwrite=False)
    with CaptureReader.open(capture) as reader:
        first = next(iter(reader.rows(Primitive)))
        counted = list(reader.rows(PrimitiveCalls))
        times = list(reader.rows(PrimitiveTime))
        losses = [row for row in reader.rows(Loss) if row.kind.startswith("function_")]
        meta = {row.key: row.value for row in reader.rows(Meta)}
        hits = [row.hits_count for row in reader.rows(Probe) if row.boundary == first.name]
    assert (first.pair_ns, first.inside_ns) == (900, 200)
    (row,) = counted
    assert (row.window_id, row.phase, row.low_bytes, row.high_bytes) == (2, "command", 256, 511)
    assert (row.call_count, row.size_bytes, row.time_ns) == (5, 1500, 2500)
    assert [(row.window_id, row.call_count) for row in times] == [(2, 4)]
    assert [(row.window_id, row.lost_count) for row in losses] == [(2, 3)]
    assert meta["functions"] == "cipher"
    assert sum(hits) == 24, "each call is a hit of its entry and of its exit"


def test_a_stream_that_is_cut_has_the_windows_up_to_there(
    parts: list[tuple[str, bytes]], whole: bytes, tmp_path: Path
) -> None:
    """At the end of every frame and inside of them, behind the plan, which alone is long."""
    capture = tmp_path / "a.tlstax"
    ends = [len(stream(parts[: index + 1])) for index in range(len(parts))]
    kinds = [kind for kind, _ in parts]
    first_totals = ends[kinds.index("WINDOW")]
    for cut in {*range(ends[kinds.index("SLOT") - 1], len(whole), 61), *ends}:
        capture.unlink(missing_ok=True)
        done = sum(
            1 for kind, end in zip(kinds, ends, strict=True) if kind == "WINDOW" and end <= cut
        )
        if cut < first_totals:
            with pytest.raises(TlstaxError, match="cannot import"):
                import_stream(io.BytesIO(whole[:cut]), "x.stream", capture, overwrite=False)
            assert not capture.exists()
            continue
        text = import_stream(io.BytesIO(whole[:cut]), "x.stream", capture, overwrite=False)
        assert text.startswith(f"{done - 1} windows")
        assert ("has no end" in text) == (cut < len(whole))


def test_a_stream_with_a_made_up_plan_is_one_error_or_read(
    parts: list[tuple[str, bytes]], plan_text: str, tmp_path: Path
) -> None:
    """What makes rows of a plan meets what reading it does not refuse."""
    before, after = parts[:1], [part for part in parts[1:] if part[0] != "PLAN"]
    capture = tmp_path / "a.tlstax"
    for what, text in plan_mutants(plan_text, seed=5, count=40):
        raw = text.encode()
        pieces = [("PLAN", raw[at : at + 65536]) for at in range(0, len(raw), 65536)]
        made = io.BytesIO(stream([*before, *pieces, *after]))
        try:
            import_stream(made, "x.stream", capture, overwrite=True)
        except TlstaxError as error:
            if error.exit_code != ExitCode.CAPTURE:
                pytest.fail(f"{what}: {error}")
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"{what}: {type(error).__name__}: {error}")


def test_every_flipped_bit_is_noticed(whole: bytes) -> None:
    chance = random.Random(3)
    reading = Reading()
    all_frames = list(read_frames(io.BytesIO(whole), reading))
    assert reading.why_ended == ""
    for _ in range(120):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        reading = Reading()
        found = list(read_frames(io.BytesIO(bytes(flipped)), reading))
        assert reading.why_ended != ""
        assert found == all_frames[: len(found)]


def test_a_missing_frame_is_noticed(parts: list[tuple[str, bytes]]) -> None:
    frames = [frame(number, *part) for number, part in enumerate(parts)]
    del frames[4]
    reading = Reading()
    found = list(read_frames(io.BytesIO(b"".join(frames)), reading))
    assert reading.why_ended == "a frame is missing"
    assert len(found) == 4


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("SLOT", slot(7, {999: 1}, SECOND)),
        ("SLOT", slot(7, {len(PHASES) * 8: 1}, SECOND)),
        ("SLOT", slot(7, {len(STATES): 1}, SECOND)),
        ("SLOT", slot(7, {128 + len(PHASES): 1}, SECOND)),
        ("SLOT", slot(7, {}, SECOND, owner=77)),
        ("SLOT", slot(7, {}, SECOND, state=len(STATES))),
        ("SLOT", slot(7, {}, SECOND, role=len(ROLES))),
        ("SLOT", slot(7, {1: 1}, SECOND)[:-4]),
        ("CHANGE", change({}, SECOND, index=1)),
        ("CHANGE", change({COMMAND_ON_CPU: 1}, SECOND, cells_count=0)),
        ("CHANGE", change({COMMAND_ON_CPU: 1}, SECOND)[:-4]),
        ("CHANGE", change({len(STATES): 1}, SECOND)),
        ("CHANGE", change({191: 1}, SECOND)),
        ("CHANGE", change({}, SECOND, owner=77)),
        ("CHANGE", change({}, SECOND, state=len(STATES))),
        ("CPU", struct("cpu", number=1 << 40)),
        ("LATENCY", struct("latency", phase=len(PHASES), bucket=0, count=1)),
        ("SAMPLE", struct("sample", phase=len(PHASES), user_stack=-1, kernel_stack=-1, count=1)),
        ("WAIT", struct("wait", phase=len(PHASES), user_stack=-1, kernel_stack=-1, count=1)),
        ("WAIT", struct("wait", state=len(STATES), user_stack=-1, kernel_stack=-1, count=1)),
        ("LATENCY", struct("latency", phase=1, bucket=640, count=1)),
        ("STACK", struct("stack", id=1, depth=1 << 30)),
        ("HANDSHAKE", b"\0" * 8),
        ("HANDSHAKE", bytes(HandshakeRecord(outcome=len(OUTCOMES)))),
        ("FUNCTION", struct("function", function=99)),
        ("FUNCTION_SUM", struct("function_sum", function=0, phase=len(PHASES))),
        ("FUNCTION_SUM", struct("function_sum", function=0, size_class=33)),
        ("FUNCTION_TIME", struct("function_time", function=0, bucket=640)),
        ("FUNCTION_LOSS", b"\0" * 8),
        ("START", struct("start", pid=1)),
        ("WINDOW", b"\0" * 8),
    ],
)
def test_what_no_recorder_writes_is_refused(
    parts: list[tuple[str, bytes]], kind: str, content: bytes, tmp_path: Path
) -> None:
    capture = tmp_path / "a.tlstax"
    first = next(index for index, part in enumerate(parts) if part[0] == "WINDOW")
    planted = [*parts[: first + 1], (kind, content), *parts[first + 1 :]]
    with pytest.raises(TlstaxError, match="no recorder writes"):
        import_stream(io.BytesIO(stream(planted)), "x.stream", capture, overwrite=False)
    assert not capture.exists()


def test_what_counts_cpus_is_bounded_and_first(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    """A number of CPUs is a loop bound."""
    start = KNOWN.layout("start").from_buffer_copy(parts[0][1])
    start.cpus_count = (1 << 32) - 1
    early = ("CPU", struct("cpu", number=0))
    for made in ([(parts[0][0], bytes(start)), *parts[1:]], [early, *parts]):
        with pytest.raises(TlstaxError, match="no recorder writes"):
            import_stream(io.BytesIO(stream(made)), "x", tmp_path / "a.tlstax", overwrite=False)


def test_a_number_that_no_capture_holds_is_refused(
    parts: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    capture = tmp_path / "a.tlstax"
    first = next(index for index, part in enumerate(parts) if part[0] == "WINDOW")
    planted = ("HITS", struct("hits", site=0, count=(1 << 64) - 1))
    made = stream([*parts[: first + 1], planted, *parts[first + 1 :]])
    with pytest.raises(TlstaxError, match="number above 2") as raised:
        import_stream(io.BytesIO(made), "x.stream", capture, overwrite=False)
    assert raised.value.exit_code == ExitCode.CAPTURE
    assert not capture.exists()


def test_another_version_is_refused_by_number(whole: bytes, tmp_path: Path) -> None:
    other = whole[:6] + (99).to_bytes(2, "little") + whole[8:]
    with pytest.raises(TlstaxError, match=f"version 99, and this tlstax reads {VERSION}"):
        import_stream(io.BytesIO(other), "x.stream", tmp_path / "a.tlstax", overwrite=False)


def test_the_page_is_that_of_the_header() -> None:
    page = (ROOT / "docs/stream.md").read_text(encoding="utf-8")
    assert page == document.stream_markdown()
