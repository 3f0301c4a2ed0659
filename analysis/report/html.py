# SPDX-License-Identifier: GPL-2.0-only
"""Render a document as one HTML file that opens from disk and asks the network for nothing.

Text reaches the page through autoescape or textContent only. The content security policy names
every script and style by its hash, so that nothing else could run even if a name broke out.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.analysis.report import jsondoc, quantities

Json = Mapping[str, Any]

VENDORED: Final = ("d3.min.js", "plot.umd.min.js", "d3-flamegraph.min.js")
"""Libraries that `make assets` fetches, in the order in which they load."""
STYLES: Final = ("report.css", "charts.css")
SCRIPTS: Final = (
    "format.js",
    "page.js",
    "charts.js",
    "waterfall.js",
    "ledger.js",
    "handshake.js",
    "composition.js",
    "flame.js",
    "main.js",
)
"""Our own scripts, in the order in which they load; together they are one script element."""

PLOT_CLASS: Final = "plot"
"""Class name of charts. Observable Plot adds one style element whose text holds this name; the
policy must know its hash, so charts.js passes the same name."""
_PLOT_STYLE = re.compile(r"`(:where\(\.\$\{(\w+)\}\) \{\\n  --plot-background.*?)`", re.DOTALL)

SECTIONS: Final = (
    ("waterfall", "Waterfall"),
    ("ledger", "Ledger"),
    ("handshake", "Handshake"),
    ("composition", "CPU"),
    ("flames", "Flames"),
    ("trust", "Trust"),
    ("method", "Method"),
)
WIDEST_COUNT: Final = 12
"""Stacks of each flame graph in its text alternative."""


def render(document: Json) -> str:
    """The page for a document (as `tlstax.analysis.document.to_json` gives it)."""
    scripts = [*(_asset(f"vendor/{name}") for name in VENDORED), _own_scripts()]
    styles = ["\n".join(_asset(name) for name in STYLES)]
    policy = _policy(scripts, [*styles, _plot_style(scripts[1])])
    sections = [(id_, title) for id_, title in SECTIONS if id_ != "waterfall"]
    if document["comparisons"]:
        sections = list(SECTIONS)
    flame_arms = _in_order(_flame_arm(flame) for flame in document["flames"])
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            doc=document,
            version=__version__,
            policy=policy,
            sections=sections,
            styles=[Markup(style) for style in styles],
            scripts=[Markup(script) for script in scripts],
            data=Markup(jsondoc.for_script(document)),
            groups=_in_order(
                cell["group"] for item in document["comparisons"] for cell in item["cells"]
            ),
            states=_in_order(
                part["state"] for bar in document["ledgers"] for part in bar["segments"]
            ),
            ledger_groups=_ledger_groups(document),
            first_tls=_first_tls,
            flame_arms=[_arm_label(document, arm) for arm in flame_arms],
            flame_arm=_first_tls([{"name": arm} for arm in flame_arms]),
            flame_kinds=_in_order(quantities.name(flame["kind"]) for flame in document["flames"]),
            flame_rows=_widest_stacks(document),
        )
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tlstax.analysis.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        {
            "basename": lambda path: str(path).rsplit("/", 1)[-1],
            "count": quantities.count,
            "fraction": quantities.fraction,
            "interval": lambda measure: quantities.time_interval(
                measure["value_ns"], measure["low_ns"], measure["high_ns"]
            ),
            "name": quantities.name,
            "quantile": quantities.quantile,
            "rate": quantities.rate,
            "ratio": quantities.ratio,
            "share": quantities.share,
            "share_interval": quantities.share_interval,
            "size": quantities.size,
            "time": quantities.time,
            "typeset": quantities.typeset,
            "time_change": quantities.time_change,
        }
    )
    return environment


def _asset(name: str) -> str:
    """Text of a file below assets/; raises TlstaxError where the build did not put it."""
    path = resources.files("tlstax.analysis.report").joinpath("assets", *name.split("/"))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TlstaxError(
            "cannot write the HTML report",
            f"this installation lacks {name}, a library for its charts",
            "Run `make assets`, or use --json, which needs none",
            ExitCode.FAILED,
        ) from error
    if re.search(r"</script|</style|<!--", text, re.IGNORECASE):
        raise TlstaxError(
            "cannot write the HTML report",
            f"{name} holds a tag that would end its own element",
            "Fetch the libraries again: `make clean assets`",
            ExitCode.FAILED,
        )
    return text.strip()


def _own_scripts() -> str:
    return "\n".join(_asset(name) for name in SCRIPTS)


def _plot_style(plot_source: str) -> str:
    """The text of the style element that Observable Plot puts into each chart."""
    found = _PLOT_STYLE.search(plot_source)
    if found is None:
        return ""  # The browser then refuses that style and says so; charts stay readable.
    template, variable = found.groups()
    return template.replace(f"${{{variable}}}", PLOT_CLASS).replace("\\n", "\n")


def _policy(scripts: list[str], styles: list[str]) -> str:
    """A content security policy that allows exactly these scripts and styles."""
    script_hashes = " ".join(_hash(text) for text in scripts)
    style_hashes = " ".join(_hash(text) for text in styles)
    return (
        f"default-src 'none'; script-src {script_hashes}; style-src {style_hashes}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of its first appearance."""
    return list(dict.fromkeys(names))


