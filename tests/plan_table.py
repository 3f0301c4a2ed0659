# SPDX-License-Identifier: GPL-2.0-only
"""How the end of each boundary is seen, for every installed server of the catalogue.

Plans are made from the files of the servers, which need not run. The column `before` is kept from
the page as it is: it holds the plans of the last version that used return probes. Run by
`make plan-table`.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from tlstax.collectors.host.probe_costs.costs import this_host_costs
from tlstax.collectors.placement.model import Plan, Site
from tlstax.collectors.placement.placement import plan
from tlstax.probes.definitions import load_definitions
from tlstax.tests.plan_targets import target_of_kind
from tlstax.workloads.servers.catalogue import load_catalogue

ROW = re.compile(r"\| `(\w+)` \| (.*?) \| .* \|")
HEADLINE = re.compile(r"## (\w+): .*")
NO_EXIT = {"wait": "none needed"}


def kind_of(site: Site) -> str:
    """How an exit is seen, in a few words."""
    if site.kind == "uretprobe":
        return "return probe"
    if site.instruction.startswith("ret"):
        return "return, stepped"
    if "after its call" in site.reason:
        return "behind a caller" + (", stepped" if site.stepped else "")
    if site.condition >= 0:
        return "direction of a jump"
    return "entry" if "its entry" in site.reason else "inside"


def endings(planned: Plan) -> dict[str, str]:
    """Of each boundary with an end: how many places of which kind show it."""
    exits: dict[str, Counter[str]] = {}
    definitions = {b.id: b for one in load_definitions() for b in one.boundaries}
    for site in planned.sites:
        ends = site.event == "exit" or "exit" in definitions[site.boundary].events
        if ends or site.action in NO_EXIT:
            exits.setdefault(site.boundary, Counter())
        if site.event == "exit":
            exits[site.boundary][kind_of(site)] += 1
    actions = {site.boundary: site.action for site in planned.sites}
    return {
        boundary: ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        or NO_EXIT.get(actions[boundary], "next boundary")
        for boundary, kinds in exits.items()
    }


def before_of(page: str) -> dict[str, dict[str, str]]:
    """The column `before`, by server and boundary."""
    found: dict[str, dict[str, str]] = {}
    for line in page.splitlines():
        if headline := HEADLINE.fullmatch(line):
            rows = found.setdefault(headline[1], {})
        elif row := ROW.fullmatch(line):
            rows[row[1]] = row[2]
    return found


def main(path: Path) -> int:
    """Write the page anew; its head stays."""
    page = path.read_text(encoding="utf-8")
    lines = [page[: page.index("\n## ")].rstrip("\n")]
    before = before_of(page)
    for name, kind in load_catalogue().items():
        target = target_of_kind(kind)
        if target is None:
            print(f"{name} is not installed: tlstax lab servers install {name}", file=sys.stderr)
            return 1
        planned = plan(target, load_definitions(), host_costs=this_host_costs(print))
        after = endings(planned)
        lines += ["", f"## {name}: {kind.server}, {kind.tls_library}", ""]
        lines += ["| boundary | before | now |", "|---|---|---|"]
        rows = before.get(name, {})
        lines += [
            f"| `{boundary}` | {rows.get(boundary, '-')} | {after.get(boundary, 'not planned')} |"
            for boundary in dict.fromkeys([*rows, *after])
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
