# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph of a capture as one SVG file.

    tlstax flamegraph demo.tlstax -o x.svg                       CPU time of the TLS arm
    tlstax flamegraph demo.tlstax --kind off-cpu --phase handshake -o x.svg
    tlstax flamegraph demo.tlstax --kind mixed -o x.svg          CPU time and waits side by side
    tlstax flamegraph demo.tlstax --against storm/connect/plaintext -o x.svg
    tlstax flamegraph new.tlstax --against-capture old.tlstax -o x.svg

A difference is drawn per operation, and every stack as wide as the larger of its two times, so
that vanished stacks stay visible. Widths are exact ledger time that samples split; in a capture
without a ledger, such as bpftrace's, they are the times of the samples or waits themselves. Lost
stacks, and stacks repaired from those of perf, are stated at the top, as in the report.
Exit status: 0; 2 wrong arguments; 5 CAPTURE is no capture or damaged; 6 it cannot be written.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.classify import flames, profiles
from tlstax.analysis.classify.stacks import Folded
from tlstax.analysis.document import health
from tlstax.analysis.report.html import svg
from tlstax.analysis.report.output import STANDARD_OUTPUT, write
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.vocabulary import PHASES

KINDS = {"on-cpu": ("on_cpu",), "off-cpu": ("off_cpu",), "mixed": ("on_cpu", "off_cpu")}
NAMES = {"on_cpu": "on CPU", "off_cpu": "waiting"}


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tlstax flamegraph`."""
    parser = subparsers.add_parser(
        "flamegraph",
        help="draw a flame graph as SVG",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("capture", metavar="CAPTURE", help="file written by tlstax")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="- prints it")
    parser.add_argument("--kind", choices=KINDS, default="on-cpu")
    parser.add_argument(
        "--phase", choices=PHASES, action="append", default=[], help="only this phase; repeatable"
    )
    parser.add_argument(
        "--group", metavar="NAME", help="driver/scenario/arm; default: the arm with most handshakes"
    )
    parser.add_argument("--against", metavar="NAME", help="draw the difference from this group")
    parser.add_argument(
        "--against-capture", metavar="CAPTURE", help="take that group from this capture"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw the requested graph."""
    rows = _load(options.capture)
    group = _choose(rows, options.group, options.capture)
    kinds = KINDS[options.kind]
    after = _profile(rows, group, kinds, options.phase)
    where = f" in {' and '.join(map(quantities.name, options.phase))}" if options.phase else ""
    what = f"{options.kind.replace('on-cpu', 'on CPU').replace('off-cpu', 'waiting')}{where}"
    if options.against or options.against_capture:
        other = _load(options.against_capture) if options.against_capture else rows
        name = options.against or group.name
        source = options.against_capture or options.capture
        before = _profile(other, _choose(other, name, source), kinds, options.phase)
        picture = _draw_difference(before, after, what)
    else:
        ids = {row.window_id for row in rows.ledger}
        picture = _draw(after, what, "by the ledger, split by" if ids & group.window_ids else "in")
    write(options.output, picture)
    if options.output != STANDARD_OUTPUT:
        print(f"{options.output}: {after.label}, {what}", file=sys.stderr)
    return int(ExitCode.OK)


def _load(path: str) -> Tables:
    with CaptureReader.open(path) as reader:
        return tables.load(reader)


def _choose(rows: Tables, name: str | None, capture: str) -> Group:
    """The group of that name; without one, the one whose windows saw most handshakes."""
    groups = tables.groups(rows)
    if name is None:
        counts = [sum(row.window_id in one.window_ids for row in rows.handshakes) for one in groups]
        return groups[counts.index(max(counts))]
    for group in groups:
        if group.name == name:
            return group
    raise TlstaxError(
        f"no group {name} in {capture}",
        f"it has {', '.join(group.name for group in groups)}",
        "Name one of these",
        ExitCode.USAGE,
    )


def _profile(
    rows: Tables, group: Group, kinds: Sequence[str], phases: Sequence[str]
) -> flames.Profile:
    made = {NAMES[kind]: profiles.fold(group, kind, rows) for kind in kinds}
    made = {name: one for name, one in made.items() if one.folded}
    folded = {name: one.folded for name, one in made.items()}
    repaired = {name: one.repaired for name, one in made.items()}
    if len(kinds) == 1:
        name = NAMES[kinds[0]]
        merged = flames.choose(folded.get(name, {}), phases)
        mended = _any(repaired.get(name, {}), phases)
    else:
        merged, mended = _mix(folded, phases), _mix(repaired, phases)
    if not merged:
        raise TlstaxError(
            f"nothing to draw for {group.name}",
            "the recording has no time of this kind there",
            "Choose another group, kind or phase",
            ExitCode.USAGE,
        )
    repairs = [one.repair for one in made.values() if one.repair]
    remarks = (*repairs, *health.stack_losses(rows, kinds))
    return flames.Profile(
        group.label,
        merged,
        sum(one.count for one in made.values()),
        group.operation_count,
        group.operation,
        mended,
        remarks,
    )


def _mix(parts: Mapping[str, Folded], phases: Sequence[str]) -> Folded:
    return flames.mix({name: _any(folded, phases) for name, folded in parts.items()})


def _any(folded: Folded, phases: Sequence[str]) -> Folded:
    """The stacks of the phases; a kind of time that has none of them is left out of a mixture."""
    return {path: ns for path, ns in folded.items() if not phases or path[0].name in phases}


def _draw(profile: flames.Profile, what: str, basis: str) -> str:
    root = flames.single(profile)
    note = (
        f"{quantities.time(root.width)} {basis} {quantities.count(profile.count)} samples or waits"
    )
    return svg.render(root, f"{profile.label}: {what}", [note, *profile.remarks])


def _draw_difference(before: flames.Profile, after: flames.Profile, what: str) -> str:
    per = flames.unit(before, after)
    root = flames.difference(before, after)
    sides = f"{quantities.time(root.before)} → {quantities.time(root.after)}"
    basis = f"per {per}" if per else "scaled to equal totals, as operations are not comparable"
    note = (
        f"{sides} {basis}; every stack as wide as the larger of its two times; "
        f"{quantities.count(before.count)} and {quantities.count(after.count)} samples"
    )
    remarks = [f"{side.label}: {text}" for side in (before, after) for text in side.remarks]
    if before.remarks == after.remarks:  # they are of the whole recording, here of the same one
        remarks = list(after.remarks)
    title = f"{before.label} → {after.label}: {what}"
    return svg.render(root, title, [note, *remarks], per, compared=True)
