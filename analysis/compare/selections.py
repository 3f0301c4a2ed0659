# SPDX-License-Identifier: GPL-2.0-only
"""The two sides of a comparison: how they pair up, and why some must not be compared."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tlstax.analysis.model.difference import SideFacts
from tlstax.analysis.quantities import number_text
from tlstax.analysis.rows import operations
from tlstax.analysis.rows.samples import columns_of
from tlstax.analysis.rows.tables import Group, Tables, groups
from tlstax.analysis.statistics.units import LEAST_RANGE
from tlstax.collectors.capture.vocabulary import LEDGER_LEVELS

UNITS: Final[Mapping[str, str]] = {
    "connection": "connect",
    "handshake": "handshake",
    "query": "command",
}
"""What can be counted without a driver, and the phase whose ends are counted."""
_FEW_COMMANDS: Final = 4.0
"""Commands of a connection up to which a recording is one of connections."""
_OTHER_LOAD: Final = 1.5
"""Factor between the commands per connection of two sides from which their loads differ."""


@dataclass(frozen=True)
class RecordingSelection:
    """A group of a capture."""

    capture: str
    tables: Tables
    group: Group

    @property
    def label(self) -> str:
        """File and group, for people."""
        return self.capture if not self.group.runs else f"{self.capture}: {self.group.label}"

    @property
    def windows_levels(self) -> set[str]:
        """Levels of its windows with a ledger."""
        return {
            window.level
            for window in self.tables.windows
            if window.window_id in self.group.window_ids and window.level in LEDGER_LEVELS
        }

    @property
    def engines(self) -> set[str]:
        """What recorded its windows."""
        ids = self.group.window_ids
        return {window.engine for window in self.tables.windows if window.window_id in ids}

    @property
    def phase_counts(self) -> dict[str, int]:
        """How often each phase ended."""
        return operations.phase_counts(self.tables.phase_counts, self.group.window_ids)

    @property
    def ledger_counts(self) -> dict[str, int]:
        """The same in windows with a ledger: of others, handshakes are counted and commands not."""
        levels = {one.window_id for one in self.tables.windows if one.level in LEDGER_LEVELS}
        return operations.phase_counts(
            self.tables.phase_counts, levels & set(self.group.window_ids)
        )


def matching(tables: Tables, wanted: str) -> list[Group]:
    """The groups that a selection names: an arm, a scenario, driver/scenario/arm or a part of it.

    All where nothing is wanted.
    """
    found = groups(tables)
    if not wanted:
        return found
    parts = wanted.split("/")
    return [
        group
        for group in found
        if group.name == wanted or _contains([group.driver, group.scenario, group.arm], parts)
    ]


def _contains(name: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether `parts` stand in `name` one after the other."""
    last = len(name) - len(parts)
    return any(list(name[start : start + len(parts)]) == list(parts) for start in range(last + 1))


def pair_up(
    before: Sequence[RecordingSelection], after: Sequence[RecordingSelection]
) -> list[tuple[RecordingSelection, RecordingSelection]]:
    """What is compared with what: one with one, else by scenario and arm, else by scenario."""
    if len(before) == 1 and len(after) == 1:
        return [(before[0], after[0])]
    for keys in (("driver", "scenario", "arm"), ("driver", "scenario")):
        known = {tuple(getattr(side.group, key) for key in keys): side for side in before}
        pairs = [
            (known[key], side)
            for side in after
            if (key := tuple(getattr(side.group, name) for name in keys)) in known
            and known[key].group != side.group
        ]
        if pairs or len(before) > len(known):
            return pairs
    return []


def choose_unit(before: RecordingSelection, after: RecordingSelection, wanted: str | None) -> str:
    """What one operation is: the driver's, or what can be counted at the server."""
    if wanted is not None:
        return wanted
    if before.group.runs and after.group.runs:
        return after.group.operation
    counts = [side.phase_counts for side in (before, after)]
    if all(count.get("connect", 0) for count in counts) and all(
        count.get("command", 0) <= _FEW_COMMANDS * count["connect"] for count in counts
    ):
        return "connection"
    return "query"


def refusals(
    before: RecordingSelection, after: RecordingSelection, unit: str, *, by_driver: bool
) -> list[str]:
    """Why two sides must not be compared, all reasons; empty where they may be."""
    if before.tables is after.tables and before.group == after.group:
        return ["both sides are the same recording"]
    found = []
    for side in (before, after):
        found += unseen(side)
    if found:
        return found
    levels = [side.windows_levels for side in (before, after)]
    if levels[0] != levels[1]:
        texts = [" and ".join(sorted(level)) for level in levels]
        found.append(
            f"different levels of detail: {before.label} was recorded at {texts[0]}, "
            f"{after.label} at {texts[1]}; record both with the same --level"
        )
    found += _other_load(before, after) if by_driver else _other_mix(before, after, unit)
    found += _arms(before, after)
    return found


def unseen(side: RecordingSelection) -> list[str]:
    """What one side lacks for any comparison."""
    engines = side.engines
    if not engines:
        return [f"{side.label} has no window"]
    if "native" not in engines:
        names = " and ".join(sorted(engines))
        text = "which records neither the waits of threads nor the length of phases"
        return [f"{side.label} was recorded by {names}, {text}; record it with `tlstax attach`"]
    if not side.windows_levels:
        return [f"{side.label} was recorded without a ledger; record it with --level flow or above"]
    if len(side.tables.targets) > 1:
        return [f"{side.label} has more than one server"]
    return []


