# SPDX-License-Identifier: GPL-2.0-only
"""`tlstax fleet flamegraph`: the stacks of many hosts as one profile.

Time is per second of recorded time of a host, on average over the hosts: each hour of a host counts
by its recorded time, whatever part of it was observed. An hour without stacks counts neither way: a
watch has none of the hour that goes on, of hours that could not be explained, or without raw
windows. Where raw windows ended early, an hour counts by the share of its served time that its
stacks have: together they are the ledger of these windows.
"""

from collections.abc import Mapping
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis.classify import flames
from tlstax.analysis.classify import stacks as folding
from tlstax.analysis.classify.composition import Stacks
from tlstax.analysis.classify.stacks import Folded
from tlstax.analysis.classify.taxonomy import builtin
from tlstax.analysis.fleet import columns, host_sums
from tlstax.analysis.fleet.engines.engine import Engine
from tlstax.analysis.fleet.host_sums import Span
from tlstax.analysis.fleet.question import Question, moment
from tlstax.collectors.capture import schema
from tlstax.collectors.capture.vocabulary import PHASES, STATES

_WINDOW: Final = 1
"""The window of all rows: folding sums over windows."""


def profile(
    question: Question, kind: str, conditions: tuple[str, ...], span: Span
) -> tuple[flames.Profile, list[str]]:
    """The profile of the hosts that meet the conditions, and which files were left out.

    Raises TlstaxError (USAGE) where there is nothing to draw.
    """
    span = host_sums.in_hours(span)
    tables = (columns.Interval, columns.Host, columns.Stacks, columns.Stack, columns.Frame)
    with question.ask(span, "1h", tables) as (engine, left_out):
        known = host_sums.facts(engine, span)
        hosts = host_sums.chosen(known, conditions)
        rows = _rows(engine, span, kind, hosts, everyone=len(hosts) == len(known))
        recorded_s = _recorded_s(engine, span)
        drawn = [host for host in hosts if recorded_s.get(host)]
        seconds = sum(recorded_s[host] for host in drawn)
        resolved = _resolved(engine, rows)
    folded = {path: ns / seconds for path, ns in _fold(rows, kind, resolved).items() if seconds}
    what = " and ".join(conditions) or "all hosts"
    if not folded:
        raise TlstaxError(
            f"nothing to draw for {what}",
            f"no stack was recorded from {moment(span.start_wall_ns)} to "
            f"{moment(span.end_wall_ns)}",
            "Choose another time, other hosts or another kind",
            ExitCode.USAGE,
        )
    count = sum(row["sample_count"] for row in rows)
    return flames.Profile(f"{what} ({len(drawn):,})", folded, int(count)), left_out


def _rows(
    engine: Engine, span: Span, kind: str, hosts: set[str], *, everyone: bool
) -> list[dict[str, Any]]:
    """Scaled time by phase, state and stacks."""
    names = "phase, state, syscall, user_stack_id, kernel_stack_id"
    qualified = ", ".join(f"stacks.{name} AS {name}" for name in names.split(", "))
    by_host = "" if everyone else "host, "
    found = engine.query(
        f"SELECT {by_host}{names}, CAST(SUM(sample_count) AS BIGINT) AS sample_count, "
        "SUM(CASE WHEN observed_ns > 0 THEN CAST(time_ns AS DOUBLE) * CAST(recorded_ns AS DOUBLE) "
        f"/ CAST(observed_ns AS DOUBLE) ELSE 0 END) AS time_ns FROM (SELECT stacks.host AS host, "
        f"{qualified}, stacks.time_ns AS time_ns, stacks.sample_count AS sample_count, "
        "whole.recorded_ns AS recorded_ns, whole.ledger_observed_ns AS observed_ns "
        "FROM stacks INNER JOIN interval whole ON stacks.host = whole.host "
        "AND stacks.start_wall_ns = whole.start_wall_ns AND stacks.source_id = whole.source_id "
        f"WHERE stacks.kind = '{kind}' AND "
        f"{span.condition.replace('start_wall_ns', 'stacks.start_wall_ns')}) scaled "
        f"GROUP BY {by_host}{names}"
    ).to_pylist()
    return [row for row in found if everyone or row["host"] in hosts]


