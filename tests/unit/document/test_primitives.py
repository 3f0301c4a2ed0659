# SPDX-License-Identifier: GPL-2.0-only
"""Primitives: their definitions, the rule that a time must be worth its probes, the report."""

from pathlib import Path

import pytest

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.document import explain, primitives
from tlstax.analysis.document.primitives import COUNTED, MEASURED, NOT_MEASURABLE, Sum, timing
from tlstax.analysis.model.report import to_json
from tlstax.analysis.report.html import page as html
from tlstax.analysis.report.terminal import report as terminal
from tlstax.analysis.rows import tables
from tlstax.collectors.capture.schema import (
    Handshake,
    Ledger,
    PhaseCount,
    Primitive,
    PrimitiveCalls,
    PrimitiveTime,
    Thread,
    Window,
)
from tlstax.collectors.capture.vocabulary import FUNCTION_CATEGORY_TERMS
from tlstax.collectors.recording.stream.function_totals import size_bounds
from tlstax.probes.definitions import load_definitions, parse_definition
from tlstax.probes.model import CATEGORIES, Size
from tlstax.probes.primitives import choose, parse_names
from tlstax.tests.refused_definitions import require_refused

GOOD = """
id = "own"
kind = "tls"
name = "Own library"
[detect]
objects = ["libown*"]
symbols = ["own_encrypt"]
version = { text = "Own", pattern = 'Own (\\d+)' }
[[primitive]]
id = "own_record"
category = "cipher"
unit = "record"
functions = ["own_encrypt_record", "own_encrypt"]
bytes = { argument = 3, type = "size_t" }
[[primitive]]
id = "own_block"
category = "cipher"
unit = "block"
functions = ["own_block*"]
bytes = 16
on_request = true
[[primitive]]
id = "own_read"
category = "digest"
unit = "call"
functions = ["own_read"]
bytes = { returned = "int" }
[[primitive]]
id = "own_rsa"
category = "asymmetric"
unit = "call"
functions = ["own_rsa"]
"""
PAIR_NS, INSIDE_NS = 800.0, 300.0


# ---- definitions ----


def test_a_primitive_is_read_as_written() -> None:
    record, block, read, rsa = parse_definition(GOOD.encode(), "own.toml").primitives
    assert [function.pattern for function in record.functions] == [
        "own_encrypt_record",
        "own_encrypt",
    ]
    assert (record.unit, record.size) == ("record", Size("argument", 3, True))
    assert (block.size, block.on_request) == (Size("constant", 16), True)
    assert read.size == Size("returned", 0, False)
    assert rsa.size == Size()
    assert [str(p.size) for p in (record, block, read, rsa)] == [
        "argument 3",
        "16 a call",
        "returned",
        "",
    ]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('category = "cipher"', 'category = "cypher"', "not one of cipher"),
        ('unit = "record"', 'unit = "page"', "not one of record"),
        ('id = "own_record"', 'id = "cipher"', "name of a category"),
        ('id = "own_record"', 'id = "own_block"', "occurs twice"),
        ("argument = 3", "argument = 6", "from 0 to 5"),
        ("argument = 3", "argument = true", "from 0 to 5"),
        ('type = "size_t"', 'type = "long"', "not one of int"),
        (', type = "size_t"', "", "'type' is missing"),
        ("bytes = 16", "bytes = 0", "from 1 to 65535"),
        ("bytes = 16", 'bytes = "16"', "from 1 to 65535"),
        ('bytes = { returned = "int" }', "bytes = {}", "'returned' is missing"),
        ("on_request = true", "on_request = 1", "must be true or false"),
        ('functions = ["own_rsa"]', "functions = []", "not empty"),
        ('functions = ["own_rsa"]', 'functions = ["own_rsa"]\nprice = 1', "unknown key: price"),
    ],
)
def test_what_is_refused(before: str, after: str, reason: str) -> None:
    require_refused(GOOD, before, after, reason)


def test_primitives_are_chosen_by_category_unit_or_id() -> None:
    own = parse_definition(GOOD.encode(), "own.toml")

    def chosen(*names: str) -> list[str]:
        return [primitive.id for primitive in choose([own], names)["own"]]

    assert chosen("cipher", "digest") == ["own_record", "own_read"]
    assert chosen("cipher:record") == ["own_record"]
    assert chosen("cipher:block") == []  # it costs more than it is worth: only by its own name
    assert chosen("own_block", "asymmetric") == ["own_block", "own_rsa"]
    with pytest.raises(TlstaxError, match="'own_blok' cannot be probed") as caught:
        choose([own], ["cipher", "own_blok"])
    assert "ids such as own_block" in caught.value.do
    assert caught.value.exit_code is ExitCode.USAGE