def _flame_arm(flame: Json) -> str:
    """The name of the ledger bar that a flame graph belongs to."""
    return str(flame["name"]).removesuffix(f"/{flame['kind']}")


def _arm_label(document: Json, name: str) -> str:
    """The label of a ledger bar by its name."""
    return next((bar["label"] for bar in document["ledgers"] if bar["name"] == name), name)


def _first_tls(items: Sequence[Json]) -> int:
    """Position of the first item of a TLS arm, the one that a reader wants to see; else 0."""
    arms = (index for index, item in enumerate(items) if "tls" in item["name"].split("/"))
    return next(arms, 0)


def _ledger_groups(document: Json) -> list[dict[str, Any]]:
    """Indices of the ledger bars to be drawn in one chart: both arms of a driver together."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for index, bar in enumerate(document["ledgers"]):
        if bar["segments"]:
            alone = "" if bar["driver"] else bar["name"]
            groups.setdefault((bar["driver"], bar["scenario"], alone), []).append(index)
    return [_ledger_group(document["ledgers"], key, bars) for key, bars in groups.items()]


def _ledger_group(
    ledgers: list[Json], key: tuple[str, str, str], bars: list[int]
) -> dict[str, Any]:
    driver, scenario, _ = key
    first = ledgers[bars[0]]
    title = f"{quantities.name(driver)}: {quantities.name(scenario)}" if driver else first["label"]
    per_operation = all(ledgers[index]["operation_count"] for index in bars)
    return {
        "title": title,
        "bars": bars,
        "operation": first["operation"] if per_operation else "",
    }


def _widest_stacks(document: Json) -> list[dict[str, Any]]:
    """The widest leaves of each flame graph, for its text alternative."""
    rows = []
    for flame in document["flames"]:
        leaves = sorted(_leaves(flame["root"]), key=lambda leaf: -leaf[1]["value"])
        for path, leaf in leaves[:WIDEST_COUNT]:
            rows.append(
                {
                    "label": flame["label"],
                    "path": path,
                    "category": leaf["category"],
                    "value_ns": leaf["value"],
                }
            )
    return rows


def _leaves(root: Json) -> Iterator[tuple[str, Json]]:
    """Every leaf with "phase › … › function"; without recursion, as stacks can be deep."""
    waiting: list[tuple[Json, str, int]] = [(child, child["name"], 1) for child in root["children"]]
    while waiting:
        node, phase, depth = waiting.pop()
        if node["children"]:
            waiting.extend((child, phase, depth + 1) for child in node["children"])
        elif depth == 1:
            yield phase, node
        else:
            yield f"{phase} {'› ' if depth == 2 else '› … › '}{node['name']}", node
