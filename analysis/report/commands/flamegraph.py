# SPDX-License-Identifier: GPL-2.0-only
"""Draw a flame graph of a capture as one SVG file, which opens in any viewer.

    tlstax flamegraph demo.tlstax -o x.svg                       CPU time of the TLS arm
    tlstax flamegraph demo.tlstax --kind off-cpu --phase handshake -o x.svg
    tlstax flamegraph demo.tlstax --kind mixed -o x.svg          CPU time and waits side by side
    tlstax flamegraph demo.tlstax --function EVP_DigestSign -o x.svg    its callers and callees
    tlstax flamegraph demo.tlstax --function malloc --view callers --phase handshake -o x.svg
    tlstax flamegraph demo.tlstax --view icicle -o x.svg         the root at the top
    tlstax flamegraph demo.tlstax --against storm/connect/plaintext -o x.svg
    tlstax flamegraph new.tlstax --against-capture old.tlstax -o x.svg

With --function, --view sandwich (the default then) draws its callers above it and its callees
below; callers and callees draw one of them, flame and icicle the stacks that contain it. The width
of the function is its time with all that it calls; a stack in which it calls itself counts once.
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
from tlstax.analysis.classify.stacks import Folded, folded_lines
from tlstax.analysis.document import health
from tlstax.analysis.report.html import svg
from tlstax.analysis.report.output import STANDARD_OUTPUT, write
from tlstax.analysis.rows import tables
from tlstax.analysis.rows.tables import Group, Tables
from tlstax.collectors.capture.reader import CaptureReader
from tlstax.collectors.capture.vocabulary import PHASES

KINDS = {"on-cpu": ("on_cpu",), "off-cpu": ("off_cpu",), "mixed": ("on_cpu", "off_cpu")}
NAMES = {"on_cpu": "on CPU", "off_cpu": "waiting"}


OF_A_FUNCTION = ("sandwich", "callers", "callees")
VIEWS = ("flame", "icicle", *OF_A_FUNCTION)


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
    parser.add_argument("--function", metavar="NAME", help="only stacks with this function")
    parser.add_argument("--view", choices=VIEWS, help="default: flame; with --function: sandwich")
    parser.add_argument(
        "--format", choices=("svg", "folded"), default="svg", help="folded: stacks as text"
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
    view = options.view or ("sandwich" if options.function else "flame")
    is_compared = bool(options.against or options.against_capture)
    _require_sense(options, view, is_compared)
    rows = _load(options.capture)
    group = _choose(rows, options.group, options.capture)
    after = _asked(rows, group, options)
    what = _what(options, view)
    if options.format == "folded":
        picture = "".join(f"{line}\n" for line in folded_lines(after.folded))
    elif is_compared:
        other = _load(options.against_capture) if options.against_capture else rows
        name = options.against or group.name
        source = options.against_capture or options.capture
        before = _asked(other, _choose(other, name, source), options)
        picture = _draw_difference(before, after, what, view)
    else:
        ids = {row.window_id for row in rows.ledger}
        basis = "by the ledger, split by" if ids & group.window_ids else "in"
        picture = _draw(after, what, basis, view, options.function)
    write(options.output, picture)
    if options.output != STANDARD_OUTPUT:
        print(f"{options.output}: {after.label}, {what}", file=sys.stderr)
    return int(ExitCode.OK)


def _require_sense(options: argparse.Namespace, view: str, is_compared: bool) -> None:
    """Refuse what cannot be drawn, before the capture is read."""
    if view in OF_A_FUNCTION and not options.function:
        why, do = f"--view {view} starts from a function", "Add --function NAME"
    elif is_compared and (view in OF_A_FUNCTION or options.format == "folded"):
        why, do = "a difference is a flame graph or an icicle", "Add --view flame or leave out one"
    elif options.format == "folded" and view in OF_A_FUNCTION and options.view:
        why, do = "folded stacks have no view", "Leave out --view"
    else:
        return
    raise TlstaxError("cannot draw that", why, do, ExitCode.USAGE)


def _what(options: argparse.Namespace, view: str) -> str:
    """What the picture shows, for its title."""
    kind = options.kind.replace("on-cpu", "on CPU").replace("off-cpu", "waiting")
    where = f" in {' and '.join(map(quantities.name, options.phase))}" if options.phase else ""
    parts = {
        "sandwich": "callers and callees of ",
        "callers": "callers of ",
        "callees": "callees of ",
    }
    of = f", {parts.get(view, 'stacks with ')}{options.function}" if options.function else ""
    return f"{kind}{where}{of}"


def _asked(rows: Tables, group: Group, options: argparse.Namespace) -> flames.Profile:
    """The stacks of a group that the options ask for."""
    made = _profile(rows, group, KINDS[options.kind], options.phase)
    return flames.through(made, options.function) if options.function else made


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


def _draw(profile: flames.Profile, what: str, basis: str, view: str, function: str) -> str:
    callers, root = (
        flames.sandwich(profile, function)
        if view in OF_A_FUNCTION
        else (None, flames.single(profile))
    )
    time = quantities.time(root.width)
    if profile.whole_ns:
        share = quantities.share(root.width / profile.whole_ns)
        time = f"{time}, {share} of {quantities.time(profile.whole_ns)}"
    note = f"{time} {basis} {quantities.count(profile.count)} samples or waits"
    notes, title = [note, *profile.remarks], f"{profile.label}: {what}"
    if view == "callers" and callers is not None:
        return svg.render(callers, title, notes)
    if view == "sandwich":
        return svg.render(root, title, notes, callers=callers)
    return svg.render(root, title, notes, downward=view != "flame")


def _draw_difference(before: flames.Profile, after: flames.Profile, what: str, view: str) -> str:
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
    return svg.render(root, title, [note, *remarks], per, compared=True, downward=view == "icicle")