def test_every_library_has_primitives_of_the_main_categories() -> None:
    libraries = {entry.id: entry for entry in load_definitions() if entry.primitives}
    assert {"yassl", "wolfssl", "openssl3", "openssl10"} <= libraries.keys()
    for library in ("yassl", "wolfssl", "openssl3", "openssl10"):
        found = {primitive.category for primitive in libraries[library].primitives}
        assert {"cipher", "digest", "asymmetric", "rng"} <= found


def test_categories_are_those_of_the_capture() -> None:
    assert {term.name: term.meaning for term in FUNCTION_CATEGORY_TERMS} == dict(CATEGORIES)


def test_names_are_separated_by_commas() -> None:
    assert parse_names("cipher, digest,cipher") == ("cipher", "digest")
    for text in ("", "cipher,", ",digest"):
        with pytest.raises(ValueError, match="commas"):
            parse_names(text)


def test_size_classes_are_powers_of_two() -> None:
    assert [size_bounds(n) for n in (0, 1, 2, 5, 15)] == [
        (0, 0),
        (1, 1),
        (2, 3),
        (16, 31),
        (16384, 32767),
    ]


# ---- what is measurable ----


def primitive(why_not_timed: str = "") -> Primitive:
    return Primitive(
        1, "own", "cipher", "record", "own_encrypt", "libown.so", "", "argument 3", INSIDE_NS,
        PAIR_NS, why_not_timed,
    )  # fmt: skip


def calls(count: int, each_ns: int, nested_ns: int = 0, traps_ns: int = 0, own_ns: int = 0) -> Sum:
    """Calls that were all measured to take `each_ns`; the others are per call, too."""
    made = Sum(count, 1000 * count, count, 1000 * count, each_ns * count)
    made.nested_ns, made.traps_ns = nested_ns * count, traps_ns * count
    made.direct_traps_ns = own_ns * count
    made.buckets[each_ns, each_ns + 1] = count
    return made


def test_a_time_is_given_when_the_body_is_longer_than_five_traps() -> None:
    edge_ns = int(INSIDE_NS + 5 * PAIR_NS / 2)
    below, above = (
        timing(primitive(), calls(10, edge_ns - 1)),
        timing(primitive(), calls(10, edge_ns + 1)),
    )
    assert (below.verdict, below.per_call_ns, below.per_byte_ns) == (NOT_MEASURABLE, None, None)
    assert "5 times the cost of one of its probes (400 ns)" in below.reason
    assert above.verdict == MEASURED
    assert above.per_call_ns == edge_ns + 1 - INSIDE_NS
    assert above.per_byte_ns == pytest.approx(above.per_call_ns / 1000)
    assert above.reason == ""


def test_the_probes_inside_are_taken_off_the_caller() -> None:
    # 10 nested pairs: each costs 800 ns, of which its own time holds 300 ns; bodies of 700 ns.
    nested_ns, traps_ns = 10 * (700 + 300), 10 * 800
    measured_ns = 20_000 + 10 * 700 + traps_ns + 300
    found = timing(primitive(), calls(4, measured_ns, nested_ns, traps_ns, 10 * (800 - 300)))
    assert found.per_call_ns == 20_000 + 10 * 700
    assert found.own_per_call_ns == 20_000


def test_a_caller_that_is_mostly_probes_is_not_measurable() -> None:
    found = timing(primitive(), calls(4, 100_000, 60_000, 60_000, 30_000))
    assert found.verdict == NOT_MEASURABLE
    assert "the probes in the functions that it calls" in found.reason


def test_what_was_not_timed_says_why() -> None:
    assert (
        timing(primitive("its exit is stepped"), calls(4, 100_000)).reason == "its exit is stepped"
    )
    assert timing(primitive("its exit is stepped"), calls(4, 100_000)).verdict == COUNTED
    assert timing(primitive(), Sum(call_count=3)).verdict == COUNTED


def mixed(short_count: int, long_count: int, long_ns: int) -> Sum:
    """Short calls that cannot be measured, and long ones."""
    made = calls(short_count, 1_000)
    made.timed_count += long_count
    made.time_ns += long_count * long_ns
    made.buckets[long_ns, long_ns + 1] = long_count
    return made


def test_the_median_decides_and_one_long_call_does_not() -> None:
    assert timing(primitive(), mixed(9, 1, 1_000_000)).verdict == NOT_MEASURABLE