def _recorded_s(engine: Engine, span: Span) -> Mapping[str, float]:
    """Recorded time that stacks cover, by host, in seconds.

    The ledger's time splits exactly into stacks, so their sum tells how much of an hour they cover.
    Stacks of any kind: an hour that was explained and in which nothing waited counts for waits.
    """
    found = engine.query(
        "SELECT host, SUM(CASE WHEN observed_ns > 0 THEN CAST(recorded_ns AS DOUBLE) * "
        "CASE WHEN covered_ns < CAST(served_ns AS DOUBLE) "
        "THEN covered_ns / CAST(served_ns AS DOUBLE) ELSE 1 END ELSE 0 END) "
        "AS recorded_ns FROM (SELECT whole.host AS host, whole.recorded_ns AS recorded_ns, "
        "whole.ledger_observed_ns AS observed_ns, whole.served_ns AS served_ns, "
        "explained.covered_ns AS covered_ns FROM interval whole INNER JOIN "
        "(SELECT host, start_wall_ns, source_id, SUM(CAST(time_ns AS DOUBLE)) AS covered_ns "
        f"FROM stacks WHERE {span.condition} GROUP BY host, start_wall_ns, source_id) "
        "explained ON whole.host = explained.host "
        "AND whole.start_wall_ns = explained.start_wall_ns "
        "AND whole.source_id = explained.source_id) counted GROUP BY host"
    )
    return {row["host"]: row["recorded_ns"] / 1e9 for row in found.to_pylist()}


def _resolved(engine: Engine, rows: list[dict[str, Any]]) -> Stacks:
    """The stacks and frames that the rows lead to, numbered as in a capture."""
    wanted = {row[name] for row in rows for name in ("user_stack_id", "kernel_stack_id")} - {0}
    stacks = {
        row["stack_id"]: row["frame_ids"]
        for row in engine.query("SELECT stack_id, frame_ids FROM stack").to_pylist()
        if row["stack_id"] in wanted
    }
    used = {frame for ids in stacks.values() for frame in ids}
    frames: dict[int, dict[str, Any]] = {}
    names = "frame_id, build_id, offset_bytes, object, symbol, code"
    for row in engine.query(f"SELECT {names} FROM frame").to_pylist():
        if row["frame_id"] in used:
            frames.setdefault(row["frame_id"], row)
    numbers = {frame_id: number for number, frame_id in enumerate(frames, start=1)}
    return Stacks(
        [
            schema.Frame(
                *(numbers[one], row["object"], row["build_id"], row["offset_bytes"]),
                *(row["symbol"], 0, "", row["code"]),
            )
            for one, row in frames.items()
        ],
        [
            schema.Stack(
                stack_id, " ".join(str(numbers[frame]) for frame in ids if frame in numbers)
            )
            for stack_id, ids in stacks.items()
        ],
    )


def _fold(rows: list[dict[str, Any]], kind: str, resolved: Stacks) -> Folded:
    """Folded as the stacks of one capture are: each row weighs what its time is."""
    totals: dict[tuple[str, str], int] = {}
    samples, waits = [], []
    for row in rows:
        if row["phase"] not in PHASES or row["state"] not in STATES:
            continue
        weight = round(row["time_ns"])
        key = row["phase"], row["state"]
        totals[key] = totals.get(key, 0) + weight
        stacks = (row["user_stack_id"] or None, row["kernel_stack_id"] or None)
        if kind == "on_cpu":
            samples.append(
                schema.SampleStack(_WINDOW, row["phase"], row["syscall"], *stacks, weight)
            )
        else:
            waits.append(schema.OffcpuStack(_WINDOW, *key, row["syscall"], *stacks, 0, weight))
    if kind == "on_cpu":
        return folding.fold_on_cpu(samples, {_WINDOW}, totals, resolved, builtin())[0]
    return folding.fold_off_cpu(waits, {_WINDOW}, totals, resolved, builtin())[0]
