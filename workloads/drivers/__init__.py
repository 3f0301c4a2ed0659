# SPDX-License-Identifier: GPL-2.0-only
"""Drivers, which make load: their interface, and which there are.

A driver runs real client programs. It is made once for each server of an experiment, makes its
data over any endpoint, and then does one run after the other.

To add a driver, write a module in this folder and one line in DRIVERS.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from tlstax import ExitCode, TlstaxError
from tlstax.workloads.drivers.model import Driver, Value

Factory = Callable[[Mapping[str, Value]], Driver]


@dataclass(frozen=True)
class ScenarioKind:
    """What one operation of a scenario is."""

    name: str
    connects: bool = False  # each operation opens a connection
    operation: str = "transaction"  # its name in reports: 'query', 'connect', ...


@dataclass(frozen=True)
class DriverKind:
    """Where a driver is written, what it can do and what a recipe may say about it."""

    module: str
    factory: str
    scenarios: tuple[ScenarioKind, ...]
    options: Mapping[str, type] = field(default_factory=dict)  # key -> type, all may be left out
    resumes: bool = False  # whether it can resume TLS sessions
    rates: bool = False  # whether it can keep a fixed rate

    def scenario(self, name: str) -> ScenarioKind | None:
        """One by its name."""
        return next((kind for kind in self.scenarios if kind.name == name), None)


_LIBRARIES = "tlstax.workloads.drivers.client_libraries"
_CLIENT_SCENARIOS = (
    ScenarioKind("connect", connects=True, operation="connect"),
    ScenarioKind("point_select", operation="query"),
    ScenarioKind("connect_point_select", connects=True, operation="connect"),
    ScenarioKind("connect_insert_select", connects=True, operation="connect"),
)


def _library(factory: str, *, resumes: bool = False, **options: type) -> DriverKind:
    options["table_rows"] = int
    return DriverKind(_LIBRARIES, factory, _CLIENT_SCENARIOS, options, resumes, rates=True)


DRIVERS: Mapping[str, DriverKind] = {
    "sysbench": DriverKind(
        "tlstax.workloads.drivers.sysbench_driver",
        "SysbenchDriver",
        (
            ScenarioKind("point_select", operation="query"),
            ScenarioKind("read_only"),
            ScenarioKind("bulk_result", operation="query"),
            ScenarioKind("connect", connects=True, operation="connect"),
            ScenarioKind("read_write"),
            ScenarioKind("write_only"),
            ScenarioKind("update_index", operation="query"),
            ScenarioKind("update_non_index", operation="query"),
            ScenarioKind("insert", operation="query"),
            ScenarioKind("delete", operation="query"),
            ScenarioKind("bulk_insert", operation="row"),
            ScenarioKind("select_random_points", operation="query"),
            ScenarioKind("select_random_ranges", operation="query"),
        ),
        {
            "table_rows": int,
            "tables": int,
            "distribution": str,
            "openssl": str,
            "c_library": str,
            "counts_losses": bool,
        },
        rates=True,
    ),
    "pymysql": _library("PyMySql", resumes=True),
    "connector-python": _library("ConnectorPython", resumes=True, keeps_context=bool),
    "connector-python-c": _library("ConnectorC"),
    "php-mysqli": _library("PhpMysqli"),
    "perl-dbd-mysql": _library("PerlDbdMysql"),
    "perl-dbd-mariadb": _library("PerlDbdMariadb"),
}


def make_driver(name: str, options: Mapping[str, Value] | None = None) -> Driver:
    """A driver by its name; TlstaxError (USAGE) that lists them when there is no such."""
    if name not in DRIVERS:
        raise TlstaxError(
            f"there is no driver called '{name}'",
            f"known drivers are {', '.join(DRIVERS)}",
            "Choose one of them",
            ExitCode.USAGE,
        )
    kind = DRIVERS[name]
    factory = getattr(importlib.import_module(kind.module), kind.factory)
    return cast(Factory, factory)(options or {})