def test_short_calls_of_a_long_operation_do_not_hide_it() -> None:
    # A signature is asked for its length first, which takes no time.
    found = timing(primitive(), mixed(10, 10, 300_000))
    assert found.verdict == MEASURED
    assert found.per_call_ns == pytest.approx((1_000 + 300_000) / 2 - INSIDE_NS)
    assert timing(primitive(), mixed(10, 10, 3_000)).verdict == NOT_MEASURABLE  # on the mean


def test_an_asymmetric_operation_has_no_time_per_byte() -> None:
    found = timing(primitive()._replace(category="asymmetric"), calls(4, 100_000))
    assert (found.verdict, found.per_byte_ns) == (MEASURED, None)


# ---- the report ----


@pytest.fixture
def recorded() -> tables.Tables:
    """Two commands and a handshake; records of 100 and of 1,000 bytes."""
    row = PrimitiveCalls(1, 1, "record_write", 64, 127, 2, 200, 2, 200, 2 * 10_300, 0, 0, 0)
    return tables.Tables(
        windows=[Window(1, None, 0, 10**9)],
        threads=[Thread(1, 7, "one", "connection", 0, None)],
        ledger=[Ledger(1, 1, "command", "on_cpu", 10**6), Ledger(1, 1, "idle", "runnable", 10**6)],
        phase_counts=[PhaseCount(1, "command", 2)],
        handshakes=[
            Handshake(1, 1, 7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, "success", "", "", "", None)
        ],
        primitives=[primitive()],
        primitive_calls=[
            row,
            row._replace(phase="handshake", call_count=3, size_bytes=300),
            row._replace(low_bytes=512, high_bytes=1023, size_bytes=2000, timed_bytes=2000),
        ],
        primitive_times=[
            PrimitiveTime(1, 1, 64, 127, 10_240, 10_752, 4),
            PrimitiveTime(1, 1, 512, 1023, 10_240, 10_752, 2),
        ],
    )


def test_calls_are_given_per_command_and_handshake_and_by_size(recorded: tables.Tables) -> None:
    (table,) = explain.explain(recorded).primitives
    (line,) = table.lines
    assert (table.command_count, table.handshake_count) == (2, 1)
    assert (line.call_count, line.per_command, line.per_handshake) == (7, 2.0, 3.0)
    assert line.phases == {"handshake": 3, "record_write": 4}
    assert [(size.low_bytes, size.call_count) for size in line.sizes] == [(64, 5), (512, 2)]
    assert [size.timing.per_byte_ns for size in line.sizes] == pytest.approx([100.0, 10.0])
    assert table.probe_ns == 7 * PAIR_NS
    assert table.probe_share == table.probe_ns / 10**6
    assert "0.6 % of the server's CPU time" in table.sentence


def test_windows_of_other_groups_are_left_out(recorded: tables.Tables) -> None:
    recorded.primitive_calls = [row._replace(window_id=2) for row in recorded.primitive_calls]
    recorded.primitive_times = []
    assert explain.explain(recorded).primitives == []
    assert primitives.tabulate([], recorded, {}) == []


def test_the_renderers_show_them_with_their_cost_first(
    recorded: tables.Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    document = to_json(explain.explain(recorded))
    terminal.print_report(document)
    text = capsys.readouterr().out
    assert text.index("of the server's CPU time") < text.index("functions of the TLS library")
    assert f"10{quantities.NO_BREAK}ns/B" in text
    page = html.render(document)
    assert 'id="functions"' in page
    assert 'data-chart="primitives"' in page
    assert "64\xa0B to 128\xa0B" in page


def test_sizes_are_written_as_powers_of_two() -> None:
    texts = [quantities.size_range(*size_bounds(n)) for n in (0, 5, 10, 11, 15, 21)]
    assert [text.replace(quantities.NO_BREAK, " ") for text in texts] == [
        "no bytes",
        "16 B to 32 B",
        "512 B to 1 KiB",
        "1 KiB to 2 KiB",
        "16 KiB to 32 KiB",
        "1 MiB to 2 MiB",
    ]


def test_a_capture_without_them_has_no_section(recorded: tables.Tables) -> None:
    recorded.primitives = []
    page = html.render(to_json(explain.explain(recorded)))
    assert 'id="functions"' not in page
    assert 'href="#functions"' not in page


def test_the_documented_example_is_valid(repository: Path) -> None:
    text = (repository / "docs/definitions.md").read_text()
    example = text.partition("```toml\n[[primitive]]\n")[2].partition("```")[0]
    whole = GOOD + "[[primitive]]\n" + example
    assert parse_definition(whole.encode(), "docs/definitions.md").primitives[-1].category
