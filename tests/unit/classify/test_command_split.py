# SPDX-License-Identifier: GPL-2.0-only
"""Commands of level `flow`: split where calibration stretches suffice, else refused in words."""

import dataclasses

import pytest

from tlstax.analysis.classify.command_split import PARTS, part_of_sample, split
from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.taxonomy import Sample
from tlstax.analysis.model.command_split import CommandSplit
from tlstax.analysis.report.markdown.report import _split as markdown
from tlstax.analysis.report.terminal import command_split as terminal
from tlstax.analysis.rows.tables import Tables, groups
from tlstax.analysis.statistics.calibrated import LEAST_STRETCHES
from tlstax.collectors.capture.schema import (
    CommandPart,
    Frame,
    Ledger,
    PhaseCount,
    SampleStack,
    Stack,
    Window,
)

MS = 1_000_000
READ_CALL, RECEIVE, SEND, WRITE_CALL = 0, 45, 44, 1
SHARES = {"record_read": 0.2, "command": 0.5, "record_write": 0.3}
EVERY = 4
"""One window in so many is a stretch."""


def frame(number: int, symbol: str) -> Frame:
    return Frame(number, "/usr/sbin/mariadbd", "", number, symbol, 0, "dynsym", "")


FRAMES = [
    frame(1, "SSL_read"),
    frame(2, "SSL_write"),
    frame(3, "JOIN::exec()"),
    frame(4, "dispatch_command(THD*)"),
]
STACKS = [Stack(1, "1 4"), Stack(2, "2 4"), Stack(3, "3 4")]
STACK_OF = {"record_read": 1, "record_write": 2, "command": 3}


def recording(stretch_count: int, seen: float = 1.0, late: float = 1.0) -> Tables:
    """Four windows for each stretch. Samples see the share `seen` of reading and answering.

    In windows that are no stretches, both take `late` times as long.
    """
    found: list[SampleStack] = []
    made = Tables(stacks=STACKS, frames=FRAMES, samples=found)
    for number in range(1, EVERY * stretch_count + 1):
        is_stretch = number % EVERY == 0
        factor = 1.0 if is_stretch else late
        load = 1 + number % 3
        parts = {part: load * 100 * MS * SHARES[part] for part in PARTS}
        for part in ("record_read", "record_write"):
            parts[part] *= factor
        start_ns = number * 1000 * MS
        made.windows.append(Window(number, None, start_ns, start_ns + 200 * MS, 1, "flow"))
        made.ledger.append(Ledger(number, 1, "command", "on_cpu", round(sum(parts.values()))))
        made.ledger.append(Ledger(number, 1, "command", "runnable", 7 * MS))
        made.phase_counts.append(PhaseCount(number, "command", load * 1000))
        hidden = 0.0
        for part in ("record_read", "record_write", "command"):
            share = 1.0 if part == "command" else seen
            samples = (parts[part] * share + (hidden if part == "command" else 0)) / MS
            hidden += parts[part] * (1 - share)
            row = SampleStack(number, "command", -1, STACK_OF[part], None, round(samples))
            found.append(row)
        if is_stretch:
            made.command_parts += [
                CommandPart(number, part, round(time_ns)) for part, time_ns in parts.items()
            ]
    return made


def split_of(tables: Tables) -> CommandSplit:
    found = split(tables, groups(tables)[0], Stacks(tables.frames, tables.stacks))
    assert found is not None
    return found


def test_the_parts_are_found_and_add_up() -> None:
    found = split_of(recording(12))
    assert found.refusal == ""
    assert [line.phase for line in found.lines] == list(PARTS)
    assert sum(line.time.value_ns for line in found.lines) == pytest.approx(found.on_cpu_ns)
    assert found.stretch_count == 12
    assert found.stretch_ns == 12 * 200 * MS
    for line in found.lines:
        assert line.share == pytest.approx(SHARES[line.phase], rel=0.001)
        assert line.exact_share == pytest.approx(SHARES[line.phase], rel=0.001)
        assert line.time.low_ns is not None
        assert line.time.high_ns is not None
        assert line.time.low_ns <= line.time.value_ns <= line.time.high_ns
        assert line.per_command_ns == pytest.approx(100_000 * SHARES[line.phase], rel=0.001)


