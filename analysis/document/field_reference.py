# SPDX-License-Identifier: GPL-2.0-only
"""Prints docs/report-json.md from the dataclasses of a report.

python -m tlstax.analysis.document.field_reference > docs/report-json.md
"""

import inspect
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Final, NotRequired, get_args, get_origin, get_type_hints

from tlstax.analysis.model import difference as document_difference
from tlstax.analysis.model import fleet as document_fleet
from tlstax.analysis.model import report as document
from tlstax.analysis.model import whatif as document_whatif

_MODEL: Final = document.__name__.rpartition(".")[0] + "."
"""The package of the dataclasses."""
_HEAD: Final = """\
# The report as JSON

<!-- Made by `python -m tlstax.analysis.document.field_reference`: change the dataclasses. -->

`tlstax report --json` prints one object, a `Document`. The terminal and HTML reports are drawn from
the same object and compute nothing: each number that they show is in it. Times are nanoseconds,
shares are 0 to 1, bounds (`low`, `high`) are 95 % intervals, or ranges where `unit_count` is below
8 ([statistics.md](statistics.md)), and `null` says that there is no value. Fields are added in
later versions without notice; a changed meaning changes `version` (now {version}).
[report.schema.json](report.schema.json) is the same as a JSON Schema.
`tlstax diff --json` prints a [Difference](#difference), whose own `version` is
{difference_version}, and `tlstax whatif --json` a [Prediction](#prediction), of version
{prediction_version}; both are described at the end, as are the answers of `tlstax fleet --json`
(version {fleet_version}): [FleetTop](#fleettop), [FleetComparison](#fleetcomparison),
[FleetExplanation](#fleetexplanation) and [FleetForecast](#fleetforecast).
"""


def report_markdown() -> str:
    """The text of docs/report-json.md: the document first, then each object as it occurs."""
    head = _HEAD.format(
        version=document.DOCUMENT_VERSION,
        difference_version=document_difference.DIFFERENCE_VERSION,
        prediction_version=document_whatif.PREDICTION_VERSION,
        fleet_version=document_fleet.FLEET_VERSION,
    )
    roots = (
        *(document.Document, document_difference.Difference, document_whatif.Prediction),
        *(document_fleet.FleetTop, document_fleet.FleetComparison),
        document_fleet.FleetExplanation,
        document_fleet.FleetForecast,
    )
    kinds = dict.fromkeys(kind for root in roots for kind in _kinds(root))
    parts = [head, *(_section(kind) for kind in kinds)]
    return "\n".join(parts)


def _kinds(root: type[Any]) -> Iterator[type[Any]]:
    """The objects below `root`, each once, parents first."""
    pending, seen = [root], {root}
    while pending:
        kind = pending.pop(0)
        yield kind
        for hint in get_type_hints(kind).values():
            for inner in _objects(hint):
                if inner not in seen:
                    seen.add(inner)
                    pending.append(inner)


def _objects(hint: Any) -> Iterator[type[Any]]:
    for argument in get_args(hint):
        yield from _objects(argument)
    if isinstance(hint, type) and hint.__module__.startswith(_MODEL):
        yield hint


def _section(kind: type[Any]) -> str:
    hints = get_type_hints(kind, include_extras=True)
    lines = [f"## {kind.__name__}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
    lines += ["| field | type | meaning |", "|---|---|---|"]
    for name, hint in hints.items():
        doc = get_args(hint)[1] if get_origin(hint) is Annotated else ""
        plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        lines.append(f"| `{name}` | {_type_text(plain)} | {doc} |")
    return "\n".join(lines) + "\n"


def _type_text(hint: Any) -> str:
    """A type as JSON people say it."""
    arguments = get_args(hint)
    if get_origin(hint) is NotRequired:
        return f"{_type_text(arguments[0])}, optional"
    if get_origin(hint) is types.UnionType:
        return " or ".join(_type_text(argument) for argument in arguments)
    if get_origin(hint) is list:
        return f"list of {_type_text(arguments[0])}"
    if get_origin(hint) is dict:
        return f"object of {_type_text(arguments[1])}"
    if hint is Any:
        return "any"
    names = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
    name = names.get(hint)
    if name is None:
        anchor = re.sub(r"\W", "", hint.__name__).lower()
        return f"[{hint.__name__}](#{anchor})"
    return name


if __name__ == "__main__":
    print(report_markdown(), end="")
