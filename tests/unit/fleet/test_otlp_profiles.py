# SPDX-License-Identifier: GPL-2.0-only
"""OTLP profiles of a watch, as a server receives them that takes the protocol's messages apart."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceResponse,
)

from tlstax import ExitCode, TlstaxError
from tlstax.__main__ import main
from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.continuous.explained_hours import KEPT_MOST
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.report.commands.watch_sinks import Sinks
from tlstax.analysis.report.live import otlp_profiles, profile_push
from tlstax.analysis.report.live.profile_push import ProfilePush
from tlstax.analysis.rows.tables import Tables
from tlstax.tests.otlp_receiver import ENDLESS_MOST, Collector, named, stacks, until
from tlstax.tests.watched_rows import by_window, facts

TABLES = {"mapping", "location", "function", "link", "attribute", "stack", "string"}


def sent(collector: Collector, rolled: RolledUp) -> Any:
    push = ProfilePush(collector.address, print)
    push.add(rolled.recording, rolled.rows["1h"])
    push.close()
    (request,) = collector.requests
    return request


def frames(request: Any, sample: Any) -> tuple[tuple[str, str, str, int], ...]:
    """Build-id, file, symbol and offset, leaf first, as a receiver finds them."""
    told, words, made = request.dictionary, request.dictionary.string_table, []
    for at in told.stack_table[sample.stack_index].location_indices:
        location = told.location_table[at]
        mapping = told.mapping_table[location.mapping_index]
        assert mapping.memory_start <= location.address < mapping.memory_limit
        build_id = named(request, mapping.attribute_indices).get(
            "process.executable.build_id.gnu", ""
        )
        symbols = [words[told.function_table[one.function_index].name_strindex]
                   for one in location.lines]  # fmt: skip
        is_kernel = words[mapping.filename_strindex] == "kernel"
        kind = named(request, location.attribute_indices)["profile.frame.type"]
        assert kind == ("kernel" if is_kernel else "native")
        place = (build_id, words[mapping.filename_strindex], "".join(symbols), location.address)
        made.append(place)
    return tuple(made)


def test_samples_have_the_times_stacks_and_phases_of_the_data_set(
    collector: Collector, rolled: RolledUp
) -> None:
    request = sent(collector, rolled)
    found: dict[Any, int] = {}
    for profile in request.resource_profiles[0].scope_profiles[0].profiles:
        words = request.dictionary.string_table
        assert words[profile.sample_type.unit_strindex] == "nanoseconds"
        kind = words[profile.sample_type.type_strindex]
        for sample in profile.samples:
            facts_of = named(request, sample.attribute_indices)
            key = (kind, frames(request, sample), *sorted(facts_of.items()))
            assert key not in found
            (found[key],) = sample.values
    whole = rolled.rows["1h"]
    ids: dict[int, list[int]] = {row[0]: row[2] for row in whole[columns.Stack]}  # type: ignore[misc]
    places = {
        row.frame_id: (row.build_id, row.object, row.symbol, row.offset_bytes)
        for row in whole[columns.Frame]
        if isinstance(row, columns.Frame)
    }
    expected: dict[Any, int] = defaultdict(int)
    for row in stacks(rolled):
        both = (*ids.get(row.kernel_stack_id, ()), *ids.get(row.user_stack_id, ()))
        known = {"tlstax.phase": row.phase, "tlstax.state": row.state}
        known |= {"tlstax.category": row.category} if row.category else {}
        kind = {"on_cpu": "cpu", "off_cpu": "off_cpu"}[row.kind]
        expected[kind, tuple(places[one] for one in both), *sorted(known.items())] += row.time_ns
    assert found == expected
    assert len(found) > 50
    assert {key[0] for key in found} == {"cpu", "off_cpu"}


def test_the_hour_and_the_host_are_told(collector: Collector, rolled: RolledUp) -> None:
    request = sent(collector, rolled)
    (whole,) = request.resource_profiles
    resource = {one.key: one.value.string_value for one in whole.resource.attributes}
    assert (resource["service.name"], resource["host.name"]) == ("tlstax", "db1")
    profiles = whole.scope_profiles[0].profiles
    for profile in profiles:
        assert profile.time_unix_nano == stacks(rolled)[0].start_wall_ns
        assert profile.duration_nano == columns.HOUR_NS
        assert len(profile.profile_id) == 16
    assert profiles[0].profile_id != profiles[1].profile_id
    assert collector.headers[0]["path"] == "/v1development/profiles"
    assert collector.headers[0]["Content-Type"] == "application/x-protobuf"


def test_tables_have_nothing_first_and_each_thing_once(
    collector: Collector, rolled: RolledUp
) -> None:
    request = sent(collector, rolled)
    for name in TABLES:
        entries = list(getattr(request.dictionary, f"{name}_table"))
        plain = [one if isinstance(one, str) else one.SerializeToString() for one in entries]
        assert not plain[0]
        assert len(plain) == len(set(plain))
        assert len(plain) > 1 or name == "link"


def test_headers_and_compression_are_of_the_environment(
    collector: Collector, rolled: RolledUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=SECRET")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    sent(collector, rolled)
    assert collector.headers[0]["x-key"] == "SECRET"
    assert collector.headers[0]["Content-Encoding"] == "gzip"


def test_a_busy_receiver_is_told_once_and_gets_every_hour_later(
    collector: Collector, rolled: RolledUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_push, "_AGAIN_S", 0.1)
    collector.answers = [(503, b""), (429, b""), (503, b"")]
    said: list[str] = []
    push = ProfilePush(collector.address, said.append)
    for _ in range(2):
        push.add(rolled.recording, rolled.rows["1h"])
    until(lambda: len(collector.requests) == 2 and len(said) == 2)
    push.close()
    assert "it answers 503. That is tried again" in said[0]
    assert "again" in said[1]
    assert len(said) == 2


def test_an_answer_without_an_end_is_none(collector: Collector, rolled: RolledUp) -> None:
    collector.is_endless = True
    said: list[str] = []
    push = ProfilePush(collector.address, said.append)
    push.add(rolled.recording, rolled.rows["1h"])
    until(lambda: said)
    push.close()
    assert "its answer is none of OTLP" in said[0]
    assert 0 < collector.sent_bytes < ENDLESS_MOST / 2


def test_what_is_refused_is_told_and_not_sent_again(collector: Collector, rolled: RolledUp) -> None:
    refusal = ExportProfilesServiceResponse()
    refusal.partial_success.rejected_profiles = 2
    collector.answers = [(404, b""), (200, refusal.SerializeToString()), (200, b"\xff")]
    said: list[str] = []
    push = ProfilePush(collector.address, said.append)
    for _ in range(4):
        push.add(rolled.recording, rolled.rows["1h"])
    push.close()
    reasons = ["it answers 404", "it refused 2", "its answer is none of OTLP"]
    assert len(said) == len(reasons)
    for text, reason in zip(said, reasons, strict=True):
        assert text.startswith("profiles of the hour 20")
        assert f"{reason}); the data set has them" in text
    assert len(collector.requests) == 3


def test_a_receiver_that_stays_away_costs_a_bounded_number_of_hours(rolled: RolledUp) -> None:
    said: list[str] = []
    push = ProfilePush("http://127.0.0.1:1", said.append)
    for _ in range(KEPT_MOST + 3):
        push.add(rolled.recording, rolled.rows["1h"])
    until(lambda: len(push._waiting) == KEPT_MOST)
    push.close()
    assert [text for text in said if "it does not answer" in text]
    assert len([text for text in said if "later hours wait, too" in text]) == 3
    assert len([text for text in said if "the watch ends" in text]) == KEPT_MOST


def test_another_form_of_profiles_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_profiles, "_TYPES", {"on_cpu": b"\xff"})
    with pytest.raises(TlstaxError, match="another form") as refused:
        ProfilePush("http://127.0.0.1:1", print)
    assert refused.value.exit_code == ExitCode.HOST


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(TlstaxError, match="leave out --otlp-profiles") as refused:
        ProfilePush("http://127.0.0.1:1", print)
    assert refused.value.exit_code == ExitCode.HOST


def test_without_raw_windows_there_is_nothing_to_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--name", "mysqld", "--output", str(tmp_path / "data"), "--raw", "0"]
    assert main(["watch", *words, "--otlp-profiles", "http://127.0.0.1:1"]) == ExitCode.USAGE
    assert "--raw 0 keeps none" in capsys.readouterr().err


def test_a_watch_sends_the_stacks_of_its_last_hour_at_its_end(
    collector: Collector, demo_tables: Tables, rolled: RolledUp, demo: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    sinks = Sinks(tmp_path / "data", "", 10, 86400.0, collector.address, are_several=False)
    with sinks.of("db1", said.append) as sink:
        sink.begin(facts(demo_tables))
        for rows in by_window(demo_tables):
            sink.window(rows)
        source = sink.source
        sink.detached()
        sink.recorded(demo, source)
        assert collector.requests == []
    (request,) = collector.requests
    sums = {
        one.samples and sum(value for sample in one.samples for value in sample.values)
        for one in request.resource_profiles[0].scope_profiles[0].profiles
    }
    expected = {
        sum(row.time_ns for row in stacks(rolled) if row.kind == kind)
        for kind in ("on_cpu", "off_cpu")
    }
    assert sums == expected
    assert said[0] == f"profiles are sent to {collector.address}/v1development/profiles every hour"
