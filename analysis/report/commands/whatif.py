# SPDX-License-Identifier: GPL-2.0-only
"""Predict the cost of an operation with another key, cipher, library, resumption, pooling, or none.

    tlstax whatif cap.tlstax --key ec:p256             another kind of key in the whole chain
    tlstax whatif cap.tlstax:connect/tls --resume 0.9  90 % of the handshakes resumed
    tlstax whatif cap.tlstax:pooled/tls --cipher AES128-GCM   records with it
    tlstax whatif cap.tlstax --pool 20 --warm pooled.tlstax   20 queries on each connection
    tlstax whatif cap.tlstax --library openssl-3.5 --measured libraries-out
    tlstax whatif cap.tlstax --no-tls                  the same without TLS: what TLS costs

Keys, ciphers and resumption need costs of single TLS operations, measured in about 5 seconds on the
host that recorded, with its OpenSSL (reuse them with --save-costs and --costs). Another library is
taken from a recording of a server that has it, such as `tlstax lab run libraries` makes. What
cannot be predicted within 20 % is marked.
Exit status: 0; 1 no prediction within 20 %; 2 wrong arguments; 3 the costs cannot be measured here;
5 the file is no capture or holds no handshakes; 6 a file cannot be written.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tlstax import ExitCode, TlstaxError
from tlstax.analysis import quantities
from tlstax.analysis.compare import selections
from tlstax.analysis.compare.selections import RecordingSelection
from tlstax.analysis.model.report import to_plain
from tlstax.analysis.model.whatif import Prediction
from tlstax.analysis.report.commands.diff import sides_of
from tlstax.analysis.report.export import jsondoc
from tlstax.analysis.report.output import STANDARD_OUTPUT, write
from tlstax.analysis.report.terminal import whatif as whatif_terminal
from tlstax.analysis.rows import tables
from tlstax.analysis.whatif import cost_origin, no_tls, predict, recorded
from tlstax.analysis.whatif.cipher_change import present_cipher, require_suite
from tlstax.analysis.whatif.summary import Scenario
from tlstax.collectors.capture import micro_costs
from tlstax.collectors.capture.ciphers import SUITES
from tlstax.collectors.capture.micro_costs import Measure, MicroCosts
from tlstax.collectors.capture.printable import whole_number
from tlstax.collectors.capture.reader import CaptureReader

SIGNATURES: Final = ("rsa:2048", "rsa:3072", "rsa:4096", "ec:p256", "ec:p384", "ed25519")
"""Kinds of key that signatures are measured for, to recognise the recorded one."""
_USED_BY: Final = {
    **dict.fromkeys(("costs", "save_costs"), ("key", "resume", "cipher")),
    "from_key": ("key", "resume"),
    "from_cipher": ("cipher",),
    "measured": ("library",),
    "warm": ("pool",),
}
"""Options that only some wishes use."""


def register(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    measure: Callable[..., MicroCosts],
    host_library: Callable[[], str],
) -> None:
    """Add `tlstax whatif`."""
    parser = subparsers.add_parser(
        "whatif",
        help="predict what another key, cipher, library, resumption or pooling would cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "capture", metavar="CAPTURE[:PART]", help="file written by tlstax, as in `tlstax diff`"
    )
    parser.add_argument("--key", choices=SIGNATURES, help="another kind of key in the whole chain")
    parser.add_argument(
        "--from-key", choices=SIGNATURES, help="the recorded key, if signatures do not reveal it"
    )
    parser.add_argument(
        "--resume", type=share, metavar="SHARE", help="this share of handshakes resumed: 0.9"
    )
    parser.add_argument(
        "--cipher", choices=SUITES, metavar="NAME", help=f"records with it: {', '.join(SUITES)}"
    )
    parser.add_argument(
        "--from-cipher",
        choices=SUITES,
        metavar="NAME",
        help="the recorded cipher, if the capture does not have it",
    )
    parser.add_argument("--pool", type=queries, metavar="N", help="N queries on each connection")
    parser.add_argument(
        "--library", metavar="NAME", help="another TLS library, such as openssl-3.5 or wolfssl"
    )
    parser.add_argument(
        "--measured",
        metavar="PATH",
        type=Path,
        help="capture or folder with that library",
    )
    parser.add_argument(
        "--warm",
        metavar="CAPTURE[:PART]",
        help="with --pool: a capture of persistent connections with the same queries",
    )
    parser.add_argument(
        "--no-tls", action="store_true", help="the same load without TLS: bounds of what TLS costs"
    )
    parser.add_argument("--costs", metavar="FILE", type=Path, help="costs saved with --save-costs")
    parser.add_argument("--save-costs", metavar="FILE", type=Path, help="save the measured costs")
    parser.add_argument("--json", metavar="FILE", help="write the prediction as JSON; - prints it")
    parser.set_defaults(run=run, measure=measure, host_library=host_library)


def share(text: str) -> float:
    """A share as an argument. Raises ArgumentTypeError."""
    number = text.removesuffix("%")
    try:
        value = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share such as 0.9 or 90%")
    return value


def queries(text: str) -> int:
    """A number of queries as an argument. Raises ArgumentTypeError."""
    number = whole_number(text) or 0
    if not 1 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of queries from 1 to 1,000,000")
    return number


def run(options: argparse.Namespace) -> int:
    """Predict and print."""
    _require_scenario(options)
    side = choose(sides_of(options.capture, {}), options.capture, has_shaken=not options.no_tls)
    if options.no_tls:
        return _print(no_tls.without_tls(side), options)
    library = _library(options, side) if options.library else None
    costs, old = None, options.from_key
    ciphers = _ciphers(options, side)
    if options.key is not None or options.resume is not None:
        costs = _costs(options, side, library or side, SIGNATURES, ciphers)
        old = old or recorded.present_key(side, costs)
        costs = _with_handshakes(options, side, costs, [old, options.key or old], ciphers)
    elif ciphers:
        costs = _costs(options, side, side, (), ciphers)
    if costs is not None and options.save_costs is not None:
        micro_costs.save(costs, options.save_costs)
    warm = max(
        sides_of(options.warm, {}) if options.warm else (),
        key=lambda one: one.group.operation_count,
        default=None,
    )
    scenario = Scenario(
        options.key, options.resume, options.pool, library, warm, old, options.cipher, *ciphers[:1]
    )
    return _print(predict.predict(side, scenario, costs), options)


def _print(prediction: Prediction, options: argparse.Namespace) -> int:
    """To the terminal and as JSON, as asked; the exit status."""
    document: dict[str, Any] = to_plain(prediction)
    if options.json is not None:
        write(options.json, jsondoc.render(document))
    if options.json != STANDARD_OUTPUT:
        whatif_terminal.print_prediction(document)
    return int(ExitCode.FAILED if prediction.forecasts[0].is_wide else ExitCode.OK)


def _require_scenario(options: argparse.Namespace) -> None:
    """TlstaxError (USAGE) for no wish, wishes that were not looked at together, idle options."""
    others = options.key or options.cipher or options.pool or options.library
    if options.no_tls and (others or options.resume is not None):
        raise TlstaxError(
            "cannot predict no TLS together with another change",
            "without TLS there is no key, cipher or session, and pooling was not looked at",
            "Ask for --no-tls alone",
            ExitCode.USAGE,
        )
    if not others and not options.no_tls and options.resume is None:
        raise TlstaxError(
            "nothing is to change",
            "no wish was given",
            "Give --no-tls, or one or more of --key, --cipher, --resume, --pool and --library",
            ExitCode.USAGE,
        )
    if options.cipher and (options.pool or options.library):
        raise TlstaxError(
            "cannot predict another cipher together with --pool or --library",
            "how both change records was not looked at",
            "Ask for one after the other",
            ExitCode.USAGE,
        )
    given = {name for name, value in vars(options).items() if value is not None}
    for option, wishes in _USED_BY.items():
        if option in given and given.isdisjoint(wishes):
            names = " or ".join(f"--{one}" for one in wishes)
            what = f"--{option.replace('_', '-')} has no effect here"
            do = f"Leave it out, or add {names}"
            raise TlstaxError(what, f"it is used with {names} only", do, ExitCode.USAGE)


def _ciphers(options: argparse.Namespace, side: RecordingSelection) -> list[str]:
    """The present and the other cipher; none without --cipher."""
    if options.cipher is None:
        return []
    require_suite(options.cipher, recorded.handshake_facts(side).tls_version)
    return [options.from_cipher or present_cipher(side), options.cipher]


def choose(
    found: Sequence[RecordingSelection], text: str, *, has_shaken: bool = True
) -> RecordingSelection:
    """The one part that is meant: of several the TLS arm with most handshakes.

    Raises TlstaxError (CAPTURE) where none made a handshake; or takes one, unless `has_shaken`.
    """
    counts = [side.phase_counts.get("handshake", 0) for side in found]
    if not any(counts) and not has_shaken:
        return next((side for side in found if side.group.arm == "tls"), found[0])
    if not any(counts):
        raise TlstaxError(
            f"{text} has no TLS handshake",
            "nothing of it can be predicted",
            "Choose another part, or record while clients connect",
            ExitCode.CAPTURE,
        )
    return found[counts.index(max(counts))]


def _costs(
    options: argparse.Namespace,
    side: RecordingSelection,
    owner: RecordingSelection,
    signatures: Sequence[str],
    ciphers: Sequence[str],
) -> MicroCosts:
    """What was measured before, or signatures and records now, of the library of `owner`."""
    if options.costs is not None:
        found = micro_costs.load(options.costs)
    else:
        measure = _measure(options)
        cost_origin.require_library(owner, options.host_library())
        facts = recorded.handshake_facts(side)
        found = measure(signatures, (), facts.mutual, facts.tls_version, ciphers)
    cost_origin.require_library(owner, found.library)
    cost_origin.require_host(side, found, is_given=options.costs is not None)
    if signatures:
        cost_origin.require_handshakes(side, found)
    return found


def _with_handshakes(
    options: argparse.Namespace,
    side: RecordingSelection,
    costs: MicroCosts,
    kinds: Sequence[str],
    ciphers: Sequence[str],
) -> MicroCosts:
    """The same with whole handshakes of these kinds of key."""
    if all(name in costs.keys and costs.keys[name].full for name in kinds):
        return costs
    facts = recorded.handshake_facts(side)
    return _measure(options)(SIGNATURES, kinds, facts.mutual, facts.tls_version, ciphers)


def _measure(options: argparse.Namespace) -> Measure:
    measure: Measure | None = getattr(options, "measure", None)
    if measure is None or options.costs is not None:
        raise TlstaxError(
            "these costs were not measured",
            "the file given with --costs lacks them",
            "Measure them on the host that recorded, without --costs",
            ExitCode.USAGE,
        )
    return measure


def _library(options: argparse.Namespace, side: RecordingSelection) -> RecordingSelection:
    """A recording with the other library. Raises TlstaxError (HOST) where there is none."""
    wanted = options.library.lower()
    paths: list[Path] = []
    if options.measured is not None:
        is_folder = os.path.isdir(options.measured)
        paths = sorted(options.measured.rglob("*.tlstax")) if is_folder else [options.measured]
    seen = []
    for path in paths:
        with CaptureReader.open(path) as reader:
            rows = tables.load(reader)
        target = next(iter(rows.targets), None)
        name = _library_name(target.tls_library, target.tls_version) if target else ""
        seen.append(name or "unknown")
        if wanted in name and rows.meta.get("cpu_model") == side.tables.meta.get("cpu_model"):
            groups = [
                RecordingSelection(path.stem, rows, group)
                for group in selections.matching(rows, "tls")
            ]
            groups = groups or [
                RecordingSelection(path.stem, rows, group) for group in tables.groups(rows)
            ]
            return choose(_alike(groups, side), str(path))
    raise TlstaxError(
        f"{options.library} cannot be measured here",
        f"no recording of a server with it on this CPU was given (seen: {', '.join(seen)})"
        if seen
        else "no recording of a server with it was given",
        "Run `tlstax lab run libraries` on this host, and give its folder with --measured",
        ExitCode.HOST,
    )


def _library_name(name: str, version: str) -> str:
    """As people write it on a command line: openssl-3.5.7."""
    return quantities.library(name, version).lower().replace(" ", "-")


def _alike(
    groups: Sequence[RecordingSelection], side: RecordingSelection
) -> Sequence[RecordingSelection]:
    """Those of the same scenario, if there is any."""
    return [one for one in groups if one.group.scenario == side.group.scenario] or groups
