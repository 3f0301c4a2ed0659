# SPDX-License-Identifier: GPL-2.0-only
"""Render a document as one HTML file that opens from disk and asks the network for nothing.

Text reaches the page through autoescape or textContent only. The content security policy names
every script and style by its hash, so that nothing else could run even if a name broke out.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup

from tlstax import ExitCode, TlstaxError, __version__
from tlstax.analysis import quantities
from tlstax.analysis.report import layout, texts
from tlstax.analysis.report.html import breakdowns, script_data, side_breakdown, waterfall

Json = Mapping[str, Any]

VENDORED: Final = ("d3.min.js", "plot.umd.min.js", "d3-flamegraph.min.js")
"""Libraries that `make assets` fetches, in the order in which they load."""
LICENCES: Final = ("LICENSE.d3", "LICENSE.plot", "LICENSE.d3-flame-graph")
"""Their terms ask to be passed on with every copy, and each report is one."""
STYLES: Final = ("report.css", "charts.css", "bars.css")
SCRIPTS: Final = (
    "format.js",
    "page.js",
    "charts.js",
    "distribution.js",
    "heatmap.js",
    "primitives.js",
    "series.js",
    "flame_chart.js",
    "flame_link.js",
    "flame.js",
    "sandwich.js",
    "main.js",
    "copy.js",
)
"""Our own scripts, in the order in which they load; together they are one script element."""

PLOT_CLASS: Final = "plot"
"""Class name of charts. Observable Plot adds one style element whose text holds this name; the
policy must know its hash, so charts.js passes the same name."""
_PLOT_STYLE = re.compile(r"`(:where\(\.\$\{(\w+)\}\) \{\\n  --plot-background.*?)`", re.DOTALL)

SECTIONS: Final = (
    ("findings", "Findings"),
    ("waterfall", "Waterfall"),
    ("both-sides", "Both sides"),
    ("between", "Intermediaries"),
    ("ledger", "Ledger"),
    ("handshake", "Handshake"),
    ("heatmap", "Heatmap"),
    ("composition", "CPU"),
    ("functions", "Functions"),
    ("flames", "Flames"),
    ("sources", "Host and server"),
    ("trust", "Trust"),
    ("method", "Method"),
)


def render(document: Json) -> str:
    """The page for a document (as `tlstax.analysis.model.report.to_json` gives it)."""
    scripts = [*(asset(f"vendor/{name}") for name in VENDORED), _own_scripts()]
    styles = ["\n".join(asset(name) for name in STYLES)]
    allowed = policy(scripts, [*styles, _plot_style(scripts[1])])
    absent = {
        id_
        for id_, part in (
            ("waterfall", "comparisons"),
            ("both-sides", "end_to_end"),
            ("between", "between"),
            ("heatmap", "heatmaps"),
            ("functions", "primitives"),
            ("sources", "sources"),
        )
        if not document[part]
    }
    sections = [(id_, title) for id_, title in SECTIONS if id_ not in absent]
    flame_arms = layout.in_order(layout.bar_name(flame["name"]) for flame in document["flames"])
    minimum = layout.minimum_sample_count(document)
    cells = [cell for item in document["comparisons"] for cell in item["cells"]]
    segments = [part for bar in document["ledgers"] for part in bar["segments"]]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            doc=document,
            unexplained=texts.unexplained,
            version=__version__,
            policy=allowed,
            sections=sections,
            section_ids=[id_ for id_, _ in sections],
            styles=[Markup(style) for style in styles],
            scripts=[Markup(script) for script in scripts],
            licences=[asset(f"vendor/{name}") for name in LICENCES],
            data=Markup(script_data.of_report(document)),
            groups=layout.in_order(cell["group"] for cell in cells),
            states=layout.in_order(part["state"] for part in segments),
            ledger_groups=layout.ledger_groups(document),
            flame_arms=layout.bar_labels(document, flame_arms),
            flame_arm=layout.opening(flame_arms, document),
            flame_kinds=layout.in_order(
                quantities.name(flame["kind"]) for flame in document["flames"]
            ),
            waterfalls=[
                None if one["refusal"] else waterfall.of_comparison(one, minimum)
                for one in document["comparisons"]
            ],
            sides=[side_breakdown.of_operation(one) for one in document["end_to_end"]],
            breakdowns=breakdowns,
            parts_basis=texts.parts_basis,
            callers=texts.callers,
            tasks=texts.tasks,
            minimum=minimum,
            flame_rows=layout.widest_stacks(document),
        )
    )


def environment() -> jinja2.Environment:
    """Templates and the filters that write numbers in them."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tlstax.analysis.report.html", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        {
            "quantile_text": layout.quantile_text,
            "basename": lambda path: str(path).rsplit("/", 1)[-1],
            "amount": quantities.amount,
            "count": quantities.count,
            "evidence": quantities.evidence,
            "evidence_interval": quantities.evidence_interval,
            "opening": layout.opening,
            "opening_heatmap": layout.opening_heatmap,
            "fraction": quantities.fraction,
            "rests_on_few": layout.rests_on_few,
            "still": layout.still,
            "has_time_per_byte": layout.has_time_per_byte,
            "bounds_title": texts.bounds_title,
            "command_part": texts.part,
            "interval": texts.interval,
            "lane_parts": layout.lane_parts,
            "moment": quantities.moment,
            "name": quantities.name,
            "per_byte": quantities.per_byte,
            "process": lambda target: quantities.process(
                target["pid"], target["own_pid"], target["later_pids"]
            ),
            "quantile": quantities.quantile,
            "rate": quantities.rate,
            "reading": quantities.reading,
            "ratio": quantities.ratio,
            "sampling": layout.sampling_at,
            "segment_interval": texts.segment_interval,
            "verdict": texts.verdict,
            "share": quantities.share,
            "share_interval": quantities.share_interval,
            "size": quantities.size,
            "size_range": quantities.size_range,
            "time": quantities.time,
            "typeset": quantities.typeset,
            "time_change": quantities.time_change,
        }
    )
    return made


def asset(name: str) -> str:
    """Text of a file below assets/; raises TlstaxError where the build did not put it."""
    path = resources.files("tlstax.analysis.report.html").joinpath("assets", *name.split("/"))
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
    return "\n".join(asset(name) for name in SCRIPTS)


def _plot_style(plot_source: str) -> str:
    """The text of the style element that Observable Plot puts into each chart."""
    found = _PLOT_STYLE.search(plot_source)
    if found is None:
        return ""  # The browser then refuses that style and says so; charts stay readable.
    template, variable = found.groups()
    return template.replace(f"${{{variable}}}", PLOT_CLASS).replace("\\n", "\n")


def policy(scripts: list[str], styles: list[str]) -> str:
    """A content security policy that allows exactly these scripts and styles."""
    script_hashes = " ".join(_hash(text) for text in scripts) or "'none'"
    style_hashes = " ".join(_hash(text) for text in styles)
    return (
        f"default-src 'none'; script-src {script_hashes}; style-src {style_hashes}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