def test_stretches_correct_what_samples_do_not_see() -> None:
    found = split_of(recording(12, seen=0.6))
    for line in found.lines:
        assert line.share == pytest.approx(SHARES[line.phase], rel=0.001)
    read = found.lines[0]
    assert read.sampled_share == pytest.approx(0.6 * SHARES["record_read"], rel=0.01)
    assert read.exact_share == pytest.approx(SHARES["record_read"], rel=0.001)


def test_samples_correct_what_the_stretches_missed() -> None:
    """Outside of the stretches, reading and answering take three times as long."""
    found = split_of(recording(30, late=3.0))
    assert found.lines[0].exact_share == pytest.approx(0.2, rel=0.001)
    true_ns = sum(
        (1 + number % 3) * 100 * MS * 0.2 * (1.0 if number % EVERY == 0 else 3.0)
        for number in range(1, EVERY * 30 + 1)
    )
    assert found.lines[0].time.value_ns == pytest.approx(true_ns, rel=0.05)


def test_without_samples_the_stretches_alone_tell() -> None:
    found = split_of(dataclasses.replace(recording(12), samples=[]))
    assert found.sample_count == 0
    assert found.lines[0].share == pytest.approx(0.2, rel=0.001)
    assert found.lines[0].sampled_share is None


@pytest.mark.parametrize(
    ("stretch_count", "words"),
    [(0, "has no calibration stretch"), (LEAST_STRETCHES - 1, "needs 10. Record for longer")],
)
def test_too_few_stretches_are_refused_in_words(stretch_count: int, words: str) -> None:
    tables = recording(max(1, stretch_count))
    if not stretch_count:
        tables.command_parts.clear()
    found = split_of(tables)
    assert words in found.refusal
    assert found.lines == []
    said = "\n".join(markdown(to_json_of(found)))
    assert words in said.replace("\n", " ")
    assert "≈" not in said


def test_other_levels_have_no_split() -> None:
    tables = recording(12)
    tables.windows = [window._replace(level="full") for window in tables.windows]
    assert split(tables, groups(tables)[0], Stacks(FRAMES, STACKS)) is None


def test_estimates_are_marked_and_stand_beside_exact_figures() -> None:
    lines = list(markdown(to_json_of(split_of(recording(12, seen=0.6)))))
    rows = [line for line in lines if line.startswith(("| reading", "| executing", "| answering"))]
    assert len(rows) == 3
    assert all(row.count("≈") == 2 for row in rows)
    assert "20.0 %" in rows[0], "exact, in the stretches"
    assert "12.0 %" in rows[0], "by samples alone"
    assert terminal.render(to_json_of(split_of(recording(12))), 100)


def to_json_of(found: CommandSplit) -> dict[str, object]:
    return dataclasses.asdict(found)


@pytest.mark.parametrize(
    ("syscall", "symbols", "part"),
    [
        (RECEIVE, (), "record_read"),
        (SEND, (), "record_write"),
        (READ_CALL, ("read", "BIO_read", "SSL_read"), "record_read"),
        (WRITE_CALL, ("write", "wolfSSL_write"), "record_write"),
        (WRITE_CALL, ("my_write", "MYSQL_BIN_LOG::write"), "command"),
        (-1, ("[libcrypto+0x112dc0]", "SSL_write", "vio_ssl_write"), "record_write"),
        (-1, ("net_real_write", "dispatch_command"), "record_write"),
        (-1, ("my_net_write", "Protocol::write()"), "command"),
        (-1, ("my_net_read_packet_reallen", "do_command"), "record_read"),
        (-1, ("JOIN::exec()",), "command"),
        (-1, (), "command"),
    ],
)
def test_a_sample_belongs_to_a_part(syscall: int, symbols: tuple[str, ...], part: str) -> None:
    user = tuple(frame(number, symbol) for number, symbol in enumerate(symbols))
    assert part_of_sample(Sample("command", syscall, user, ())) == part
