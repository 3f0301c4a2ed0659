# SPDX-License-Identifier: GPL-2.0-only
"""All replayed hosts in one hour: the rows of each table, see fleet_replay.py."""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tlstax.analysis.fleet import columns
from tlstax.analysis.fleet.columns import HOUR_NS, SECOND_NS, Row
from tlstax.analysis.fleet.rollup.capture import RolledUp
from tlstax.analysis.fleet.rollup.intervals import MAIN_PHASES, coarse_role
from tlstax.analysis.fleet.store import parquet_files
from tlstax.tests.fleet_replay import SEED, Causes, Fleet, Floats, Traits

NETWORKS: Final = 4
"""Client networks of a host."""
_SAME: Final = ("scale", "first_bucket", "syscall", "user_stack_id", "kernel_stack_id")
"""Numbers that are no sums."""


def _table(rolled: RolledUp, table: type[Row]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rolled.rows["1h"][table]]


def _total(rows: list[dict[str, Any]], name: str) -> float:
    return float(sum(row[name] for row in rows))


class Hour:
    """All hosts in one hour, an interval to a column."""

    def __init__(
        self, fleet: Fleet, traits: Traits, starts: npt.NDArray[np.int64], step_ns: int
    ) -> None:
        self._fleet, self._traits, self._starts = fleet, traits, starts
        self._step_ns = step_ns
        count = fleet.host_count
        shape = (count, len(starts))
        random = np.random.default_rng([SEED, int(starts[0] // SECOND_NS)])
        self._random = random
        at_hour = (starts % (24 * HOUR_NS)) / HOUR_NS
        wave = 1 + 0.5 * np.cos((at_hour[None, :] - traits.peak[:, None]) / 24 * 2 * np.pi)
        hourly = random.lognormal(0.0, 0.08, (count, 1))
        self.load = traits.load[:, None] * wave * hourly * random.lognormal(0.0, 0.1, shape)
        self.cost = traits.speed[:, None] * random.lognormal(0.0, 0.02, shape)
        self.late = (starts >= fleet.planted.at_ns)[None, :] & np.ones(shape, dtype=bool)
        self._sums: dict[str, Floats] = {}

    def _of(self, numbers: Sequence[int]) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self._fleet.host_count, dtype=bool)
        mask[list(numbers)] = True
        return mask[:, None] & self.late

    def _rate(self, name: str) -> Floats:
        """Of each host, per second of observed time, by its profile."""
        rates = []
        for rolled in self._fleet.profiles:
            rows = _table(rolled, columns.Interval)
            rates.append(_total(rows, name) / _total(rows, "ledger_observed_ns") * 1e9)
        return np.array(rates)[self._traits.profile][:, None]

    def _count(self, name: str) -> Floats:
        seconds = self._step_ns / 1e9 * self._fleet.observed_share
        return self._random.poisson(self._rate(f"{name}_count") * self.load * seconds).astype(
            np.float64
        )

    def sums(self) -> dict[str, Floats]:
        """The columns of `interval`, each a table of hosts by intervals."""
        if self._sums:
            return self._sums
        planted, each = self._fleet.planted, self._rate("handshake_count")
        made = {name: self._count(name) for name in ("connection", "command", "sample")}
        shakes, resumed = self._count("handshake"), self._traits.resumed[:, None] + 0 * self.load
        first = self._random.binomial(shakes.astype(int), 1 / NETWORKS).astype(np.float64)
        in_first = self._random.binomial(first.astype(int), resumed)
        in_first[self._of(planted.no_resumption)] = 0
        others = self._random.binomial((shakes - first).astype(int), resumed)
        made["first"], made["first_resumed"] = first, in_first.astype(np.float64)
        made["handshake"], made["resumed"] = shakes, (in_first + others).astype(np.float64)
        made["full"] = shakes - made["resumed"]
        library = np.where(self._of(planted.new_library), 0.7, 1.0)
        sign = self._rate("sign_cpu_ns") / np.maximum(each, 1e-9) * library
        rest = self._rate("handshake_cpu_ns") / np.maximum(each, 1e-9) * library - sign
        sign = np.where(self._of(planted.longer_key), planted.key_factor, 1.0) * sign
        made["sign"] = made["full"] * sign * self.cost
        made["handshake_cpu"] = made["sign"] + (made["full"] + 0.6 * made["resumed"]) * rest * (
            self.cost
        )
        per_command = self._rate("record_crypto_ns") / np.maximum(self._rate("command_count"), 1e-9)
        made["record_crypto"] = made["command"] * per_command * self.cost
        plain = self._rate("on_cpu_ns") - self._rate("handshake_cpu_ns")
        made["other_cpu"] = (
            made["command"] * plain / np.maximum(self._rate("command_count"), 1e-9) * self.cost
        )
        self._sums = made
        return made

    def rows(self, table: type[Row]) -> Any:
        """The rows of a table, sorted; None where it has none."""
        if table is columns.Interval:
            return self._intervals()
        if table is columns.Host:
            return self._hosts()
        if table is columns.ClientNet:
            return self._networks() if self._fleet.with_networks else None
        causes = Causes(self._fleet, self._traits, int(self._starts[0]), self._random)
        if table is columns.Finding:
            return causes.findings()
        if table is columns.RecordSplit:
            sums = [self.sums()[name] for name in ("other_cpu", "record_crypto", "sample")]
            return causes.splits(*(of_host.sum(axis=1) for of_host in sums))
        if table in columns.SHARED:
            return causes.shared(table)
        return self._scaled_rows(table)

    def _keys(self, repeats: int = 1) -> dict[str, Any]:
        hosts, intervals = self.load.shape
        names = pa.array([self._fleet.name(n) for n in range(hosts)])
        number = np.repeat(np.arange(hosts), intervals * repeats)
        return {
            "host": pa.DictionaryArray.from_arrays(number.astype(np.int32), names).cast(
                pa.string()
            ),
            "start_wall_ns": np.tile(np.repeat(self._starts, 1), hosts * repeats),
            "source_id": self._traits.source[number],
        }

    def _intervals(self) -> Any:
        sums = self.sums()
        step = np.full(self.load.shape, float(self._step_ns))
        observed = step * self._fleet.observed_share
        cpu = sums["handshake_cpu"] + sums["other_cpu"]
        waits = self._rate("runnable_ns") / self._rate("on_cpu_ns") * cpu
        served = (self._rate("served_ns") / self._rate("on_cpu_ns")) * cpu
        found = {
            "recorded_ns": step,
            "ledger_observed_ns": observed,
            "handshake_observed_ns": observed,
            "served_ns": served,
            "on_cpu_ns": cpu,
            "runnable_ns": waits,
            "handshake_cpu_ns": sums["handshake_cpu"],
            "sign_cpu_ns": sums["sign"],
            "record_crypto_ns": sums["record_crypto"],
            "connection_count": sums["connection"],
            "command_count": sums["command"],
            "handshake_count": sums["handshake"],
            "full_count": sums["full"],
            "resumed_count": sums["resumed"],
            "failed_count": np.zeros_like(cpu),
            "process_cpu_ns": cpu * 1.01 + self._random.normal(0, 1e5, cpu.shape) ** 2,
            "engine_cpu_ns": observed * 0.002 * self._random.lognormal(0, 0.1, cpu.shape),
            "overhead_ns": cpu * 0.004 * self._random.lognormal(0, 0.05, cpu.shape),
            "sample_count": sums["sample"],
            "lost_count": self._random.poisson(0.01, cpu.shape),
            "record_observed_ns": observed,
            "partial_ns": np.zeros_like(cpu),
        }
        return _arrow(columns.Interval, {**self._keys(), **found})

    def _hosts(self) -> Any:
        """The facts of an hour: a row for each host."""
        planted = self._fleet.planted
        late = int(self._starts[0]) >= planted.at_ns
        renewed = set(planted.new_library) if late else set()
        rows = []
        for number in range(self._fleet.host_count):
            profile_rows = self._fleet.profiles[self._traits.profile[number]].rows["1h"]
            facts = profile_rows[columns.Host][0]._asdict()
            facts["host"], facts["cluster"] = self._fleet.name(number), self._fleet.cluster(number)
            facts["source_id"] = int(self._traits.source[number])
            facts["start_wall_ns"] = int(self._starts[0])
            facts["first_wall_ns"] = int(self._starts[0])
            if number in renewed:
                facts["tls_library"] = "OpenSSL 3.5.4"
            rows.append(columns.Host(**facts))
        return parquet_files.table_of(columns.Host, rows)

    def _networks(self) -> Any:
        """Handshakes by network: the first one, and the others alike."""
        sums = self.sums()
        parts: list[tuple[str, Floats, Floats]] = [("first", sums["first"], sums["first_resumed"])]
        left, resumed = sums["handshake"] - sums["first"], sums["resumed"] - sums["first_resumed"]
        parts.append(("others", left, resumed))
        planted = set(self._fleet.planted.no_resumption)
        keys = self._keys()
        hosts, intervals = self.load.shape
        names = np.repeat(
            ["198.51.100.0/24" if n in planted else f"10.{n // 200}.0.0/16" for n in range(hosts)],
            intervals,
        )
        tables = [
            _arrow(
                columns.ClientNet,
                {
                    **keys,
                    "network": pa.array(names if kind == "first" else ["others"] * len(names)),
                    "connection_count": whole,
                    "full_count": whole - again,
                    "resumed_count": again,
                    "failed_count": np.zeros_like(whole),
                },
            )
            for kind, whole, again in parts
        ]
        return parquet_files.in_order(columns.ClientNet, pa.concat_tables(tables))

    def _scaled_rows(self, table: type[Row]) -> Any:
        """The rows of each host's profile, their sums scaled by its load, with noise."""
        made = []
        for number, rolled in enumerate(self._fleet.profiles):
            of_profile = np.flatnonzero(self._traits.profile == number)
            seconds = _total(_table(rolled, columns.Interval), "ledger_observed_ns") / 1e9
            for row in self._profile_rows(rolled, table):
                is_short = table is columns.PhaseLatency and self._step_ns < HOUR_NS
                if is_short and row["phase"] not in MAIN_PHASES:
                    continue
                made.append(self._spread(table, row, of_profile, self._step_ns / 1e9 / seconds))
        return parquet_files.in_order(table, pa.concat_tables(made)) if made else None

    def _profile_rows(self, rolled: RolledUp, table: type[Row]) -> list[dict[str, Any]]:
        """The rows of a recording; in the shortest tier the ledger has coarse roles."""
        rows = _table(rolled, table)
        if table is not columns.Ledger or self._step_ns > 10 * SECOND_NS:
            return rows
        merged: dict[tuple[str, str], dict[str, Any]] = {}
        for row in rows:
            key = coarse_role(row["role"]), row["phase"]
            into = merged.setdefault(key, {**dict.fromkeys(row, 0), "role": key[0]})
            into["phase"] = row["phase"]
            for name, value in row.items():
                if name.endswith("_ns"):
                    into[name] += value
        return list(merged.values())

    def _spread(
        self, table: type[Row], row: dict[str, Any], hosts: npt.NDArray[np.int64], part: float
    ) -> Any:
        intervals = len(self._starts)
        names = [self._fleet.name(int(n)) for n in hosts]
        cost = part * self.load[hosts] * self._random.lognormal(0, 0.02, (len(hosts), intervals))
        found: dict[str, Any] = {
            "host": pa.array(list(itertools.chain.from_iterable([n] * intervals for n in names))),
            "start_wall_ns": np.tile(self._starts, len(hosts)),
            "source_id": np.repeat(self._traits.source[hosts], intervals),
        }
        counts: list[list[int]] = []
        for name, value in row.items():
            if name in found:
                continue
            if name == "counts":
                means = cost.ravel()[:, None] * np.array(value, dtype=np.float64)[None, :]
                counts = self._random.poisson(means).tolist()
                found[name] = pa.array(counts, pa.list_(pa.int64()))
            elif isinstance(value, str) or name in _SAME:
                found[name] = pa.array([value] * cost.size)
            elif name.endswith("_count"):
                found[name] = self._random.poisson(value * cost)
            else:
                found[name] = value * cost
        if counts:
            found["ended_count"] = np.array([sum(one) for one in counts])
        return _arrow(table, found)


def _arrow(table: type[Row], found: dict[str, Any]) -> Any:
    """Columns as an Arrow table with the schema of the table."""
    schema = parquet_files.schema_of(table)
    arrays = []
    for one in schema:
        value = found[one.name]
        if isinstance(value, np.ndarray):
            value = pa.array(np.rint(value.ravel()).astype(np.int64))
        arrays.append(value.cast(one.type))
    return pa.Table.from_arrays(arrays, schema=schema)