def _other_load(before: RecordingSelection, after: RecordingSelection) -> list[str]:
    """Differences of load between two experiments."""
    found = []
    names = [f"{side.group.driver}/{_load(side)}" for side in (before, after)]
    if names[0] != names[1]:
        found.append(f"different loads: {names[0]} and {names[1]}")
    kinds = [side.group.operation for side in (before, after)]
    if kinds[0] != kinds[1]:
        found.append(f"no common operation: a {kinds[0]} and a {kinds[1]}")
    threads = [
        sorted({run.threads_count for run in side.group.runs if run.operation_count})
        for side in (before, after)
    ]
    if threads[0] != threads[1]:
        texts = [" or ".join(map(str, counts)) or "no" for counts in threads]
        found.append(f"different loads: {texts[0]} and {texts[1]} client threads")
    for side in (before, after):
        if not side.group.operation_count:
            found.append(f"no operation finished in {side.label}")
    return found


def _load(side: RecordingSelection) -> str:
    """The scenario without the route to the server, which a matrix puts before it."""
    return side.group.scenario.rpartition(" ")[2]


def _other_mix(before: RecordingSelection, after: RecordingSelection, unit: str) -> list[str]:
    """Differences of load between two servers without a driver."""
    phase = UNITS[unit]
    counts = [side.ledger_counts for side in (before, after)]
    found = [
        f"no common operation: {text}" for side in (before, after) for text in uncounted(side, unit)
    ]
    if found or phase == "command":
        return found
    per = [count.get("command", 0) / count[phase] for count in counts]
    if max(per) > _OTHER_LOAD * min(per) + 1:
        found.append(
            f"different loads: {number_text(per[0])} and {number_text(per[1])} commands "
            f"per {unit}; "
            "compare with --per query"
        )
    return found


def uncounted(side: RecordingSelection, unit: str) -> list[str]:
    """A reason if the operation never occurred."""
    return [] if side.ledger_counts.get(UNITS[unit]) else [f"no {unit} was seen in {side.label}"]


def _arms(before: RecordingSelection, after: RecordingSelection) -> list[str]:
    """Plaintext arms that spoke TLS, TLS arms that did not."""
    found = []
    for side in (before, after):
        shakes = side.phase_counts.get("handshake", 0)
        if side.group.arm == "plaintext" and shakes:
            found.append(f"{side.label} made {shakes} TLS handshakes")
        if side.group.arm == "tls" and not shakes:
            found.append(f"no handshake was seen in {side.label}")
    return found


def too_few(
    counts: Sequence[int], names: Sequence[str], what: str, use: str = "comparison"
) -> list[str]:
    """Sides with too few units (`what`) for any comparison, or other `use`."""
    more = "; record longer, or with --budget none" if what == "windows" else ""
    return [
        f"too few {what}: {name} has {count}, and a {use} needs {LEAST_RANGE}{more}"
        for count, name in zip(counts, names, strict=True)
        if count < LEAST_RANGE
    ]


def cautions(
    before: RecordingSelection, after: RecordingSelection, unit: str, *, by_driver: bool
) -> list[str]:
    """Other differences between the sides, so that a reader can judge."""
    found = []
    for key, name in (
        ("cpu_model", "CPUs"),
        ("cpu_count", "numbers of CPUs"),
        ("hostname", "hosts"),
        ("kernel", "kernels"),
        ("tlstax_version", "versions of tlstax"),
    ):
        values = [side.tables.meta.get(key, "unknown") for side in (before, after)]
        if values[0] != values[1]:
            found.append(f"Different {name}: {values[0]} and {values[1]}.")
    routes = [side.group.scenario.rpartition(" ")[0] for side in (before, after)]
    if by_driver and routes[0] != routes[1]:
        found.append(
            f"Different routes to the server: {' and '.join(r or 'direct' for r in routes)}."
        )
    if before.group.runs and after.group.runs and not by_driver:
        found.append(
            f"A {unit} is what the server counted, not an operation of the driver: it is not "
            "verified that both sides had the same load."
        )
    elif not by_driver:
        found.append(
            f"No driver made the load: a {unit} is what the server counted, and tlstax cannot "
            "verify that both sides had the same load."
        )
    return found


def facts(side: RecordingSelection, replicate_count: int, operation_count: float) -> SideFacts:
    """A side for the reader."""
    target = next(iter(side.tables.targets), None)
    meta = side.tables.meta
    ids = side.group.window_ids
    return SideFacts(
        label=side.label,
        capture=side.capture,
        group=side.group.name,
        server=f"{target.server} {target.server_version}" if target else "unknown",
        tls=f"{target.tls_library} {target.tls_version} ({target.tls_linkage})"
        if target
        else "unknown",
        host=f"{meta.get('hostname', 'unknown host')}, {meta.get('cpu_model', 'unknown CPU')}, "
        f"Linux {meta.get('kernel', 'unknown')}",
        level=" and ".join(sorted(side.windows_levels)) or "none",
        engine=" and ".join(sorted(side.engines)) or "none",
        negotiated=_negotiated(side.tables, ids),
        replicate_count=replicate_count,
        operation_count=operation_count,
        sample_count=columns_of(side.tables.samples).of_windows(ids).total,
    )


def _negotiated(tables: Tables, window_ids: Collection[int]) -> str:
    """What most handshakes agreed on."""
    found = Counter(
        (row.tls_version, row.cipher, row.group_name)
        for row in tables.handshakes
        if row.window_id in window_ids and row.outcome == "success"
    )
    best = found.most_common(1)[0][0] if found else ()
    return ", ".join(text for text in best if text not in ("", "unknown"))
